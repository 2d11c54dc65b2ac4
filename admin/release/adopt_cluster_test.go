package release_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/release"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// liqosObjects are what Liqo leaves in a cluster with two peerings, beside what its controllers make.
const liqosObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: liqo}
---
apiVersion: v1
kind: Secret
metadata: {name: sh.helm.release.v1.liqo.v1, namespace: liqo, labels: {owner: helm, name: liqo, status: deployed}}
type: helm.sh/release.v1
stringData: {release: a release}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: liqo-clusterid-configmap, namespace: liqo}
data: {CLUSTER_ID: rome}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-controller-manager, namespace: liqo, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/managed-by: Helm}}
spec:
  replicas: 0
  selector: {matchLabels: {app: manager}}
  template: {metadata: {labels: {app: manager}}, spec: {containers: [{name: manager, image: ghcr.io/liqotech/liqo-controller-manager:v1.2.0}]}}
---
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: milan}}
---
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-oslo, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: oslo}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  mtu: 1340
  endpoint: {port: 51840, serviceType: NodePort}
  serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: wireguard-server, namespace: liqo}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: oslo, namespace: liqo-tenant-oslo, labels: {liqo.io/remote-cluster-id: oslo}}
spec:
  mtu: 1340
  endpoint: {addresses: [192.0.2.7], port: 51840}
  clientTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayClientTemplate, name: wireguard-client, namespace: liqo}
