package peering_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/virtualkubelet"
)

// offloads has a side make identities and virtual nodes.
func offloads(t *testing.T) func(*controlplanetest.Cluster, *manager.Options) {
	authenticates := authenticating(t)
	return func(c *controlplanetest.Cluster, o *manager.Options) {
		authenticates(c, o)
		for _, file := range []string{"offloading.yaml", "scheduling.yaml", "virtual-kubelet.yaml"} {
			c.ApplyManifest(t, "offloading", file)
		}
		o.Offloading = &offloading.Options{PodSecurity: "baseline", MaxNamespaces: 10, LimitsEnforcement: offloadingv1beta1.NoLimitsEnforcement}
	}
}

// playVirtualKubelet runs what the pods of the Deployment virtual-kubelet would, whenever there is one, until the test ends.
func (s *side) playVirtualKubelet(t *testing.T, peer string) {
	t.Helper()
	namespace := "liqo-tenant-" + peer
	var mu sync.Mutex
	var of string // the service account that it runs as
	stop := func() {}
	t.Cleanup(func() { mu.Lock(); defer mu.Unlock(); stop() })
	s.Follow(t, func(ctx context.Context) {
		account := new(corev1.ServiceAccount)
		if s.Get(ctx, namespace, "virtual-kubelet", account) != nil || string(account.UID) == of {
			return
		}
		config := rest.CopyConfig(s.Config)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + namespace + ":virtual-kubelet",
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		}
		k, err := virtualkubelet.New(config, virtualkubelet.Options{
			ClusterID: s.id, PeerID: peer, TenantNamespace: namespace, LiqoNamespace: controlplanetest.LiqoNamespace,
			Address: netip.MustParseAddr("127.0.0.1"), Port: 10250, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Errorf("the virtual kubelet: %v", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		stop()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		of, stop = string(account.UID), func() { cancel(); <-done }
	}, new(corev1.ServiceAccount))
}

// offloaded is a pod for the virtual node of milan.
func offloaded(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{
		NodeName: "milan", Containers: []corev1.Container{{Name: "app", Image: "app"}}, TerminationGracePeriodSeconds: new(int64(1)),
		Tolerations: []corev1.Toleration{{Key: offloadingv1beta1.TaintNotAllowed, Operator: corev1.TolerationOpExists}},
	}}
}

// runs waits until a pod of the namespace shop runs.
func (s *side) runs(t *testing.T, namespace, name string) {
	t.Helper()
	controlplanetest.Eventually(t, fmt.Sprintf("pod %s runs in %s", name, s.id), func(ctx context.Context) error {
		p := new(corev1.Pod)
		if err := s.Get(ctx, namespace, name, p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
}

// runsWhere compares the only pod that runs elsewhere, or is from elsewhere.
func (s *side) runsWhere(t *testing.T, want string) {
	t.Helper()
	pods, err := survey.OffloadedPods(t.Context(), s.access, "")
	if err != nil || len(pods) != 1 {
		t.Fatalf("%v, %+v", err, pods)
	}
	p := pods[0]
	got := fmt.Sprintf("%s/%s from %s in %s, node %s, there %s", p.Namespace, p.Name, p.From, p.In, strings.TrimRight(p.Node, "12"), p.OtherNamespace)
	if got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// absent fails if there is an object.
func (s *side) absent(t *testing.T, o client.Object) {
	t.Helper()
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		t.Errorf("%T %s is in %s: %v", o, o.GetName(), s.id, err)
	}
}

// TestOffload peers two clusters with all the defaults, lets pods of one run in the other, and takes it all back.
func TestOffload(t *testing.T) {
	t.Parallel()
	rome, milan := startSide(t, access.Local, "rome", offloads(t)), startSide(t, access.Remote, "milan", offloads(t))
	rome.play(t, networkingv1beta1.Connected)
	milan.play(t, networkingv1beta1.Connected)
	ctx := t.Context()
	rome.Namespace(t, "shop", nil)
	shop := func() *offloadingv1beta1.NamespaceOffloading {
		return peering.NewNamespaceOffloading(peering.Metadata{Namespace: "shop"}, offloadingv1beta1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloadingv1beta1.DefaultNameMappingStrategy, PodOffloadingStrategy: offloadingv1beta1.RemotePodOffloadingStrategy,
			ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}},
		})
	}
	t.Run("without a virtual node", func(t *testing.T) {
		var s told
		if err := peering.Offload(ctx, rome.access, shop(), options(), s.tell); err != nil {
			t.Fatal(err)
		}
		s.want(t, `
(local) Offloading of namespace "shop" correctly enabled
WARN (local) Offloading completed, but no cluster was selected: there is no virtual node: create one with 'liqoctl peer' or 'liqoctl create virtualnode'`)
		s = told{}
		if err := peering.Unoffload(ctx, rome.access, "shop", options(), s.tell); err != nil {
			t.Fatal(err)
		}
		s.want(t, `
(local) Offloading of namespace "shop" correctly disabled
(local) Unoffloading completed successfully`)
	})
	before, err := objectsOf(rome, milan)
	if err != nil {
		t.Fatal(err)
	}
	rome.playVirtualKubelet(t, "milan")

	o := peering.PeerOptions{Options: options(), Slice: &peering.Slice{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}
	if err := peering.Peer(ctx, rome.access, milan.access, o, nil); err != nil {
		t.Fatal(err)
	}
	rome.absent(t, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}})
	o.Slice.VirtualNode = true
	for range 2 { // it may be repeated
		var s told
		if err := peering.Peer(ctx, rome.access, milan.access, o, s.tell); err != nil {
			t.Fatal(err)
		}
		if got, want := s.lines[max(0, len(s.lines)-2):], []string{"(local) ResourceSlice resources: Accepted", "(local) Node milan is Ready"}; !slices.Equal(got, want) {
			t.Errorf("the last lines are %q, want %q", got, want)
		}
	}
	t.Run("another virtual node", func(t *testing.T) { testVirtualNode(t, rome) })

	for range 2 {
		var s told
		if err := peering.Offload(ctx, rome.access, shop(), options(), s.tell); err != nil {
			t.Fatal(err)
		}
		s.want(t, `
(local) Offloading of namespace "shop" correctly enabled
(local) Namespace "shop" is offloaded to cluster milan, as "shop-rome"
(local) Offloading completed successfully`)
	}
	rome.Create(t, offloaded("first"))
	rome.runs(t, "shop", "first")
	milan.runs(t, "shop-rome", "first")
	rome.runsWhere(t, "shop/first from rome in milan, node milan, there shop-rome")
	milan.runsWhere(t, "shop-rome/first from rome in milan, node node-, there shop")
	t.Run("a pod that cannot run there", func(t *testing.T) { testDoctor(t, rome) })
	t.Run("a name that cannot be changed", func(t *testing.T) {
		other := shop()
		other.Spec.NamespaceMappingStrategy = offloadingv1beta1.EnforceSameNameMappingStrategy
		if err := peering.Offload(ctx, rome.access, other, options(), nil); err == nil || !strings.Contains(err.Error(), "cannot be changed") {
			t.Error(err)
		}
	})
	t.Run("unoffload", func(t *testing.T) {
		waits := offloaded("waits")
		waits.Spec.NodeName, waits.Spec.NodeSelector = "", map[string]string{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual, corev1.LabelHostname: "none"}
		rome.Create(t, waits)
		defer rome.Delete(t, waits)
		what, err := peering.Unoffloading(ctx, rome.access, []string{"shop", "default"})
		if err != nil || len(what) != 3 || what[1] != "  cluster milan deletes its namespace shop-rome, with everything in it" {
			t.Errorf("%v, the user is asked about %q", err, what)
		}
		var s told
		if err := peering.Unoffload(ctx, rome.access, "shop", options(), s.tell); err != nil {
			t.Fatal(err)
		}
		if last := s.lines[len(s.lines)-1]; !strings.HasPrefix(last, "WARN (local) 1 of the namespace's pods stay Pending, as only a virtual node could take them, such as Pod waits: ") {
			t.Errorf("it tells %q", s.lines)
		}
		milan.absent(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}})
	})
	t.Run("a name that is taken", func(t *testing.T) {
		taken := shop()
		taken.Spec.NamespaceMappingStrategy, taken.Spec.RemoteNamespaceName = offloadingv1beta1.SelectedNameMappingStrategy, "default"
		for _, namespace := range []string{controlplanetest.LiqoNamespace, "kube-system", "liqo-tenant-milan"} {
			kept := peering.NewNamespaceOffloading(peering.Metadata{Namespace: namespace}, offloadingv1beta1.NamespaceOffloadingSpec{})
			if err := peering.Offload(ctx, rome.access, kept, options(), nil); err == nil || !strings.Contains(err.Error(), namespace+" is never offloaded") {
				t.Errorf("%s: %v", namespace, err)
			}
			rome.absent(t, kept)
		}
		if err := peering.Offload(ctx, rome.access, taken, options(), nil); err == nil || !strings.Contains(err.Error(), "AllFailed: cluster milan: namespace default of the cluster cannot be created") {
			t.Error(err)
		}
		if err := peering.Unoffload(ctx, rome.access, "shop", options(), nil); err != nil {
			t.Fatal(err)
		}
	})

	if err := peering.Offload(ctx, rome.access, shop(), options(), nil); err != nil {
		t.Fatal(err)
	}
	rome.Create(t, offloaded("second"))
	milan.runs(t, "shop-rome", "second")
	end := o.Options
	end.DeleteNamespaces = true
	var s told
	if err := peering.Unpeer(ctx, rome.access, milan.access, end, s.tell); err != nil {
		t.Fatal(err)
	}
	s.want(t, strings.Join(append([]string{"(local) All virtualnodes deleted", "(local) All resourceslices deleted"}, s.lines[min(2, len(s.lines)):]...), "\n"))
	rome.absent(t, offloaded("second"))
	rome.absent(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}})
	milan.absent(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}})
	t.Run("a provider that is gone for good", func(t *testing.T) { testForceOffloaded(t, rome, milan, o) })
	rome.Delete(t, shop())
	before = append(before, "rome: Secret liqo/authentication-keys")
	slices.Sort(before)
	controlplanetest.Eventually(t, "both clusters are as before", func(context.Context) error {
		now, err := objectsOf(rome, milan)
		if diff := cmp.Diff(before, now); err == nil && diff != "" {
			err = errors.New("(-before +after):\n" + diff)
		}
		return err
	})
}

