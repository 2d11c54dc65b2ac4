package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	amount "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/controlplane/offloading/virtualnode"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/credentialtest"
	"github.com/sluice-net/sluice/virtualkubelet"
)

const (
	// provider is the ID of the cluster in which pods of clusterID run, and the name of its virtual node.
	provider = "milan"
	// virtualKubeletEnv makes this binary the virtual kubelet.
	virtualKubeletEnv  = "SLUICE_SCALE_VIRTUAL_KUBELET"
	withVirtualKubelet = virtualKubeletEnv + "=true"
	// tenantHere is the namespace of the peering in the consumer, tenantThere that in the provider.
	tenantHere, tenantThere = "liqo-tenant-" + provider, "liqo-tenant-" + clusterID
)

// namespaceQuota is what the chart gives each namespace of a consumer.
var namespaceQuota = corev1.ResourceList{
	"configmaps": amount.MustParse("1000"), "secrets": amount.MustParse("5000"), "services": amount.MustParse("1000"),
	"count/shadowpods.offloading.liqo.io": amount.MustParse("5000"), "count/shadowendpointslices.offloading.liqo.io": amount.MustParse("5000"),
}

// pair is a consumer and a provider, in which pods of the consumer run. Both have the same pod CIDR.
type pair struct {
	*world
	there *world
	// namespaces are those that are offloaded.
	namespaces           []string
	controllers, kubelet *process
	kubeconfig           string // of the virtual kubelet
}

func remoteNamespace(here string) string { return here + "-" + clusterID }

// newPair makes all that there is of a peering before the first pod, in place of the controllers of the consumer, and has the
// controllers of the provider and the virtual kubelet run.
func newPair(t *testing.T, namespaces ...string) *pair {
	p := &pair{world: newWorld(t), there: newWorld(t), namespaces: namespaces}
	for _, w := range []*world{p.world, p.there} {
		w.nodes(fewWorkers)
	}
	p.provide()
	p.consume()
	var err error
	p.kubeconfig, err = p.WriteKubeconfig("virtual-kubelet", p.ServiceAccount(tenantHere, offloadingv1beta1.VirtualKubeletName))
	p.must(err)
	p.startKubelet()
	until(t, "the virtual node is ready", func() error {
		n := new(corev1.Node)
		if err := p.Get(p.ctx, "", provider, n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", n.Status.Conditions)
	})
	return p
}

// configured makes the Configuration of a peer with the CIDRs that its controllers would find, and those by which the peer
// is known here.
func (w *world) configured(namespace, peer string) {
	cidrs := func(c networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{c}, Scalar: true}
	}
	same := networkingv1beta1.ClusterCIDR{Pod: cidrs("10.243.0.0/16"), External: cidrs("10.70.0.0/16")}
	c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: peer, Labels: peering(peer)}}
	c.Spec.Remote.CIDR, c.Spec.Local = same, &networkingv1beta1.ClusterConfig{CIDR: same}
	w.must(w.Client.Create(w.ctx, c))
	w.status(c, networkingv1beta1.ConfigurationStatus{Remote: &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.71.0.0/16"), External: cidrs("10.72.0.0/16")}}})
}

// provide makes the provider ready.
func (p *pair) provide() {
	w := p.there
	for _, name := range []string{"authentication", "offloading"} {
		w.ApplyManifest(w.t, name, name+".yaml")
	}
	w.Create(w.t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": provider},
	})
	w.Namespace(w.t, tenantThere, peering(clusterID, networkingv1beta1.LabelTenantNamespace, "true"))
	w.configured(tenantThere, clusterID)
	key := credentialtest.Key(w.t)
	request, err := key.Request(credentials.SliceSubject(provider, clusterID))
	w.must(err)
	mapping := map[string]string{}
	for _, here := range p.namespaces {
		mapping[here] = remoteNamespace(here)
	}
	w.Create(w.t,
		bound(tenantThere, clusterID, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: clusterID}),
		&authv1beta1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: clusterID, Labels: peering(clusterID)},
			Spec:       authv1beta1.TenantSpec{ClusterID: clusterID, AuthzPolicy: authv1beta1.TolerateNoHandshake},
		},
		&authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: provider, Labels: peering(clusterID, authv1beta1.LabelReplicated, "true", authv1beta1.LabelReplicationOrigin, clusterID)},
			Spec: authv1beta1.ResourceSliceSpec{
				ConsumerClusterID: new(authv1beta1.ClusterID(clusterID)), ProviderClusterID: new(authv1beta1.ClusterID(provider)), CSR: request,
				Resources: corev1.ResourceList{corev1.ResourceCPU: amount.MustParse("10000"), corev1.ResourceMemory: amount.MustParse("10Ti"), corev1.ResourcePods: amount.MustParse("100000")},
			},
		},
		&offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: provider, Labels: map[string]string{authv1beta1.LabelReplicated: "true", authv1beta1.LabelReplicationOrigin: clusterID}},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: mapping},
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "slice"}},
	)
	p.startProvider()
	until(w.t, "the namespaces are there", func() error {
		m := new(offloadingv1beta1.NamespaceMap)
		if err := w.Get(w.ctx, tenantThere, provider, m); err != nil {
			return err
		}
		for here := range mapping {
			if m.Status.CurrentMapping[here].Phase != offloadingv1beta1.MappingAccepted {
				return fmt.Errorf("the NamespaceMap has %+v", m.Status.CurrentMapping)
			}
		}
		var quotas offloadingv1beta1.QuotaList
		if err := w.Client.List(w.ctx, &quotas); err != nil || len(quotas.Items) == 0 {
			return fmt.Errorf("there is no Quota (%v)", err)
		}
		return nil
	})
	for _, there := range mapping {
		w.must(w.CreateNamespace(there, nil)) // its service account
		w.Create(w.t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "slice"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet-remote"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "slice"}},
		})
		// What the controller of ResourceQuotas does, which is not there: until there are counts nothing is admitted.
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: tenantThere}}
		controlplanetest.EditStatus(w.t, w.Cluster, q, func(q *corev1.ResourceQuota) {
			q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{}}
			for name := range q.Spec.Hard {
				q.Status.Used[name] = amount.MustParse("0")
			}
		})
	}
}

