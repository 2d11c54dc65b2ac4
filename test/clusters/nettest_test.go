package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/nettest"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// testNetwork runs `liqoctl test network`: when all is well, with a network plugin
// that hides pods, and without a connection. Its pods are stacks in this process,
// so that what they send goes through the gateways.
func testNetwork(t *testing.T, p *pair) {
	pe := p.known()
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	clusters := make([]*access.Cluster, 2)
	for i, s := range []*side{p.consumer, p.provider} {
		var err error
		if clusters[i], err = access.New(s.Config, access.Options{Name: []string{access.Local, access.Remote}[i]}); err != nil {
			t.Fatal(err)
		}
		p.probers.play(t, s)
	}
	t.Cleanup(func() {
		if err := nettest.Remove(context.Background(), clusters, nil); err != nil {
			t.Error(err)
		}
	})
	options := nettest.Options{Wanted: nettest.Wanted{PodNodePort: true, Nodes: nettest.Workers}, Timeout: controlplanetest.Patience}
	t.Run("clusters that are not peered", func(t *testing.T) {
		_, err := nettest.Run(t.Context(), clusters, options, nil)
		if err == nil || !strings.Contains(err.Error(), "(local) cluster consumer has no Configuration for cluster provider: they are not connected; run 'liqoctl network connect' first") {
			t.Errorf("error %v", err)
		}
		noNamespace(t, p.consumer)
	})
	p.liqoctl.ok(t, p.connectCommand()...)
	controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
	t.Run("all is well", func(t *testing.T) {
		r, lines := runNetworkTest(t, clusters, options)
		wantOutcomes(t, r, map[nettest.Kind]string{
			// Three pods in each cluster: one on every node, that of the control plane too.
			nettest.PodToPod: "30 ok", nettest.PodToPodLarge: "18 ok", nettest.PodToService: "6 ok", nettest.NodeToPod: "18 ok", nettest.PodToNodePort: "18 ok",
		})
		want := []string{"Done local: 3 pods are ready to test", "Done : Running checks pod-to-pod", "Done : Checks succeeded: 30", "Done : All checks completed"}
		for _, line := range want {
			if !slices.Contains(lines, line) {
				t.Errorf("it did not say %q but\n%s", line, strings.Join(lines, "\n"))
			}
		}
	})
	options.Basic, options.PodNodePort = true, false
	t.Run("a node hides its pods", func(t *testing.T) {
		p.probers.hide(p.consumer, true)
		defer p.probers.hide(p.consumer, false)
		r, _ := runNetworkTest(t, clusters, options) // with the pods that are there
		wantOutcomes(t, r, map[nettest.Kind]string{nettest.PodToPod: "21 ok, 9 not"})
		for _, o := range r.Outcomes {
			if !o.OK && !strings.Contains(o.Error, "a node there masquerades the pods' addresses") {
				t.Errorf("%s -> %s: %s", o.From.Name, o.To.Name, o.Error)
			}
		}
	})
	t.Run("the program, and it cleans up", func(t *testing.T) {
		out := p.liqoctl.ok(t, "test", "network", "--kubeconfig", p.consumer.Kubeconfig, "-p", p.provider.Kubeconfig, "--internet-address=", "--rm", "-o", "json")
		r := new(nettest.Report)
		if err := json.Unmarshal([]byte(out), r); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		wantOutcomes(t, r, map[nettest.Kind]string{nettest.PodToPod: "30 ok", nettest.PodToPodLarge: "18 ok", nettest.PodToService: "6 ok", nettest.NodeToPod: "18 ok"})
		for _, s := range p.sides() {
			noNamespace(t, s)
		}
	})
	t.Run("no connection", func(t *testing.T) {
		key := &networkingv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Namespace: pe.consumer.namespace, Name: pe.consumer.peerID}}
		if err := pe.consumer.Client.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "nothing gets through", func(ctx context.Context) error {
			if err := pe.traffic(ctx); err == nil {
				return errors.New("pods reach each other")
			}
			return nil
		})
		options.Remove = true
		r, _ := runNetworkTest(t, clusters, options)
		wantOutcomes(t, r, map[nettest.Kind]string{nettest.PodToPod: "12 ok, 18 not"})
		for _, o := range r.Outcomes {
			if !o.OK && o.Error != "no answer within 5s" {
				t.Errorf("%s -> %s: %s", o.From.Name, o.To.Name, o.Error)
			}
		}
	})
	t.Run("interrupted, and it cleans up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := nettest.Run(ctx, clusters, options, func(e progress.Event) {
			if strings.HasPrefix(e.Text, "Running checks") {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		for _, s := range p.sides() {
			noNamespace(t, s)
		}
	})
	t.Run("an image that nobody has", func(t *testing.T) {
		options.Image, options.Timeout = "example.org/nothing:1", controlplanetest.Patience/20
		_, err := nettest.Run(t.Context(), clusters, options, nil)
		if err == nil || !strings.Contains(err.Error(), "not done within 3s (--timeout): (local) waiting for the pods in namespace liqo-test-network: pod prober-") {
			t.Errorf("error %v", err)
		}
	})
}

// runNetworkTest returns the report, and what was told.
func runNetworkTest(t *testing.T, clusters []*access.Cluster, o nettest.Options) (r *nettest.Report, lines []string) {
	t.Helper()
	kinds := map[progress.Kind]string{progress.Done: "Done", progress.Waiting: "Waiting", progress.Warning: "Warning", progress.Failed: "Failed"}
	r, err := nettest.Run(t.Context(), clusters, o, func(e progress.Event) {
		lines = append(lines, fmt.Sprintf("%s %s: %s", kinds[e.Kind], e.Cluster, e.Text))
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	return r, lines
}

// wantOutcomes counts the outcomes of each kind.
func wantOutcomes(t *testing.T, r *nettest.Report, want map[nettest.Kind]string) {
	t.Helper()
	ok, failed := make(map[nettest.Kind]int), make(map[nettest.Kind]int)
	for _, o := range r.Outcomes {
		if o.OK {
			ok[o.Kind]++
		} else {
			failed[o.Kind]++
		}
	}
	got := make(map[nettest.Kind]string)
	for kind, n := range ok {
		got[kind] = fmt.Sprintf("%d ok", n)
	}
	for kind, n := range failed {
		got[kind] = fmt.Sprintf("%d ok, %d not", ok[kind], n)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("checks %v, want %v", got, want)
		for _, o := range r.Outcomes {
			if !o.OK {
				t.Logf("%s: %s -> %s at %s: %s", o.Kind, o.From.Name, o.To.Name, o.URL, o.Error)
			}
		}
	}
}

func noNamespace(t *testing.T, s *side) {
	t.Helper()
	for _, name := range []string{nettest.Namespace, nettest.HostNamespace} {
		if err := s.Client.Get(t.Context(), types.NamespacedName{Name: name}, new(corev1.Namespace)); !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s of %s: %v", name, s.id, err)
		}
	}
}