// testForceOffloaded peers again; then each of the clusters forgets the other one, which it does not reach. Nobody can end
// the pods there.
func testForceOffloaded(t *testing.T, rome, milan *side, o peering.PeerOptions) {
	ctx := t.Context()
	if err := peering.Peer(ctx, rome.access, milan.access, o, nil); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the namespace is offloaded again", func(ctx context.Context) error {
		return milan.Get(ctx, "", "shop-rome", new(corev1.Namespace))
	})
	p := offloaded("third")
	rome.Create(t, p)
	milan.runs(t, "shop-rome", "third")
	for s, peer := range map[*side]string{rome: "milan", milan: "rome"} {
		end := o.Options
		end.RemoteClusterID, end.DeleteNamespaces = peer, true
		if err := peering.Unpeer(ctx, s.access, nil, end, nil); err != nil {
			t.Fatalf("%s: %v", s.id, err)
		}
		s.absent(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + peer}})
	}
	milan.absent(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}})
	rome.Gone(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}})
	// Kubernetes removes the pods of a Node that is gone after a minute or so.
	if err := rome.Client.Delete(ctx, p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// testDoctor has the doctor tell why a pod stays Pending.
func testDoctor(t *testing.T, rome *side) {
	ctx := t.Context()
	p := offloaded("refused")
	p.Spec.HostNetwork = true
	rome.Create(t, p)
	controlplanetest.Eventually(t, "the pod is refused", func(ctx context.Context) error {
		if err := rome.Get(ctx, "shop", "refused", p); err != nil {
			return err
		}
		if p.Status.Reason != virtualkubelet.ReasonFailedReflection {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	report, err := doctor.Examine(ctx, doctor.Options{Clusters: []doctor.Target{{Cluster: rome.access}}, Peer: "milan"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]doctor.Finding{}
	for _, f := range report.Findings {
		told[f.Check] = f
	}
	if f := told["virtual-nodes"]; f.Status != doctor.OK {
		t.Errorf("%+v", f)
	}
	if f := told["offloaded-pods"]; f.Status != doctor.Failed || f.Object != "Pod shop/refused" || !strings.Contains(f.Cause, "hostNetwork") || f.Fix == "" {
		t.Errorf("%+v", f)
	}
	rome.Delete(t, p)
}

// testVirtualNode makes another virtual node of the same slice, and deletes both; then the slice asks for none.
func testVirtualNode(t *testing.T, rome *side) {
	ctx := t.Context()
	m := peering.Metadata{Name: "more", RemoteClusterID: "milan"}
	spec := offloadingv1beta1.VirtualNodeSpec{CreateNode: new(true), Labels: map[string]string{"tier": "second"}}
	if err := peering.CreateVirtualNode(ctx, rome.access, m, spec, "nothing", options(), nil); err == nil || !strings.Contains(err.Error(), "there is no ResourceSlice liqo-tenant-milan/nothing") {
		t.Error(err)
	}
	machine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine"}}
	rome.Create(t, machine)
	err := peering.CreateVirtualNode(ctx, rome.access, peering.Metadata{Name: "machine", RemoteClusterID: "milan"}, spec, "milan", options(), nil)
	if err == nil || !strings.HasSuffix(err.Error(), "there is a Node machine, and it is not a virtual node for cluster milan; nothing was changed: choose another name for the virtual node") {
		t.Error(err)
	}
	rome.absent(t, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "machine"}})
	slice, of := peering.Slice{VirtualNode: true}, peering.Metadata{Name: "machine", RemoteClusterID: "milan"}
	err = peering.Request(ctx, rome.access, of, slice, options(), nil)
	if err == nil || !strings.HasSuffix(err.Error(), "there is a Node machine, and it is not a virtual node for cluster milan; nothing was changed: choose another name, or use --no-virtual-node") {
		t.Error(err)
	}
	unwanted := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "machine"}}
	rome.absent(t, unwanted)
	var s told
	if err := peering.Request(ctx, rome.access, of, peering.Slice{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}, options(), s.tell); err != nil {
		t.Error(err)
	}
	if want := "WARN (local) A virtual node for ResourceSlice machine needs another name: there is a Node machine, and it is not a virtual node for cluster milan"; s.lines[0] != want {
		t.Errorf("it tells %q", s.lines)
	}
	rome.Delete(t, unwanted)
	rome.Delete(t, machine)
	for range 2 {
		var s told
		if err := peering.CreateVirtualNode(ctx, rome.access, m, spec, "milan", options(), s.tell); err != nil {
			t.Fatal(err)
		}
		s.want(t, "(local) Virtual node created\n(local) Node more is Ready")
	}
	n := new(corev1.Node)
	if err := rome.Get(ctx, "", "more", n); err != nil || n.Labels["tier"] != "second" || n.Status.Capacity.Cpu().String() != "2" {
		t.Errorf("%v: %v, %v", err, n.Labels, n.Status.Capacity)
	}
	if err := peering.DeleteVirtualNode(ctx, rome.access, "fewer", options(), nil); err == nil || !strings.Contains(err.Error(), `there is no VirtualNode "fewer"; existing ones: milan, more`) {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"more":  "(local) Virtual node deleted",
		"milan": "WARN (local) ResourceSlice milan no longer asks for the virtual node: its annotation liqo.io/create-virtual-node is now false\n(local) Virtual node deleted",
	} {
		var s told
		if err := peering.DeleteVirtualNode(ctx, rome.access, name, options(), s.tell); err != nil {
			t.Fatal(err)
		}
		s.want(t, want)
		rome.absent(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	if err := peering.Request(ctx, rome.access, peering.Metadata{Name: "milan", RemoteClusterID: "milan"}, slice, options(), nil); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the slice has its virtual node again", func(ctx context.Context) error { return rome.Get(ctx, "", "milan", n) })
}

// TestOffloadWithout: where offloading is off nothing is changed, and what enables it is said.
func TestOffloadWithout(t *testing.T) {
	t.Parallel()
	rome, milan := startSide(t, access.Local, "rome", authenticating(t)), startSide(t, access.Remote, "milan", offloads(t))
	rome.play(t, networkingv1beta1.Connected)
	milan.play(t, networkingv1beta1.Connected)
	ctx := t.Context()
	const enable = "liqoctl install --set authentication.enabled=true --set offloading.enabled=true --kubeconfig=/of/rome"
	if err := peering.Offload(ctx, rome.access, peering.NewNamespaceOffloading(peering.Metadata{Namespace: "default"}, offloadingv1beta1.NamespaceOffloadingSpec{}), options(), nil); err == nil || !strings.Contains(err.Error(), enable) {
		t.Error(err)
	}
	o := peering.PeerOptions{Options: options(), Slice: &peering.Slice{VirtualNode: true}, NodeRequired: true}
	if err := peering.Peer(ctx, rome.access, milan.access, o, nil); err == nil || !strings.Contains(err.Error(), enable) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Error(err)
	}
	rome.nothing(t, "configurations,tenants,identities")
	o.NodeRequired = false
	var s told
	if err := peering.Peer(ctx, rome.access, milan.access, o, s.tell); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"WARN () Only the resources are granted: there is no virtual node, and no pod of rome runs in milan. This requires offloading in both clusters; enable it with the following commands, then run this command again:",
		"WARN (local) " + enable,
	}
	if got := s.lines[max(0, len(s.lines)-2):]; !slices.Equal(got, want) {
		t.Errorf("the last lines are %q, want %q", got, want)
	}
	s = told{}
	if err := peering.Unpeer(ctx, rome.access, milan.access, options(), s.tell); err != nil {
		t.Fatal(err)
	}
	if s.lines[0] != "(local) No virtualnodes found" {
		t.Errorf("told %q", s.lines)
	}
}
