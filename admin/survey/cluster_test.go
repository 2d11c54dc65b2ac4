package survey_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// objects are those of a peering, as an administrator and the controllers would
// have made them.
const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: liqo-clusterid-configmap, namespace: liqo}
data: {CLUSTER_ID: rome}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: liqo-installation, namespace: liqo}
data: {version: v0.5.0, cluster.labels: "region=south,tier=gold"}
---
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: milan}}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {remote: {cidr: {pod: 10.243.0.0/16, external: 10.70.0.0/16}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {endpoint: {addresses: [203.0.113.7], port: 51840}}
---
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {name: gw-milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {type: Client, gatewayRef: {kind: WgGatewayClient, name: milan, namespace: liqo-tenant-milan}}
---
apiVersion: v1
kind: Pod
metadata:
  name: gw-milan-0
  namespace: liqo-tenant-milan
  labels:
    networking.liqo.io/component: gateway
    networking.liqo.io/gateway-name: milan
    networking.liqo.io/gateway-namespace: liqo-tenant-milan
    networking.liqo.io/active: "true"
spec:
  containers: [{name: gateway, image: test/gateway}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: liqo-fabric, namespace: liqo-fabric, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/version: v0.5.0}}
spec:
  selector: {matchLabels: {app: fabric}}
  template:
    metadata: {labels: {app: fabric}}
    spec: {containers: [{name: fabric, image: test/fabric}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-controller, namespace: liqo}
spec:
  selector: {matchLabels: {app: controller}}
  template:
    metadata: {labels: {app: controller}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: controller, image: "nowhere/controller:v0.5.0", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`

// restricted may read what lies in the namespace of the peering, and run nothing.
const restricted = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: liqo-tenant-milan}
rules:
- {apiGroups: [networking.liqo.io], resources: ["*"], verbs: [get, list]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: liqo-tenant-milan}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
`

// viewing may read what the role view has of a cluster: nothing of policies.
const viewing = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: viewer, namespace: default}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: viewer},
  rules: [{apiGroups: ["", apps, networking.liqo.io], resources: ["*"], verbs: [get, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: viewer},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}, subjects: [{kind: ServiceAccount, name: viewer, namespace: default}]}
`

// plays is a container in which a program answers with what a golden file says.
func plays(program, file string) controlplanetest.Image {
	return controlplanetest.Image{Exec: func(_ context.Context, _ *corev1.Pod, argv []string, stdout, stderr io.Writer) int {
		if strings.Join(argv, " ") != program+" status -o json" {
			fmt.Fprintf(stderr, "unexpected: %q\n", argv)
			return 1
		}
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		_, _ = stdout.Write(text) // the client may have gone
		return 0
	}}
}

func TestReadCluster(t *testing.T) {
	c := controlplanetest.Start(t)
	controlplanetest.StartKubelet(t, c, controlplanetest.KubeletOptions{Images: map[string]controlplanetest.Image{
		"test/gateway": plays("gateway", "../../cmd/gateway/testdata/report.json"),
		"test/fabric":  plays("fabric", "../../cmd/fabric/testdata/report-cluster.json"),
	}})
	c.Apply(objects)
	c.Apply(restricted)
	c.Apply(viewing)
	connected(t, c)
	admin := open(t, c.Config)

	t.Run("everything, for who may see everything", func(t *testing.T) {
		var s *survey.Cluster
		controlplanetest.Eventually(t, "the pods are there", func(ctx context.Context) (err error) {
			if s, err = survey.Read(ctx, admin, survey.Options{}); err != nil {
				return err
			}
			if g := s.Peer("milan").Gateway; g.Active() == nil || !g.Active().Ready || len(s.Installation.Components) != 2 || s.Installation.Components[1].Ready != 2 {
				return fmt.Errorf("%+v, %+v", g.Pods, s.Installation.Components)
			}
			return nil
		})
		if len(s.Gaps) > 0 {
			t.Errorf("gaps: %v", s.Missing(""))
		}
		p := s.Peer("milan")
		got := map[string]any{
			"id": s.Installation.ClusterID, "version": s.Installation.Version, "key": p.Gateway.Keys.Public, "connection": p.Connection.Status.Value,
			"pod CIDR": p.Configuration.Spec.Remote.CIDR.Pod, "nodes": len(s.Nodes), "kubernetes": strings.HasPrefix(s.Installation.KubernetesVersion, "v1."),
			"address": s.Installation.APIServer, "age of the key": p.Gateway.Keys.Since.IsZero(), "labels": s.Installation.Labels,
		}
		want := map[string]any{
			"id": "rome", "version": "v0.5.0", "key": "n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc=", "connection": networkingv1beta1.Connected,
			"pod CIDR": networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.243.0.0/16"}, Scalar: true}, "nodes": 2, "kubernetes": true,
			"address": c.Config.Host, "age of the key": false, "labels": map[string]string{"region": "south", "tier": "gold"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		controller := s.Installation.Components[0]
		if controller.Healthy() || len(controller.Pods) != 1 || controller.Pods[0].Reason == "" {
			t.Errorf("the controller whose image cannot be had: %+v", controller)
		}
	})
	t.Run("what gateways and agents answer", func(t *testing.T) { testAsk(t, c, admin) })
	t.Run("part, for who may see part", func(t *testing.T) { testRestricted(t, c) })
	t.Run("an object of a newer version hides no other", func(t *testing.T) { testUndecodable(t, c, admin) })
	t.Run("many nodes", func(t *testing.T) { testManyNodes(t, c, admin) })
	t.Run("IDs of peers", func(t *testing.T) {
		if diff := cmp.Diff([]string{"milan"}, survey.PeerIDs(t.Context(), admin)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("what is no part of the network", func(t *testing.T) {
		c.Apply("{apiVersion: core.liqo.io/v1beta1, kind: ForeignCluster, metadata: {name: milan}, spec: {clusterID: milan}}")
		for _, modules := range []bool{false, true} {
			s, err := survey.Read(t.Context(), admin, survey.Options{PeeringsOnly: true, Modules: modules})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Peer("milan").Foreign != nil; got != modules {
				t.Errorf("asked for: %v, read: %v", modules, got)
			}
		}
	})
	t.Run("components with the peerings", func(t *testing.T) {
		c.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: liqo-installation, namespace: liqo}, data: {controller.replicas: \"3\"}}")
		off := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-controller"}}
		if err := admin.Client.Patch(t.Context(), off, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))); err != nil {
			t.Fatal(err)
		}
		first, err := survey.Read(t.Context(), admin, survey.Options{PeeringsOnly: true, Components: true})
		if err != nil {
			t.Fatal(err)
		}
		later, err := survey.Read(t.Context(), admin, survey.Options{PeeringsOnly: true, Components: true, Nodes: first})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*survey.Cluster{first, later} {
			if i := s.Installation; len(i.Components) != 2 || !i.Components[0].Off() || i.ControllerReplicas != 3 {
				t.Errorf("%+v", i)
			}
		}
	})
	t.Run("an interrupted takeover", func(t *testing.T) { testInterrupted(t, c, admin) })
	t.Run("another namespace of the installation", func(t *testing.T) {
		wrong, err := access.New(c.Config, access.Options{LiqoNamespace: "elsewhere"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := survey.Read(t.Context(), wrong, survey.Options{})
		if err != nil || len(s.Gaps) == 0 || !errors.Is(s.Gaps[0].Err, access.ErrNotInstalled) {
			t.Errorf("%v: gaps %+v", err, s)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		if _, err := survey.Read(t.Context(), open(t, &rest.Config{Host: "https://127.0.0.1:1"}), survey.Options{}); err == nil {
			t.Error("no error")
		}
	})
}

// testInterrupted: where Liqo runs, what is left of a takeover of its network is told, to those who read the installation.
func testInterrupted(t *testing.T, c *controlplanetest.Cluster, admin *access.Cluster) {
	told := func(o survey.Options) string {
		t.Helper()
		s, err := survey.Read(t.Context(), admin, o)
		if err != nil {
			t.Fatal(err)
		}
		return s.Installation.Interrupted
	}
	c.Apply(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: liqo-network.sluice.liqo.io, labels: {networking.liqo.io/adoption: "true"}}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [ipam.liqo.io], apiVersions: ["*"], operations: [CREATE], resources: [networks]}]}
  validations: [{expression: "true"}]
`)
	if got := told(survey.Options{}); got != "" {
		t.Errorf("without Liqo: %s", got)
	}
	c.Apply(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: renamed-controller-manager
  namespace: liqo
  labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/name: controller-manager, app.kubernetes.io/component: controller-manager}
spec:
  replicas: 0
  selector: {matchLabels: {app: manager}}
  template:
    metadata: {labels: {app: manager}}
    spec: {containers: [{name: manager, image: nowhere/manager}]}
`)
	for _, o := range []survey.Options{{}, {PeeringsOnly: true, Components: true}} {
		if got := told(o); !strings.Contains(got, "there is ValidatingAdmissionPolicy liqo-network.sluice.liqo.io") || !strings.Contains(got, "install --adopt") {
			t.Errorf("%+v: %q", o, got)
		}
	}
	if got := told(survey.Options{PeeringsOnly: true}); got != "" {
		t.Errorf("to who reads peerings alone: %s", got)
	}
	testHiddenTakeover(t, c)
}

// testHiddenTakeover: who may not read policies is told so where something else tells of a takeover, whenever they look.
func testHiddenTakeover(t *testing.T, c *controlplanetest.Cluster) {
	viewer := open(t, c.ServiceAccount("default", "viewer"))
	var earlier *survey.Cluster
	missing := func() string {
		t.Helper()
		s, err := survey.Read(t.Context(), viewer, survey.Options{PeeringsOnly: true, Components: true, Nodes: earlier})
		if err != nil {
			t.Fatal(err)
		}
		if s.Installation.Interrupted != "" {
			t.Errorf("a policy that cannot be seen is told of: %s", s.Installation.Interrupted)
		}
		earlier = s
		return strings.Join(s.Missing(""), "\n")
	}
	if got := missing(); got != "" {
		t.Errorf("without another trace of a takeover: %s", got)
	}
	c.Apply(`
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: renamed-fabric, namespace: liqo}, spec: {selector: {matchLabels: {app: liqos}}, template: {metadata: {labels: {app: liqos}},
  spec: {nodeSelector: {networking.liqo.io/handed-over-to-sluice: "true"}, containers: [{name: fabric, image: nowhere/fabric}]}}}}
