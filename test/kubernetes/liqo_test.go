package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/release"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy/images"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/kubelab"
)

// A cluster in which Liqo runs, played by the programs of this project: under the names,
// in the namespace and in the release of Liqo's programs, with its templates' three
// containers, of which one works. What Liqo's own programs do otherwise, above all on
// the nodes, is tested where they are played more closely: TestTakeOver of admin/release
// and TestKernelTakeOver of test/e2e.

const (
	liqoTag = "v1.2.0"
	// ourController is the name of our controller, and of its account and roles.
	ourController   = "liqo-controller"
	liqosController = "liqo-controller-manager"
	// ourAgents is the namespace of our node agents. Liqo has none of its own for them.
	ourAgents = "liqo-fabric"
	pauses    = "localhost/pause:test"
)

// liqosKinds and liqosNames are those of what Liqo has as well, in its chart or, the MutatingAdmissionPolicy, as a webhook.
// The roles of its controller manager are three here.
var (
	liqosKinds = []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment", "DaemonSet",
		"WgGatewayServerTemplate", "WgGatewayClientTemplate", "VkOptionsTemplate", "RuntimeClass", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
	liqosNames = []string{ourController, ourController + "-authentication", ourController + "-offloading", "liqo-fabric", "liqo-gateway", "wireguard-server", "wireguard-client",
		"liqo-remote-controlplane", "liqo-virtual-kubelet-local", "liqo-virtual-kubelet-offloaded", "liqo-virtual-kubelet-remote", "liqo-virtual-kubelet-remote-clusterwide",
		"virtual-kubelet-default", "liqo", "pods.offloading.liqo.io"}
	liqosPrograms = []string{"controller", "fabric", "gateway", "virtualkubelet"}
)

// liqosIPAM is the program that gives out addresses. Here the controllers do.
const liqosIPAM = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqo-ipam, namespace: liqo}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-ipam, namespace: liqo, labels: {app.kubernetes.io/part-of: liqo, app.kubernetes.io/name: ipam, app.kubernetes.io/component: ipam}}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: ipam}}
  template:
    metadata: {labels: {app.kubernetes.io/name: ipam}}
    spec:
      serviceAccountName: liqo-ipam
      containers: [{name: ipam, image: "` + pauses + `", imagePullPolicy: Never}]
