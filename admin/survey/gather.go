package survey

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// facts is what a cluster was asked for, as it answered.
type facts struct {
	now        time.Time
	kubernetes string
	id         string
	// liqoNamespace is where the installation lives.
	liqoNamespace string
	install       access.Installation
	components    []Component
	interrupted   string // Installation.Interrupted
	networks      []ipamv1alpha1.Network
	ips           []ipamv1alpha1.IP

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
	pods           []corev1.Pod // of gateways

	foreign []corev1beta1.ForeignCluster
	slices  []authv1beta1.ResourceSlice
	virtual []offloadingv1beta1.VirtualNode

	offloaded []offloadingv1beta1.NamespaceOffloading
}

// gather asks for everything at the same time.
func (f *facts) gather(ctx context.Context, r *reader, o Options) {
	g := &gathering{ctx: ctx, reader: r}
	g.Go(func() {
		var err error
		f.id, err = r.cluster.ID(ctx)
		r.miss("the cluster ID", err)
	})
	collect(g, &f.configurations, networking("Configuration", o.Namespace))
	collect(g, &f.servers, networking("GatewayServer", o.Namespace))
	collect(g, &f.clients, networking("GatewayClient", o.Namespace))
	collect(g, &f.connections, networking("Connection", o.Namespace))
	collect(g, &f.publicKeys, networking("PublicKey", o.Namespace))
	collect(g, &f.fabrics, networking("InternalFabric", o.Namespace))
	collect(g, &f.firewalls, networking("FirewallConfiguration", o.Namespace).
		labelled(networkingv1beta1.LabelFirewallCategory, networkingv1beta1.CategoryGateway))
	collect(g, &f.pods, core("Pod", o.Namespace).labelled(networkingv1beta1.LabelComponent, networkingv1beta1.ComponentGateway))
	if !o.PeeringsOnly {
		g.Go(func() {
			var err error
			f.install, err = r.cluster.Installation(ctx)
			r.miss("what was said at install time", err)
		})
		collect(g, &f.networks, ipam("Network", r.cluster.LiqoNamespace))
		collectNames(g, &f.tenants, core("Namespace", "").labelled(networkingv1beta1.LabelTenantNamespace, networkingv1beta1.LabelTrue))
	}
	if !o.PeeringsOnly || o.Modules {
		g.Go(func() {
			f.foreign = listIfServed[corev1beta1.ForeignCluster](ctx, r, foreignClusters)
		})
	}
	if o.Exposed {
		collect(g, &f.ips, ipam("IP", ""))
	}
	if o.Nodes == nil {
		collect(g, &f.internalNodes, networking("InternalNode", ""))
		collectNames(g, &f.nodes, core("Node", ""))
		collectNames(g, &f.tunnels, networking("GeneveTunnel", o.Namespace))
	}
	offloaded := queryOf(offloadingv1beta1.GroupVersion.WithKind("NamespaceOffloading"), o.Namespace)
	var noOffloaded error
	if o.Offloaded {
		g.Go(func() {
			f.offloaded, noOffloaded = listErr[offloadingv1beta1.NamespaceOffloading](ctx, r, offloaded)
		})
	}
	g.Wait()
	usesOffloading := slices.ContainsFunc(f.foreign, func(c corev1beta1.ForeignCluster) bool { return c.Status.Modules.Offloading.Enabled })
	if usesOffloading || !denied(noOffloaded) && !meta.IsNoMatchError(noOffloaded) && !apierrors.IsNotFound(noOffloaded) {
		r.add(r.gap(offloaded, noOffloaded)) // else there hardly are any
	}
	// Not everybody may read them, and where nobody asks for resources there are none.
	if o.Slices && slices.ContainsFunc(f.foreign, func(c corev1beta1.ForeignCluster) bool { return c.Status.Modules.Authentication.Enabled }) {
		f.slices = list[authv1beta1.ResourceSlice](ctx, r, queryOf(authv1beta1.GroupVersion.WithKind("ResourceSlice"), o.Namespace))
	}
	if o.Slices && usesOffloading {
		f.virtual = list[offloadingv1beta1.VirtualNode](ctx, r, queryOf(offloadingv1beta1.GroupVersion.WithKind("VirtualNode"), o.Namespace))
	}
}

// gathering is what lists are read with.
type gathering struct {
	sync.WaitGroup
	ctx    context.Context // of the one call of gather
	reader *reader
}

// collect reads a list while others are read.
func collect[T any](g *gathering, into *[]T, q query) {
	g.Go(func() { *into = list[T](g.ctx, g.reader, q) })
}

// collectNames is collect for what only metadata is read of.
func collectNames(g *gathering, into *[]metav1.PartialObjectMetadata, q query) {
	g.Go(func() { *into = listNames(g.ctx, g.reader, q) })
}

// foreignClusters are in no namespace.
var foreignClusters = queryOf(corev1beta1.GroupVersion.WithKind("ForeignCluster"), "")

func core(kind, namespace string) query {
	return queryOf(corev1.SchemeGroupVersion.WithKind(kind), namespace)
}

func networking(kind, namespace string) query {
	return queryOf(networkingv1beta1.GroupVersion.WithKind(kind), namespace)
}

func ipam(kind, namespace string) query {
	return queryOf(ipamv1alpha1.GroupVersion.WithKind(kind), namespace)
}

func queryOf(kind schema.GroupVersionKind, namespace string) query {
	return query{kind: kind, plural: kind.Kind + "s", namespace: namespace}
}

// labelled narrows a query to objects with a label.
func (q query) labelled(key, value string) query {
	q.options = append(q.options, client.MatchingLabels{key: value})
	return q
}