`

// adoptionSite is a cluster with Liqo.
type adoptionSite struct {
	*liqo
	access  *access.Cluster
	kubelet *controlplanetest.Kubelet
	// faults are how many requests about gateways are answered with an error, from now on.
	faults atomic.Int32
}

// faulty is an API server that has a bad moment.
type faulty struct {
	*adoptionSite
	next http.RoundTripper
}

func (s faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/namespaces/liqo-tenant-") {
		return s.next.RoundTrip(r)
	}
	code := 0
	switch left := s.faults.Add(-1); {
	case left < 0:
		return s.next.RoundTrip(r)
	case left%3 == 0:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case left%3 == 1:
		code = http.StatusTooManyRequests
	case left%3 == 2:
		code = http.StatusInternalServerError
	}
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// startAdoption is such a cluster, with images beside those of gateways.
func startAdoption(t *testing.T, more map[string]controlplanetest.Image) *adoptionSite {
	t.Helper()
	c := controlplanetest.StartBare(t)
	images := map[string]controlplanetest.Image{
		"ghcr.io/liqotech/gateway:v1.2.0":           {},
		"ghcr.io/liqotech/gateway/wireguard:v1.2.0": {},
		"ghcr.io/liqotech/gateway/geneve:v1.2.0":    {},
		"sluice.local/gateway:unknown":              {Program: copyOfSelf(t), Args: []string{playGateway, "$(LOOPBACK)"}},
	}
	maps.Copy(images, more)
	kubelet := controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{Images: images})
	templates, err := os.ReadFile("testdata/liqo-templates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Install(deploy.CRDs()); err != nil {
		t.Fatal(err)
	}
	c.Apply(liqosObjects)
	c.Apply(string(templates))
	s := &adoptionSite{kubelet: kubelet}
	config := rest.CopyConfig(c.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{s, next} })
	if s.access, err = access.New(config, access.Options{Origin: "kubeconfig of the test"}); err != nil {
		t.Fatal(err)
	}
	s.liqo = startLiqo(t, c)
	s.carries("milan", 3)
	s.carries("oslo", 3)
	return s
}

// copyOfSelf is this test's program, where pods with other users find it.
func copyOfSelf(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "images-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self = filepath.Join(dir, "gateway")
	if err := os.WriteFile(self, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return self
}

// carries waits until the gateway for a peer has a ready pod with so many containers, and is connected.
func (s *adoptionSite) carries(peer string, containers int) {
	s.t.Helper()
	s.reports(peer, containers, networkingv1beta1.Connected)
}

func (s *adoptionSite) reports(peer string, containers int, value networkingv1beta1.ConnectionValue) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "the gateway for "+peer, func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := s.Get(ctx, "liqo-tenant-"+peer, "gw-"+peer, &d); err != nil {
			return err
		}
		if n := len(d.Spec.Template.Spec.Containers); n != containers || d.Status.AvailableReplicas == 0 {
			return fmt.Errorf("%d containers, status %+v, Liqo was refused %v", n, d.Status, s.refused())
		}
		out, err := s.Kubectl("get", "connection", "-n", "liqo-tenant-"+peer, "gw-"+peer, "-o", "jsonpath={.status.value}")
		if err == nil && out != string(value) {
			err = errors.New(out)
		}
		return err
	})
}

func (s *adoptionSite) prepare(o release.AdoptOptions) (*release.Adoption, error) {
	s.t.Helper()
	chart, err := release.Embedded(release.Build{})
	if err != nil {
		s.t.Fatal(err)
	}
	if o.Timeout == 0 {
		o.Timeout = controlplanetest.Patience
	}
	return release.PrepareAdoption(s.t.Context(), s.access, chart, o)
}

// adopt hands over, and must succeed.
func (s *adoptionSite) adopt(o release.AdoptOptions) *release.Adoption {
	s.t.Helper()
	a, err := s.prepare(o)
	if err == nil {
		err = a.Run(s.t.Context(), s.tell)
	}
	if err != nil {
		s.t.Fatalf("%v; Liqo was refused %v", err, s.refused())
	}
	return a
}

func (s *adoptionSite) tell(e progress.Event) { s.t.Logf("%d %s", e.Kind, e.Text) }

// TestAdoption hands peerings of Liqo over, and back.
func TestAdoption(t *testing.T) {
	t.Parallel()
	s := startAdoption(t, nil)
	untouched := s.state()

	t.Run("a dry run", func(t *testing.T) {
		a, err := s.prepare(release.AdoptOptions{Peers: []string{"milan"}})
		if err != nil {
			t.Fatal(err)
		}
		want := []release.AdoptionStep{
			{Verb: "create", Object: "ClusterRole sluice-adopted-gateway"},
			{Verb: "create", Object: "WgGatewayServerTemplate liqo/sluice-wireguard-server.liqo-tenant-milan.milan"},
			{Verb: "create", Object: "ClusterRoleBinding sluice-adopted-gateway:liqo-tenant-milan:milan"},
			{Verb: "switch", Object: "GatewayServer liqo-tenant-milan/milan", Detail: "spec.serverTemplateRef.name: wireguard-server -> sluice-wireguard-server.liqo-tenant-milan.milan"},
			{Verb: "replace", Object: "WgGatewayServer liqo-tenant-milan/milan", Detail: "by Liqo's controllers, from the template"},
			{Verb: "replace", Object: "Deployment liqo-tenant-milan/gw-milan", Detail: "by Liqo's controllers: traffic stops until its new pod is ready"},
			{Verb: "keep", Object: "Service liqo-tenant-milan/gw-milan", Detail: "its ports and addresses"},
			{Verb: "keep", Object: "Connection liqo-tenant-milan/gw-milan", Detail: "its state is reported by the new pod"},
		}
		if diff := cmp.Diff(want, a.Steps); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		s.unchanged("the dry run changed something", untouched)
	})
	t.Run("an image that no node has", func(t *testing.T) {
		a, err := s.prepare(release.AdoptOptions{Peers: []string{"milan"}, Values: release.Values{"tag": "none"}, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(t.Context(), s.tell); err == nil || !strings.Contains(err.Error(), "while waiting for a node to run sluice.local/gateway:none") {
			t.Errorf("got %v", err)
		}
		s.unchanged("it changed something", untouched)
		controlplanetest.Eventually(t, "nothing of the trial is left", func(ctx context.Context) error {
			var pods corev1.PodList
			if err := s.Client.List(ctx, &pods); err != nil {
				return err
			}
			if i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "sluice-trial") }); i >= 0 {
				return errors.New(pods.Items[i].Name)
			}
			return nil
		})
	})
	t.Run("a peer that does not answer", func(t *testing.T) {
		s.silence(true)
		a, err := s.prepare(release.AdoptOptions{Peers: []string{"milan"}})
		if err != nil {
			t.Fatal(err)
		}
		err = a.Run(t.Context(), func(e progress.Event) {
			s.tell(e)
			if e.Kind == progress.Done { // the trial
				a.GiveUpAfter(3 * time.Second)
			}
		})
		if err == nil || !strings.Contains(err.Error(), "while waiting for GatewayServer liqo-tenant-milan/milan to be Sluice's") {
			t.Errorf("got %v", err)
		}
		s.silence(false)
		s.carries("milan", 3) // it went back
		s.adopt(release.AdoptOptions{Peers: []string{"milan"}, Back: true})
		s.unchanged("something is left", untouched)
	})
	t.Run("somebody else's pod, and one that a trial has left", func(t *testing.T) {
		run := func() error {
			t.Helper()
			a, err := s.prepare(release.AdoptOptions{Peers: []string{"milan"}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			return a.Run(ctx, func(e progress.Event) {
				s.tell(e)
				if strings.Contains(e.Text, "there is a former") {
					cancel()
				}
			})
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "sluice-trial-milan", Finalizers: []string{"example.org/kept"}},
			Spec: corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "gateway", Image: "sluice.local/gateway:unknown"}}}}
		if err := s.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		controlplanetest.EditStatus(t, s.Cluster, pod, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "gateway", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		})
		if err := run(); err == nil || !strings.Contains(err.Error(), "Pod liqo-tenant-milan/sluice-trial-milan exists, and was not made by this command") {
			t.Errorf("got %v", err)
		}
		s.Read(t, pod.Namespace, pod.Name, pod)
		if pod.DeletionTimestamp != nil {
			t.Error("somebody else's pod is deleted")
		}
		controlplanetest.Edit(t, s.Cluster, pod, func(p *corev1.Pod) { p.Labels = map[string]string{"networking.liqo.io/adoption": "true"} })
		if err := run(); err == nil || !strings.Contains(err.Error(), "there is a former Pod liqo-tenant-milan/sluice-trial-milan still") {
			t.Errorf("a pod that was there is the trial: %v", err)
		}
		controlplanetest.Edit(t, s.Cluster, pod, func(p *corev1.Pod) { p.Finalizers = nil })
		s.unchanged("it changed something", untouched)
	})
	t.Run("an API server with a bad moment", func(t *testing.T) {
		a, err := s.prepare(release.AdoptOptions{Peers: []string{"milan"}})
		if err != nil {
			t.Fatal(err)
		}
		bad := false
		err = a.Run(t.Context(), func(e progress.Event) {
			s.tell(e)
			if !bad && strings.Contains(e.Text, "to be Sluice's") {
				bad = true
				s.faults.Store(9)
			}
		})
		if left := s.faults.Load(); err != nil || !bad || left > 0 {
			t.Errorf("%d requests have yet to fail: %v", left, err)
		}
		s.carries("milan", 1)
		s.adopt(release.AdoptOptions{Peers: []string{"milan"}, Back: true})
		s.unchanged("something is left", untouched)
	})
	// interrupt prepares, and ends what was prepared when it tells a text.
	interrupt := func(o release.AdoptOptions, at string, prepared func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, err := s.prepare(o)
		if err != nil {
			t.Fatal(err)
		}
		prepared()
		err = a.Run(ctx, func(e progress.Event) {
			if strings.Contains(e.Text, at) {
				cancel()
			}
		})
		if err == nil {
			t.Error("it was not interrupted")
		}
	}
	milan := []string{"milan"}
	otherValues, err := release.Sources{Set: []string{"networking.gatewayTemplates.container.gateway.resources.requests.cpu=200m"}}.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a peering that is down all along", func(t *testing.T) {
		s.cut(true)
		s.reports("milan", 3, networkingv1beta1.ConnectionError)
		s.adopt(release.AdoptOptions{Peers: milan})
		s.reports("milan", 1, networkingv1beta1.ConnectionError)
		if a := s.adopt(release.AdoptOptions{Peers: milan}); !a.Idle() {
			t.Errorf("steps %+v", a.Steps)
		}
		interrupt(release.AdoptOptions{Peers: milan, Back: true}, "to be Liqo's", func() {})
		s.adopt(release.AdoptOptions{Peers: milan, Back: true})
		s.cut(false)
		s.carries("milan", 3)
		s.unchanged("something is left", untouched)
	})
	// backAgain gives back what was given back already, while the peer answers nobody, or only after a while.
	backAgain := func(answers bool) {
		t.Helper()
		o := release.AdoptOptions{Peers: milan, Back: true}
		if !answers {
			o.Timeout = 3 * time.Second
		}
		a, err := s.prepare(o)
		if err != nil {
			t.Fatal(err)
		}
		warned, waited, began := false, false, time.Now()
		err = a.Run(t.Context(), func(e progress.Event) {
			s.tell(e)
			silent := strings.Contains(e.Text, "the peer has not answered yet")
			warned = warned || e.Kind == progress.Warning && silent
			waited = waited || e.Kind == progress.Waiting && silent
			s.cut(!answers || !waited)
		})
		if err != nil || warned == answers || !waited || !answers && time.Since(began) < o.Timeout {
			t.Errorf("warned: %v, waited: %v, %v, %v", warned, waited, time.Since(began), err)
		}
		s.unchanged("something is left", untouched)
		s.cut(false)
		s.carries("milan", 3)
	}
	t.Run("interrupted on the way back", func(t *testing.T) {
		s.adopt(release.AdoptOptions{Peers: milan})
		interrupt(release.AdoptOptions{Peers: milan, Back: true}, "to be Liqo's", func() { s.cut(true) })
		s.reports("milan", 3, networkingv1beta1.ConnectionError)
		backAgain(true)
	})
	t.Run("interrupted, and the peer has gone", func(t *testing.T) {
		s.silence(true)
		interrupt(release.AdoptOptions{Peers: milan}, "to be Sluice's", func() {})
		s.reports("milan", 1, networkingv1beta1.ConnectionError)
		s.cut(true)
		a, err := s.prepare(release.AdoptOptions{Peers: milan, Back: true, Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(t.Context(), s.tell); err == nil || !strings.Contains(err.Error(), "keeps template wireguard-server") || !strings.HasSuffix(err.Error(), "liqoctl network adopt milan") {
			t.Errorf("the peer does not answer Liqo's gateway: %v", err)
		}
		s.silence(false)
		s.reports("milan", 3, networkingv1beta1.ConnectionError)
		backAgain(false)
	})
	t.Run("interrupted", func(t *testing.T) {
		s.silence(true)
		interrupt(release.AdoptOptions{Peers: milan}, "to be Sluice's", func() {})
		s.reports("milan", 1, networkingv1beta1.ConnectionError)
		var a *release.Adoption
		var err error
		if a, err = s.prepare(release.AdoptOptions{Peers: []string{"milan"}, Timeout: 3 * time.Second}); err != nil || !a.Idle() {
			t.Fatalf("%+v, %v", a, err)
		}
		if err := a.Run(t.Context(), s.tell); err == nil || !strings.Contains(err.Error(), "the peer has not answered yet") || !strings.Contains(err.Error(), "liqoctl network adopt milan --back") {
			t.Errorf("the peer does not answer: %v", err)
		}
		if a, err = s.prepare(release.AdoptOptions{Peers: milan, Values: otherValues}); err != nil {
			t.Fatal(err)
		}
		err = a.Run(t.Context(), func(e progress.Event) {
			s.tell(e)
			if e.Kind == progress.Done { // the trial
				a.GiveUpAfter(3 * time.Second)
			}
		})
		if err == nil || !strings.Contains(err.Error(), "while waiting for GatewayServer liqo-tenant-milan/milan to be Sluice's") {
			t.Errorf("a second attempt does not know that the peer answered before the first: %v", err)
		}
		s.silence(false)
		s.carries("milan", 3) // it went back
		s.adopt(release.AdoptOptions{Peers: []string{"milan"}})
		s.carries("milan", 1)
		s.carries("oslo", 3)
	})
	t.Run("again", func(t *testing.T) {
		if notes, err := s.Kubectl("get", "wggatewayservertemplates", "-A", "-o", `jsonpath={.items[*].metadata.annotations.networking\.liqo\.io/peer-was-silent}`); err != nil || notes != "" {
			t.Errorf("the handover is noted as not completed: %q, %v", notes, err)
		}
		adopted := s.state()
		if a := s.adopt(release.AdoptOptions{Peers: []string{"milan"}}); !a.Idle() {
			t.Errorf("steps %+v", a.Steps)
		}
		s.unchanged("it changed something", adopted)
	})
	t.Run("all, and back", func(t *testing.T) {
		s.adopt(release.AdoptOptions{All: true})
		s.carries("milan", 1)
		s.carries("oslo", 1)

		var before, after appsv1.Deployment
		s.Read(t, "liqo-tenant-oslo", "gw-oslo", &before)
		if a := s.adopt(release.AdoptOptions{Peers: []string{"milan"}, Values: otherValues}); a.Idle() || a.Steps[0].Verb != "update" {
			t.Errorf("another version: %+v", a.Steps)
		}
		s.Read(t, "liqo-tenant-oslo", "gw-oslo", &after)
		if after.Generation != before.Generation {
			t.Error("another version for milan replaces the gateway for oslo")
		}

		s.adopt(release.AdoptOptions{Peers: []string{"oslo"}, Back: true})
		s.carries("milan", 1)
		s.carries("oslo", 3)
		s.adopt(release.AdoptOptions{All: true, Back: true})
		s.carries("milan", 3)
		s.unchanged("something is left", untouched)
	})
	t.Run("somebody else's object", func(t *testing.T) {
		s.Apply("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: sluice-adopted-gateway}, rules: []}")
		if _, err := s.prepare(release.AdoptOptions{All: true}); err == nil || !strings.Contains(err.Error(), "ClusterRole sluice-adopted-gateway exists, and was not made by this command") {
			t.Errorf("got %v", err)
		}
		if _, err := s.Kubectl("delete", "clusterrole", "sluice-adopted-gateway"); err != nil {
			t.Fatal(err)
		}
	})
	if wrong := s.refused(); len(wrong) > 0 {
		t.Errorf("Liqo's controllers were refused: %v", wrong)
	}
	t.Run("without Liqo", func(t *testing.T) {
		if _, err := s.Kubectl("delete", "deployment", "-n", "liqo", "liqo-controller-manager"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.prepare(release.AdoptOptions{All: true}); err == nil || !strings.Contains(err.Error(), "Liqo does not run in this cluster") {
			t.Errorf("got %v", err)
		}
	})
}
