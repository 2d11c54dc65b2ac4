package scale

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	amount "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// asking is a cluster that each of its peers asks for resources, and that asks each of them for as many.
type asking struct {
	*world
	peers, slices int
	// others is the API server of all providers. Nobody there but the test decides.
	others *world
}

// TestSlices measures the controllers of a cluster that is provider and consumer of many others.
func TestSlices(t *testing.T) {
	if !*measure {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -scale runs it")
	}
	newAsking(t, *peers, *slicesOfPeer).measure()
}

// TestFewSlices is the same with few, and judges what does not depend on the machine.
func TestFewSlices(t *testing.T) {
	a := newAsking(t, 3, 2)
	first, again, sent := a.measure()
	// One that is granted: request of a certificate, approval, its end, Secret; mark and status. One that is sent: what
	// completes it, and the answer. And a share of what there is once for each peer.
	const most = 10
	if each := float64(first.writes()) / float64(2*a.peers*a.slices); each > most {
		t.Errorf("%.1f writes for each slice, want at most %d: %v", each, most, first.Writes)
	}
	if again.writes() != 0 || sent != 0 {
		t.Errorf("the second start writes %d times here, %v, and %d times at providers", again.writes(), again.Writes, sent)
	}
}

func newAsking(t *testing.T, peers, slices int) *asking {
	a := &asking{world: newAuthenticating(t), peers: peers, slices: slices, others: newAuthenticating(t)}
	kubeconfig := credentialtest.TokenKubeconfig(a.others.account("consumer"))
	key := credentialtest.Key(t)
	a.many("peers", peers, func(i int) error { return a.peer(i, key, kubeconfig) })
	return a
}

// newAuthenticating is a cluster in which authentication is enabled.
func newAuthenticating(t *testing.T) *world {
	w := newWorld(t)
	w.ApplyManifest(t, "authentication", "authentication.yaml")
	w.must(w.Client.Create(w.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": clusterID},
	}))
	return w
}

// account is how a new service account reaches the cluster.
func (w *world) account(name string) *rest.Config {
	w.t.Helper()
	w.must(w.Client.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}))
	cfg := w.ServiceAccount("default", name)
	cfg.QPS = -1
	return cfg
}

func peerOf(i int) (id, namespace string) {
	id = fmt.Sprintf("cluster-%04d", i)
	return id, "liqo-tenant-" + id
}

func peering(id string, more ...string) map[string]string {
	l := map[string]string{networkingv1beta1.LabelRemoteClusterID: id}
	for i := 0; i < len(more); i += 2 {
		l[more[i]] = more[i+1]
	}
	return l
}

// bound is the RoleBinding of a consumer.
func bound(namespace, consumer string, s rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "consumer", Labels: peering(consumer)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: authv1beta1.RemoteControlPlaneRole}, Subjects: []rbacv1.Subject{s},
	}
}

// tenantOf lets a consumer ask.
func tenantOf(id, namespace string) *authv1beta1.Tenant {
	return &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id, Labels: peering(id)},
		Spec:       authv1beta1.TenantSpec{ClusterID: authv1beta1.ClusterID(id), AuthzPolicy: authv1beta1.TolerateNoHandshake},
	}
}

// identityFor is the identity of this cluster at a provider, in the namespace of the same name.
func identityFor(id, namespace string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "identity", Labels: peering(id, authv1beta1.LabelIdentityType, string(authv1beta1.ControlPlaneIdentity)),
			Annotations: map[string]string{authv1beta1.AnnotationRemoteTenantNamespace: namespace},
		},
		Data: map[string][]byte{authv1beta1.KubeconfigKey: kubeconfig},
	}
}

func oneCPU() authv1beta1.ResourceSliceSpec {
	return authv1beta1.ResourceSliceSpec{Class: authv1beta1.SliceClassDefault, Resources: corev1.ResourceList{corev1.ResourceCPU: amount.MustParse("1")}}
}

// copiedSlice is what a consumer asks this cluster for.
func copiedSlice(name, consumer, namespace string, key credentials.Key) (*authv1beta1.ResourceSlice, error) {
	s := &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: peering(consumer, authv1beta1.LabelReplicated, "true", authv1beta1.LabelReplicationOrigin, consumer)},
		Spec:       oneCPU(),
	}
	s.Spec.ConsumerClusterID, s.Spec.ProviderClusterID = new(authv1beta1.ClusterID(consumer)), new(authv1beta1.ClusterID(clusterID))
	var err error
	s.Spec.CSR, err = key.Request(credentials.SliceSubject(name, consumer))
	return s, err
}

// sentSlice is what this cluster asks a provider for.
func sentSlice(name, provider, namespace string) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: peering(provider, authv1beta1.LabelReplication, "true", authv1beta1.LabelReplicationDestination, provider)},
		Spec:       oneCPU(),
	}
}