`)
	earlier = nil
	for range 3 {
		if got, want := missing(), "left out, as the user may not read it: what is left of a takeover"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// open is a cluster as somebody reaches it.
func open(t *testing.T, config *rest.Config) *access.Cluster {
	t.Helper()
	c, err := access.New(config, access.Options{Origin: "kubeconfig test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connected writes the status that gateway and controller would write.
func connected(t *testing.T, c *controlplanetest.Cluster) {
	t.Helper()
	o := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "gw-milan"}}
	controlplanetest.EditStatus(t, c, o, func(o *networkingv1beta1.Connection) {
		o.Status = networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected, Latency: networkingv1beta1.ConnectionLatency{Value: "12ms", Timestamp: metav1.Now()}}
	})
	g := &networkingv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}}
	controlplanetest.EditStatus(t, c, g, func(g *networkingv1beta1.GatewayClient) {
		key, err := base64.StdEncoding.DecodeString("n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc=")
		if err != nil {
			t.Fatal(err)
		}
		g.Status.SecretRef, g.Status.PublicKey, g.Status.PublicKeyTime = &corev1.ObjectReference{Name: "keys"}, key, metav1.Now()
	})
}

func testAsk(t *testing.T, c *controlplanetest.Cluster, admin *access.Cluster) {
	s, err := survey.Read(t.Context(), admin, survey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	survey.AskGateways(t.Context(), admin, s)
	if g := s.Peer("milan").Gateway; g.ReportErr != nil || g.Report.DataPlane.MTU != 1340 {
		t.Errorf("report %+v, error %v", g.Report, g.ReportErr)
	}
	var pods corev1.PodList
	if err := c.Client.List(t.Context(), &pods, client.InNamespace("liqo-fabric")); err != nil {
		t.Fatal(err)
	}
	r, err := survey.ReadFabric(t.Context(), admin, client.ObjectKeyFromObject(&pods.Items[0]))
	if err != nil || r.Link.Kind != "tun" {
		t.Errorf("report %+v, error %v", r, err)
	}
	if _, err := survey.ReadGateway(t.Context(), admin, client.ObjectKeyFromObject(&pods.Items[0])); err == nil {
		t.Error("a pod without a gateway has answered")
	}
}

func testRestricted(t *testing.T, c *controlplanetest.Cluster) {
	config := c.ServiceAccount("default", "reader")
	reader := open(t, config)
	s, err := survey.Read(t.Context(), reader, survey.Options{Namespace: "liqo-tenant-milan"})
	if err != nil {
		t.Fatal(err)
	}
	survey.AskGateways(t.Context(), reader, s)
	p := s.Peer("milan")
	if p == nil || p.Gateway == nil || p.Connection == nil || p.Gateway.Active() == nil {
		t.Fatalf("peer %+v", p)
	}
	if _, none := s.MayNotAsk(); !none {
		t.Error("it is not known that the user may not ask gateways")
	}
	want := []string{"left out, as the user of kubeconfig test may not read it: DaemonSets, Deployments, ForeignClusters, InternalNodes, " +
		"Namespaces, Networks, Nodes, the cluster ID, the reports of gateways (pods/exec), what was said at install time"}
	if diff := cmp.Diff(want, s.Missing(reader.Origin)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if health, alerts := s.Health(p); health == survey.Unknown {
		t.Errorf("%s, %v: want what the objects say that can be seen", health, alerts)
	}
}

// testUndecodable has the cluster know a field as something that it is not here.
func testUndecodable(t *testing.T, c *controlplanetest.Cluster, admin *access.Cluster) {
	change := func(to string) {
		t.Helper()
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "connections.networking.liqo.io"}}
		controlplanetest.Edit(t, c, crd, func(crd *apiextensionsv1.CustomResourceDefinition) {
			spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			spec.Properties["type"] = apiextensionsv1.JSONSchemaProps{Type: to}
		})
	}
	change("integer")
	t.Cleanup(func() { change("string") })
	controlplanetest.Eventually(t, "an object of a newer version is accepted", func(context.Context) error {
		_, err := c.KubectlInput(`
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {name: newer, namespace: default}
spec: {type: 7, gatewayRef: {kind: GatewayClient, name: none}}`, "create", "-f", "-")
		return err
	})
	s, err := survey.Read(t.Context(), admin, survey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Peer("milan").Connection == nil || s.Unread("Connection") {
		t.Error("the other Connection is hidden")
	}
	if len(s.Gaps) != 1 || s.Gaps[0].What != "Connection default/newer" {
		t.Errorf("gaps %+v", s.Gaps)
	}
	if _, err := c.Kubectl("delete", "connection", "-n", "default", "newer"); err != nil {
		t.Error(err)
	}
}

// testManyNodes has more than one page of nodes.
func testManyNodes(t *testing.T, c *controlplanetest.Cluster, admin *access.Cluster) {
	const n = 620
	var wg sync.WaitGroup
	for worker := range 20 {
		wg.Go(func() {
			for i := worker; i < n; i += 20 {
				o := networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)}}
				o.Spec.Interface.Gateway.Name, o.Spec.Interface.Node.IP = "liqo.x", "10.80.0.9"
				if err := c.Client.Create(t.Context(), &o); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s, err := survey.Read(t.Context(), admin, survey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(s.Nodes); got != n+2 {
		t.Errorf("%d nodes, want %d", got, n+2)
	}
}