// consume makes the consumer ready, as its controllers would.
func (p *pair) consume() {
	labels := peering(provider)
	p.Namespace(p.t, tenantHere, peering(provider, networkingv1beta1.LabelTenantNamespace, "true"))
	p.configured(tenantHere, provider)
	connection := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: tenantHere, Name: provider, Labels: labels}}
	connection.Spec.Type, connection.Spec.GatewayRef = networkingv1beta1.ConnectionServer, corev1.ObjectReference{Name: provider}
	p.Create(p.t, connection)
	p.status(connection, map[string]any{"value": networkingv1beta1.Connected})
	api := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: ipamv1alpha1.IPTypeAPIServer}, Spec: ipamv1alpha1.IPSpec{IP: "10.96.0.1"}}
	p.Create(p.t, api)
	p.status(api, map[string]any{"ip": "10.70.0.1", "cidr": "10.70.0.0/16"})

	p.ApplyManifest(p.t, "offloading", "virtual-kubelet.yaml")
	facts := virtualnode.Facts{
		Own: clusterID, Peer: provider, Namespace: tenantHere, Tenant: true, LiqoNamespace: controlplanetest.LiqoNamespace,
		Template: &offloadingv1beta1.VkOptionsTemplateSpec{ContainerImage: "virtualkubelet"}, VirtualNodes: 1, Kubeconfigs: []string{"slice"}, Offloaded: p.namespaces,
	}
	objects, _, _ := virtualnode.Build(facts)
	for _, o := range objects {
		if _, is := o.(*appsv1.Deployment); !is {
			p.Create(p.t, o)
		}
	}
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenantHere, Name: provider}, Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{}}}
	current := map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for _, here := range p.namespaces {
		p.Namespace(p.t, here, map[string]string{offloadingv1beta1.LabelSchedulingEnabled: "true"})
		m.Spec.DesiredMapping[here] = remoteNamespace(here)
		current[here] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: remoteNamespace(here), Phase: offloadingv1beta1.MappingAccepted}
	}
	for _, b := range facts.Bindings() {
		p.Create(p.t, b)
	}
	p.Create(p.t, m)
	p.status(m, map[string]any{"currentMapping": current})
	p.Create(p.t,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantHere, Name: "slice"},
			Data:       map[string][]byte{authv1beta1.KubeconfigKey: credentialtest.TokenKubeconfig(p.there.ServiceAccount("default", "slice"))},
		},
		&offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantHere, Name: provider, Labels: labels},
			Spec: offloadingv1beta1.VirtualNodeSpec{
				ClusterID: provider, KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "slice"},
				ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceCPU: amount.MustParse("10000"), corev1.ResourceMemory: amount.MustParse("10Ti"), corev1.ResourcePods: amount.MustParse("100000")}},
			},
		})
}

