package v1beta1_test

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	v1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const fabricNamespace, fabricAccount = "liqo-fabric", "liqo-fabric"

// TestFabricManifests installs the node agent in a real API server, which has no
// node, and judges what its pods are and what they may do.
func TestFabricManifests(t *testing.T) {
	c := controlplanetest.Start(t)
	agent, cleanup := manifests(t, "fabric"), manifests(t, "fabric-cleanup")
	// A second time is what an upgrade does.
	for _, folders := range [][]fs.FS{{agent, cleanup}, {deploy.CRDs(), deploy.Manifests(), agent, cleanup}} {
		if err := c.Install(folders...); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("privileges of the pods", func(t *testing.T) {
		for _, name := range []string{"fabric", "fabric-cleanup"} {
			checkPrivileges(t, daemonSet(t, name))
		}
	})
	t.Run("admission of the pods", func(t *testing.T) { checkPodSecurity(t, c) })
	t.Run("role", func(t *testing.T) { checkFabricRole(t, c) })
	t.Run("own status only", func(t *testing.T) { checkOwnStatus(t, c) })
}

// manifests are those of a folder of deploy/manifests.
func manifests(t *testing.T, folder string) fs.FS {
	t.Helper()
	f, err := fs.Sub(deploy.Manifests(), folder)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func daemonSet(t *testing.T, name string) *appsv1.DaemonSet {
	t.Helper()
	file := name + ".yaml"
	b, err := fs.ReadFile(manifests(t, name), file)
	if err != nil {
		t.Fatal(err)
	}
	ds := new(appsv1.DaemonSet)
	if err := yaml.UnmarshalStrict(b, ds); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return ds
}

// checkPrivileges holds the pods to the least that lets them do their work.
func checkPrivileges(t *testing.T, ds *appsv1.DaemonSet) {
	t.Helper()
	pod := ds.Spec.Template.Spec
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.InitContainers) > 0 || len(pod.Containers) != 1 {
		t.Errorf("%s: wants the node's network and nothing else of the node, in one container", ds.Name)
	}
	want := &corev1.SecurityContext{
		Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
	}
	if d := cmp.Diff(want, pod.Containers[0].SecurityContext); d != "" {
		t.Errorf("%s: security context (-want +got):\n%s", ds.Name, d)
	}
	wantPod := &corev1.PodSecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if d := cmp.Diff(wantPod, pod.SecurityContext); d != "" {
		t.Errorf("%s: security context of the pod (-want +got):\n%s", ds.Name, d)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil && v.HostPath.Path != "/dev/net" {
			t.Errorf("%s: mounts %s of the node", ds.Name, v.HostPath.Path)
		}
	}
	// Every node that is one, whatever keeps other pods away from it.
	if d := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); d != "" {
		t.Errorf("%s: tolerations (-want +got):\n%s", ds.Name, d)
	}
	virtual := corev1.NodeSelectorRequirement{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}}
	for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return cmp.Equal(r, virtual) }) {
			t.Errorf("%s: a virtual node would get one", ds.Name)
		}
	}
}

// podOf is the pod that a DaemonSet makes for a node.
func podOf(ds *appsv1.DaemonSet, namespace, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *ds.Spec.Template.ObjectMeta.DeepCopy(), Spec: *ds.Spec.Template.Spec.DeepCopy()}
	p.Name, p.Namespace, p.Spec.NodeName = ds.Name+"-"+node, namespace, node
	return p
}

