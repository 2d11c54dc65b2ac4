package survey

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/access"
)

// Options say what is read.
type Options struct {
	// Namespace limits the objects of peerings to one namespace; empty: all.
	Namespace string
	// Peers limits Cluster.Peers to these remote clusters; empty: all.
	Peers []string
	// Nodes, when not nil, is where nodes and tunnels are taken from instead of
	// being read again: in a large cluster they are nearly everything that there
	// is to read, and they seldom change.
	Nodes *Cluster
}

// readTimeout bounds everything that Read asks.
const readTimeout = time.Minute

// Read reads a cluster. What it may not or cannot read is a Gap; the error is for
// a cluster that does not answer at all.
func Read(ctx context.Context, c *access.Cluster, o Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	f := &facts{now: time.Now(), liqoNamespace: c.LiqoNamespace}
	var v version.Info
	if err := readVersion(ctx, c, &v); err != nil && !denied(err) {
		return nil, c.Explain("ask the API server for its version", err)
	}
	f.kubernetes = v.GitVersion
	r := &reader{cluster: c}
	f.gather(ctx, r, o)
	f.components = r.components(ctx)
	s := f.build(c, o)
	s.Gaps = r.gaps
	return s, nil
}

// readVersion asks what everybody may ask who may log in.
func readVersion(ctx context.Context, c *access.Cluster, v *version.Info) error {
	info, err := c.Clientset.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return err
	}
	return decode(info, v)
}

// facts is what a cluster was asked for, as it answered.
type facts struct {
	now        time.Time
	kubernetes string
	id         string
	// liqoNamespace is where the installation lives.
	liqoNamespace string
	install       access.Installation
	components    []Component
	networks      []ipamv1alpha1.Network

	nodes         []metav1.PartialObjectMetadata
	internalNodes []networkingv1beta1.InternalNode

	tenants        []metav1.PartialObjectMetadata
	configurations []networkingv1beta1.Configuration
	servers        []networkingv1beta1.GatewayServer
	clients        []networkingv1beta1.GatewayClient
	connections    []networkingv1beta1.Connection
	publicKeys     []networkingv1beta1.PublicKey
	fabrics        []networkingv1beta1.InternalFabric
	tunnels        []metav1.PartialObjectMetadata
	firewalls      []networkingv1beta1.FirewallConfiguration
	keys           map[types.NamespacedName]Keys // by Secret
	pods           []corev1.Pod                  // of gateways
}

// gather asks for everything at the same time.
func (f *facts) gather(ctx context.Context, r *reader, o Options) {
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		f.id, err = r.cluster.ID(ctx)
		r.miss("the cluster ID", err)
	})
	wg.Go(func() {
		var err error
		f.install, err = r.cluster.Installation(ctx)
		r.miss("what was said at install time", err)
	})
	wg.Go(func() { f.networks = list[ipamv1alpha1.Network](ctx, r, ipam("Network", r.cluster.LiqoNamespace)) })
	wg.Go(func() {
		f.tenants = listNames(ctx, r, query{
			kind: core("Namespace"), plural: "Namespaces",
			options: []client.ListOption{client.MatchingLabels{networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue}},
		})
	})
	wg.Go(func() {
		f.configurations = list[networkingv1beta1.Configuration](ctx, r, networking("Configuration", o.Namespace))
	})
	wg.Go(func() {
		f.servers = list[networkingv1beta1.GatewayServer](ctx, r, networking("GatewayServer", o.Namespace))
	})
	wg.Go(func() {
		f.clients = list[networkingv1beta1.GatewayClient](ctx, r, networking("GatewayClient", o.Namespace))
	})
	wg.Go(func() {
		f.connections = list[networkingv1beta1.Connection](ctx, r, networking("Connection", o.Namespace))
	})
	wg.Go(func() { f.publicKeys = list[networkingv1beta1.PublicKey](ctx, r, networking("PublicKey", o.Namespace)) })
	wg.Go(func() {
		f.fabrics = list[networkingv1beta1.InternalFabric](ctx, r, networking("InternalFabric", o.Namespace))
	})
	wg.Go(func() {
		f.firewalls = list[networkingv1beta1.FirewallConfiguration](ctx, r, networking("FirewallConfiguration", o.Namespace,
			client.MatchingLabels{networkingv1beta1.LabelFirewallCategory: networkingv1beta1.CategoryGateway}))
	})
	wg.Go(func() {
		f.pods = list[corev1.Pod](ctx, r, query{
			kind: core("Pod"), plural: "Pods", namespace: o.Namespace,
			options: []client.ListOption{client.MatchingLabels{networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway}},
		})
	})
	wg.Go(func() {
		f.keys = keysOf(list[corev1.Secret](ctx, r, query{
			kind: core("Secret"), plural: "Secrets", namespace: o.Namespace,
			options: []client.ListOption{client.MatchingLabels{networkingv1beta1.LabelGatewayResource: networkingv1beta1.LabelTrue}},
		}))
	})
	if o.Nodes == nil {
		wg.Go(func() { f.internalNodes = list[networkingv1beta1.InternalNode](ctx, r, networking("InternalNode", "")) })
		wg.Go(func() { f.nodes = listNames(ctx, r, query{kind: core("Node"), plural: "Nodes"}) })
		wg.Go(func() { f.tunnels = listNames(ctx, r, networking("GeneveTunnel", o.Namespace)) })
	}
	wg.Wait()
}

func core(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }

func networking(kind, namespace string, options ...client.ListOption) query {
	return query{kind: networkingv1beta1.GroupVersion.WithKind(kind), plural: kind + "s", namespace: namespace, options: options}
}

func ipam(kind, namespace string) query {
	return query{kind: ipamv1alpha1.GroupVersion.WithKind(kind), plural: kind + "s", namespace: namespace}
}

// PeerIDs returns the IDs of all peers, as far as they can be read: for
// completions, which have nobody to complain to.
func PeerIDs(ctx context.Context, c *access.Cluster) []string {
	r := &reader{cluster: c}
	kinds := []string{"Configuration", "GatewayServer", "GatewayClient"}
	lists := make([][]metav1.PartialObjectMetadata, len(kinds))
	var wg sync.WaitGroup
	for i, kind := range kinds {
		wg.Go(func() { lists[i] = listNames(ctx, r, networking(kind, "")) })
	}
	wg.Wait()
	ids := make(map[string]bool)
	for _, o := range slices.Concat(lists...) {
		if id := o.Labels[networkingv1beta1.LabelRemoteClusterID]; id != "" {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