`

// installLiqo makes a cluster one in which Liqo runs. More is what its chart would be told, in words of ours.
func (w *world) installLiqo(t *testing.T, c *kubelab.Cluster, more ...string) {
	t.Helper()
	for _, n := range c.Nodes {
		for _, program := range liqosPrograms {
			if out, err := n.Host.Try("ctr", "-n", "k8s.io", "images", "tag", "--force", images.DefaultRegistry+"/"+program+":"+tag, liqosImage(program)); err != nil {
				t.Fatalf("%s: %v: %s", n.Name, err, out)
			}
		}
	}
	manifests, _ := w.liqoctl(t, reachableArgs(c, append(more, "--dry-run", "--include-crds", "--set", "controllerManager.replicas=1")...)...)
	crds, rest := []string{}, []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: liqo}\n", liqosIPAM}
	for _, document := range strings.Split("\n"+manifests, "\n---\n") {
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		if len(u.Object) == 0 || !asLiqo(u) {
			continue
		}
		b, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		if u.GetKind() == "CustomResourceDefinition" {
			crds = append(crds, string(b))
		} else {
			rest = append(rest, string(b))
		}
	}
	for _, documents := range [][]string{crds, rest} {
		if out, err := c.KubectlInput(strings.Join(documents, "---\n"), "apply", "--server-side", "-f", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if len(documents) == len(crds) {
			w.kubectl(t, c, "wait", "--for=condition=Established", "crd", "--all", "--timeout="+patience.String())
		}
	}
	w.kubectl(t, c, "rollout", "status", "-n", "liqo", "--timeout="+patience.String(), "deployment/"+liqosController)
	w.kubectl(t, c, "rollout", "status", "-n", "liqo", "--timeout="+patience.String(), "daemonset/liqo-fabric")
	w.kubectl(t, c, "wait", "-n", "liqo", "--for=create", "--timeout="+patience.String(), "configmap/liqo-clusterid-configmap")
}

func liqosImage(program string) string { return "docker.io/liqo/" + program + ":" + liqoTag }

// asLiqo makes an object of ours one of Liqo's. It tells whether Liqo has one.
func asLiqo(u *unstructured.Unstructured) bool {
	annotations := u.GetAnnotations()
	if u.GetKind() == "CustomResourceDefinition" {
		delete(annotations, release.AnnotationVersion)
		u.SetAnnotations(annotations)
		return !strings.Contains(u.GetName(), "services.networking") // by which Sluice exchanges Services
	}
	if !slices.Contains(liqosKinds, u.GetKind()) || !slices.Contains(liqosNames, u.GetName()) {
		return false
	}
	u.Object = renamed(u.Object).(map[string]any)
	u.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "liqo", "meta.helm.sh/release-namespace": "liqo"})
	switch {
	case strings.HasPrefix(u.GetKind(), "WgGateway"):
		addContainers(u)
	case u.GetKind() == "DaemonSet":
		u.SetLabels(map[string]string{"app.kubernetes.io/part-of": "liqo", "app.kubernetes.io/name": "fabric", "app.kubernetes.io/component": "networking"})
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			delete(c.(map[string]any), "livenessProbe") // see agentsImage
			delete(c.(map[string]any), "readinessProbe")
		}
		_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
	}
	return true
}

// agentsImage sets the image of Liqo's agents. They cannot run while those of Sluice clean
// up, as they do on the way back: being the same program, each would undo what the other does.
func (w *world) agentsImage(t *testing.T, c *kubelab.Cluster, image string) {
	t.Helper()
	w.kubectl(t, c, "-n", "liqo", "set", "image", "daemonset/liqo-fabric", "fabric="+image)
}

// renamed has Liqo's names, namespaces and images in the place of ours.
func renamed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if k == "namespace" && e == ourAgents {
				v[k] = "liqo"
				continue
			}
			v[k] = renamed(e)
		}
	case []any:
		for i := range v {
			v[i] = renamed(v[i])
		}
	case string:
		for _, program := range liqosPrograms {
			if v == images.DefaultRegistry+"/"+program+":"+tag {
				return liqosImage(program)
			}
		}
		if v == "--leader-election" {
			return "--leader-election=false" // the Lease has the name of ours
		}
		if v == ourController {
			return liqosController
		}
	}
	return v
}

// addContainers gives the pods of a template the containers of Liqo's.
func addContainers(u *unstructured.Unstructured) {
	path := []string{"spec", "template", "spec", "deployment", "spec", "template", "spec", "containers"}
	containers, _, _ := unstructured.NestedSlice(u.Object, path...)
	for _, name := range []string{"wireguard", "geneve"} {
		c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Container{
			Name: name, Image: pauses, ImagePullPolicy: corev1.PullNever,
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		})
		if err != nil {
			panic(fmt.Sprint("a container: ", err))
		}
		containers = append(containers, c)
	}
	_ = unstructured.SetNestedSlice(u.Object, containers, path...)
}

// playAgents makes what Liqo's controllers make of an InternalFabric for the nodes, and
// has Liqo's agents say that they have applied it, until the test ends. They run as ours
// do, which read no such object.
func (w *world) playAgents(t *testing.T, c *kubelab.Cluster) {
	t.Helper()
	route := &networkingv1beta1.RouteConfiguration{ObjectMeta: metav1.ObjectMeta{
		Namespace: "liqo-tenant-" + w.a.Name, Name: w.a.Name + "-node-gw",
		Labels: map[string]string{networkingv1beta1.LabelRouteCategory: networkingv1beta1.CategoryFabric, networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue},
	}}
	route.Spec.Table.Name = route.Name
	route.Spec.Table.Rules = []networkingv1beta1.RoutingRule{{Dst: "10.71.0.0/16", Routes: []networkingv1beta1.Route{{Dst: "10.71.0.0/16", Dev: "liqo.tunnel"}}}}
	if err := c.Client().Create(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Repeat(t, time.Second, func(ctx context.Context) {
		var agents corev1.PodList
		if c.Client().List(ctx, &agents, client.InNamespace("liqo"), client.MatchingLabels{"app.kubernetes.io/name": "liqo-fabric"}) != nil {
			return // the API server is not missed for long
		}
		var conditions []networkingv1beta1.HostCondition
		for _, p := range agents.Items {
			if ready(&p) {
				conditions = append(conditions, networkingv1beta1.HostCondition{Host: p.Name, Type: networkingv1beta1.HostConditionApplied, Status: metav1.ConditionTrue})
			}
		}
		before := route.DeepCopy()
		if route.Status.Conditions = conditions; !equality.Semantic.DeepEqual(before.Status, route.Status) {
			_ = c.Client().Status().Patch(ctx, route, client.MergeFrom(before))
		}
	})
}