// startProvider starts the controllers of the provider.
func (p *pair) startProvider() {
	p.controllers = startControllers(p.t, p.there.Cluster, withOffloading)
}

// startKubelet starts the virtual kubelet.
func (p *pair) startKubelet() {
	p.t.Helper()
	p.kubelet = startProcess(p.t, "virtual kubelet", p.kubeconfig, withVirtualKubelet)
}

// setUpOffloading adds the controllers of a provider to mgr.
func setUpOffloading(mgr ctrl.Manager, cfg *rest.Config) error {
	peerings, err := authentication.PeeringCache(mgr)
	if err != nil {
		return err
	}
	err = authentication.SetupWithManager(mgr, peerings, authentication.Options{
		LiqoNamespace: controlplanetest.LiqoNamespace, NamespaceMaps: true,
		APIServer: issue.APIServer{URL: cfg.Host, CA: cfg.CAData}, Slices: resourceslice.Options{DefaultClass: true},
	})
	if err != nil {
		return err
	}
	return offloading.SetupWithManager(mgr, peerings, offloading.Options{
		LiqoNamespace: controlplanetest.LiqoNamespace, PodSecurity: "baseline", MaxNamespaces: 100, NamespaceQuota: namespaceQuota, LimitsEnforcement: "None",
	})
}

// runVirtualKubelet is the process that is measured.
func runVirtualKubelet(kubeconfig string) error {
	cfg, requests, err := counted(kubeconfig)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0") // which nobody asks
	if err != nil {
		return err
	}
	k, err := virtualkubelet.New(cfg, virtualkubelet.Options{
		ClusterID: clusterID, PeerID: provider, TenantNamespace: tenantHere, LiqoNamespace: controlplanetest.LiqoNamespace,
		Address: netip.MustParseAddr("127.0.0.1"), Port: 10250, APIServerPort: "443",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	answer(requests, func(f *figures) error {
		s := k.State()
		f.Reconciled, f.Resting = map[string]int{}, s.Connected && s.Waiting == 0
		for _, n := range s.Nodes {
			f.Reconciled["pods"] += n.Pods
			f.Resting = f.Resting && n.Provider == ""
		}
		f.Reconciled["half seconds of CPU"] = int(f.CPU.Milliseconds() / 500)
		return nil
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- k.Serve(ctx, l) }()
	return errors.Join(k.Run(ctx), <-served)
}

// writesOfWork are the writes that an API server has had, without signs of life, without its own counts for ResourceQuotas,
// and without requests for serving certificates: their keys are kept in memory, so that each start makes one.
func (w *world) writesOfWork() map[string]int {
	w.t.Helper()
	return w.writes(func(label func(string) string) bool {
		return !slices.Contains([]string{"", "certificatesigningrequests", "leases", "resourcequotas"}, label("resource"))
	})
}

// since is what was written after an earlier look.
func since(now, before map[string]int) map[string]int {
	out := map[string]int{}
	for what, n := range now {
		if n != before[what] {
			out[what] = n - before[what]
		}
	}
	return out
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