// peer makes all that there is of one peering in both roles: a Tenant and copies of its slices, an identity and slices
// for it.
func (a *asking) peer(i int, key credentials.Key, kubeconfig []byte) error {
	id, ns := peerOf(i)
	if err := a.CreateNamespace(ns, peering(id, networkingv1beta1.LabelTenantNamespace, "true")); err != nil {
		return err
	}
	if err := a.others.CreateNamespace(ns, nil); err != nil {
		return err
	}
	objects := []client.Object{
		bound(ns, id, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: id}),
		tenantOf(id, ns), identityFor(id, ns, kubeconfig),
	}
	for n := range a.slices {
		copied, err := copiedSlice(fmt.Sprintf("in-%d", n), id, ns, key)
		if err != nil {
			return err
		}
		objects = append(objects, copied, sentSlice(fmt.Sprintf("out-%d", n), id, ns))
	}
	for _, o := range objects {
		if err := a.Client.Create(a.ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return a.others.Client.Create(a.ctx, bound(ns, clusterID, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "consumer"}))
}

// grant accepts, in place of all providers that the cluster is, what is copied to it.
func (w *world) grant() error {
	var list authv1beta1.ResourceSliceList
	if err := w.Client.List(w.ctx, &list); err != nil {
		return err
	}
	accepted := `{"status":{"conditions":[{"type":"Authentication","status":"Accepted"},{"type":"Resources","status":"Accepted"}],"resources":{"cpu":"1"}}}`
	for i := range list.Items {
		if s := &list.Items[i]; len(s.Status.Conditions) == 0 {
			if err := w.Client.Status().Patch(w.ctx, s, client.RawPatch(types.MergePatchType, []byte(accepted))); err != nil {
				return err
			}
		}
	}
	return nil
}

// accepted counts the slices that were accepted altogether.
func (a *asking) accepted() (n int, err error) {
	var list authv1beta1.ResourceSliceList
	if err := a.Client.List(a.ctx, &list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		if isAccepted(&list.Items[i]) {
			n++
		}
	}
	return n, nil
}

func isAccepted(s *authv1beta1.ResourceSlice) bool {
	both := 0
	for _, c := range s.Status.Conditions {
		if c.Status == authv1beta1.SliceAccepted {
			both++
		}
	}
	return both == 2
}

// sent is how many writes of identities the API server of the providers has seen.
func (a *asking) sent() int {
	a.t.Helper()
	return a.others.written("authentication.liqo.io", "")
}

// measure runs the controllers twice. sent is how often the second start writes at the providers.
func (a *asking) measure() (first, again figures, sent int) {
	t, all := a.t, 2*a.peers*a.slices
	start := time.Now()
	c := startControllers(t, a.Cluster, withAuthentication)
	until(t, "all slices are accepted", func() error {
		if err := a.others.grant(); err != nil {
			return err
		}
		n, err := a.accepted()
		if err == nil && n != all {
			err = fmt.Errorf("%d of %d", n, all)
		}
		return err
	})
	converged := time.Since(start)
	first = c.rest(t, func(figures) bool { return true }, cmp.Or(*profile, collect))
	c.stop()
	before := a.sent()

	start = time.Now()
	c = startControllers(t, a.Cluster, withAuthentication)
	again = c.rest(t, func(f figures) bool {
		return f.Reconciled["resourceslice-provider"] >= all/2 && f.Reconciled["resourceslice-consumer"] >= all/2 && f.Reconciled["replication"] >= a.peers
	}, quick)
	restarted := time.Since(start) - restFor
	c.stop()
	sent = a.sent() - before

	out := newReport("slices-scale", controlPlane, fmt.Sprintf("%d peers, of which each asks for %d slices and is asked for as many", a.peers, a.slices))
	out.row("start of the controllers to all accepted", "%.1f s", converged.Seconds())
	out.row("  CPU time of the controllers", "%.1f s", first.CPU.Seconds())
	out.row("  writes for each slice", "%.2f", float64(first.writes())/float64(all))
	out.row("  writes at the provider for each slice sent", "%.2f", float64(before)/float64(all/2))
	out.requests("", first.Writes)
	out.row("  heap after a collection", "%.0f MiB", first.HeapMiB)
	out.row("  resident, and its peak", "%.0f, %.0f MiB", first.RSSMiB, first.PeakMiB)
	out.row("second start until all is looked at", "%.1f s", restarted.Seconds())
	out.row("  CPU time of the controllers", "%.1f s", again.CPU.Seconds())
	out.row("  writes here, at providers", "%d, %d", again.writes(), sent)
	out.requests("", again.Writes)
	out.done(t)
	return first, again, sent
}