// checkPodSecurity: the namespace lets the pods in, and a namespace without its
// label would not.
func checkPodSecurity(t *testing.T, c *controlplanetest.Cluster) {
	ctx := t.Context()
	if err := c.CreateNamespace(fabricNamespace, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateNamespace("baseline", map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fabric", "fabric-cleanup"} {
		ds := daemonSet(t, name)
		if err := c.Client.Create(ctx, podOf(ds, fabricNamespace, "n"), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p := podOf(ds, "baseline", "n")
		p.Spec.ServiceAccountName = ""
		if err := c.Client.Create(ctx, p, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s in a namespace of level baseline: %v", name, err)
		}
	}
}

// checkFabricRole asks the API server for everything that the account may do.
func checkFabricRole(t *testing.T, c *controlplanetest.Cluster) {
	clients, err := kubernetes.NewForConfig(c.ServiceAccount(fabricNamespace, fabricAccount))
	if err != nil {
		t.Fatal(err)
	}
	rules := func(clients kubernetes.Interface, namespace string) (all []string) {
		r, err := clients.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		if err != nil || r.Status.Incomplete {
			t.Fatalf("rules in %s: %v, incomplete: %v", namespace, err, r.Status.Incomplete)
		}
		for _, rule := range r.Status.ResourceRules {
			for _, resource := range rule.Resources {
				for _, group := range rule.APIGroups {
					for _, verb := range rule.Verbs {
						all = append(all, fmt.Sprintf("%s %s/%s %v", verb, group, resource, rule.ResourceNames))
					}
				}
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	// What every account may.
	anybody, err := kubernetes.NewForConfig(c.ServiceAccount(fabricNamespace, "default"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"patch networking.liqo.io/internalnodes/status []"}
	for _, verb := range []string{"get", "list", "watch"} {
		for _, resource := range []string{"internalfabrics", "internalnodes", "genevetunnels", "configurations", "gatewayservers", "gatewayclients"} {
			want = append(want, verb+" networking.liqo.io/"+resource+" []")
		}
		for _, resource := range []string{"networks", "ips"} {
			want = append(want, verb+" ipam.liqo.io/"+resource+" []")
		}
	}
	slices.Sort(want)
	for _, namespace := range []string{fabricNamespace, "liqo", "default"} {
		base := rules(anybody, namespace)
		got := slices.DeleteFunc(rules(clients, namespace), func(s string) bool { return slices.Contains(base, s) })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("in %s (-want +got):\n%s", namespace, d)
		}
	}
}

// checkOwnStatus writes as the agents of two nodes.
func checkOwnStatus(t *testing.T, c *controlplanetest.Cluster) {
	ctx := t.Context()
	ds := daemonSet(t, "fabric")
	agents := map[string]*rest.Config{"nobody": c.ServiceAccount(fabricNamespace, fabricAccount)}
	for i, node := range []string{"worker-1", "worker-2"} {
		c.Apply(fmt.Sprintf("apiVersion: networking.liqo.io/v1beta1\nkind: InternalNode\nmetadata: {name: %s}\nspec: {interface: {gateway: {name: liqo.%d}, node: {ip: 10.80.0.%d}}}\n", node, i, i+1))
		agents[node] = boundToken(t, c, podOf(ds, fabricNamespace, node))
	}
	report := func(agent, node, local string) error {
		w, err := client.New(agents[agent], client.Options{Scheme: c.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		n := &v1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		patch := fmt.Sprintf(`{"status": {"nodeIP": {"local": %q}, "conditions": [{"type": %q, "status": "True", "reason": %q, "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`,
			local, v1beta1.ConditionTunnelsReady, v1beta1.ReasonTunnelsReady)
		return w.Status().Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	controlplanetest.Eventually(t, "the policy is in force", func(context.Context) error {
		if err := report("worker-2", "worker-1", "192.0.2.66"); err == nil {
			return fmt.Errorf("worker-2 reported for worker-1")
		}
		return nil
	})
	for _, test := range []struct{ agent, node, refused string }{
		{"worker-1", "worker-1", ""},
		{"worker-2", "worker-2", ""},
		{"worker-1", "worker-2", "the agent of node worker-1 may report on the InternalNode of that node only"},
		{"nobody", "worker-1", "the token does not say on which node its pod runs"},
	} {
		err := report(test.agent, test.node, "10.243.1.1")
		if test.refused == "" && err != nil {
			t.Errorf("%s reports for %s: %v", test.agent, test.node, err)
		}
		if test.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s reports for %s: %v, want %q", test.agent, test.node, err, test.refused)
		}
	}
	// Only this account is judged.
	if err := c.Client.Status().Patch(ctx, &v1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}},
		client.RawPatch(types.MergePatchType, []byte(`{"status": {"nodeIP": {"remote": "192.0.2.22"}}}`))); err != nil {
		t.Errorf("administrator: %v", err)
	}
	readsAll(t, c, agents["worker-1"])
}

// readsAll lists what an agent needs, and that it cannot change any of it.
func readsAll(t *testing.T, c *controlplanetest.Cluster, agent *rest.Config) {
	t.Helper()
	r, err := client.New(agent, client.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{
		&v1beta1.InternalFabricList{}, &v1beta1.InternalNodeList{}, &v1beta1.GeneveTunnelList{}, &v1beta1.ConfigurationList{},
		&v1beta1.GatewayServerList{}, &v1beta1.GatewayClientList{}, &ipamv1alpha1.NetworkList{}, &ipamv1alpha1.IPList{},
	} {
		if err := r.List(t.Context(), list); err != nil {
			t.Errorf("%T: %v", list, err)
		}
	}
	n := &v1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	if err := r.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`))); !apierrors.IsForbidden(err) {
		t.Errorf("the agent labels its InternalNode: %v", err)
	}
	if err := r.Delete(t.Context(), n); !apierrors.IsForbidden(err) {
		t.Errorf("the agent deletes its InternalNode: %v", err)
	}
	if err := r.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
		t.Errorf("the agent lists Secrets: %v", err)
	}
}

// boundToken is the token that the kubelet of the pod's node would mount.
func boundToken(t *testing.T, c *controlplanetest.Cluster, p *corev1.Pod) *rest.Config {
	t.Helper()
	if err := c.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	token, err := c.Clientset.CoreV1().ServiceAccounts(p.Namespace).CreateToken(t.Context(), p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(c.Config)
	cfg.BearerToken = token.Status.Token
	return cfg
}
