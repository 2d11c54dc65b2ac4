package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// end is one of the two clusters, and what is known of it.
type end struct {
	*access.Cluster
	// write is Client under our name, for which fields that the cluster does not
	// know are an error and not silently dropped.
	write client.Client
	peer  *end
	// role is what this end of the tunnel is, or is to be.
	role    networkingv1beta1.ConnectionType
	options *Options
	// liqo tells whether Liqo runs there: LiqoRuns, unless the user has a say in it.
	liqo func(context.Context, *access.Cluster) (bool, error)

	// Known after the preflight.
	id        string
	uid       types.UID
	found     found
	namespace string                 // the tenant namespace
	defaults  access.GatewayDefaults // of a server that is made
	adopted   bool                   // Liqo runs there, too, and has templates of the usual names
	// noConditions: the cluster has the gateways of Liqo, without conditions.
	noConditions atomic.Bool

	// Found out by steps, for those that come after them.
	network  networkingv1beta1.ClusterConfig // its own CIDRs
	key      []byte                          // its gateway's public key
	endpoint *networkingv1beta1.Endpoint     // its gateway's, of a server
	mtu      int                             // its gateway's
	lists    bool                            // Liqo runs at one end, and reads CIDRs as lists only
	fresh    bool                            // its gateway was made just now
	// keepsEndpoint: this client dials an address that somebody chose, and what the server reports leads elsewhere.
	keepsEndpoint bool
	// corrected: what it knew of the other's CIDRs was wrong.
	corrected bool
}

// pair is both ends, in the order in which the user reads about them: the local
// and the remote one. To clean up after a peer that is gone for good it is the
// local one alone.
type pair []*end

func newPair(local, remote *access.Cluster, o *Options) pair {
	p := pair{newEnd(local, o), newEnd(remote, o)}
	p[0].peer, p[1].peer = p[1], p[0]
	p[0].role, p[1].role = networkingv1beta1.ConnectionClient, networkingv1beta1.ConnectionServer
	if o.ServerIsLocal {
		p[0].role, p[1].role = p[1].role, p[0].role
	}
	return p
}

// alone is a pair of which only one end can be reached: of the other no more is
// known than its ID.
func alone(c *access.Cluster, peerID string, o *Options) pair {
	e := newEnd(c, o)
	e.peer = &end{id: peerID, options: o}
	return pair{e}
}

func newEnd(c *access.Cluster, o *Options) *end {
	return &end{
		Cluster: c, options: o, liqo: LiqoRuns,
		write: client.WithFieldValidation(client.WithFieldOwner(c.Client, FieldOwner), metav1.FieldValidationStrict),
	}
}

// with returns the end of a role.
func (p pair) with(role networkingv1beta1.ConnectionType) *end {
	if p[0].role == role {
		return p[0]
	}
	return p[1]
}

// steps makes a step for each end.
func (p pair) steps(make func(*end) *step) (steps []*step) {
	for _, e := range p {
		steps = append(steps, make(e))
	}
	return steps
}

// both does something to both ends at the same time.
func (p pair) both(do func(*end) error) error {
	return errors.Join(access.Together(p, do)...)
}

// metadata is that of an object of this end of the peering.
func (e *end) metadata(name string) Metadata {
	return Metadata{
		Name: name, Namespace: e.namespace, RemoteClusterID: e.peer.id,
		Labels: e.options.Labels, Annotations: e.options.Annotations,
	}
}

// gateway is the name of this end's gateway: that of the one there is, the oldest
// of several as the controllers have it, or the one that will be made.
func (e *end) gateway() string {
	for _, g := range e.gateways(e.role) {
		if g.GetNamespace() == e.namespace {
			return g.GetName()
		}
	}
	return GatewayName(e.peer.id)
}

// gateways are those there are of a role.
func (e *end) gateways(role networkingv1beta1.ConnectionType) []*gateway {
	if role == networkingv1beta1.ConnectionServer {
		return e.found.servers
	}
	return e.found.clients
}

// configuration is the name of the Configuration, found like that of the gateway.
func (e *end) configuration() string {
	for _, c := range e.found.configurations {
		if c.Namespace == e.namespace {
			return c.Name
		}
	}
	return GatewayName(e.peer.id)
}

// tagged is a text about this end, for where it is not clear which one is meant.
func (e *end) tagged(text string) string { return prefix(e.Name) + text }

// named is the name of an object in the tenant namespace.
func (e *end) named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.namespace, Name: name}
}

// readPeering reads what the cluster holds of the peering. A user who may not look everywhere looks in their own namespace.
func (e *end) readPeering(ctx context.Context) error {
	everywhere, there := e.Cluster, *e.Cluster
	there.NamespaceGiven = true
	within, err := everywhere.WhereAllowed(func(namespace string) error {
		if namespace != "" {
			e.Cluster = &there
		}
		return e.readFound(ctx)
	})
	if within == "" {
		e.Cluster = everywhere
	}
	return err
}

func (e *end) readFound(ctx context.Context) error {
	e.found = found{}
	of := []client.ListOption{client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: e.peer.id}}
	if e.NamespaceGiven {
		of = append(of, client.InNamespace(e.Namespace))
	}
	var servers networkingv1beta1.GatewayServerList
	var clients networkingv1beta1.GatewayClientList
	var configurations networkingv1beta1.ConfigurationList
	reads := []func() error{
		func() error { return e.list(ctx, "GatewayServers", &servers, of...) },
		func() error { return e.list(ctx, "GatewayClients", &clients, of...) },
		func() error { return e.list(ctx, "Configurations", &configurations, of...) },
		func() (err error) { e.found.namespaces, err = e.namespaces(ctx); return err },
	}
	errs := access.Together(reads, func(read func() error) error { return read() })
	if err := cmp.Or(errs...); err != nil { // they would all say the same
		return err
	}
	for i := range servers.Items {
		e.found.servers = append(e.found.servers, serverGateway(&servers.Items[i]))
	}
	for i := range clients.Items {
		e.found.clients = append(e.found.clients, clientGateway(&clients.Items[i]))
	}
	e.found.configurations = configurations.Items
	e.found.sort()
	return nil
}

func (e *end) list(ctx context.Context, kinds string, into client.ObjectList, o ...client.ListOption) error {
	if err := e.Client.List(ctx, into, o...); err != nil {
		return e.Explain("list "+kinds+" of cluster "+e.peer.id, err)
	}
	return nil
}

// namespaces reads those that may be the tenant namespace. With the right to
// one namespace only, that one is enough.
func (e *end) namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	var found []corev1.Namespace
	if !e.NamespaceGiven {
		var list corev1.NamespaceList
		err := e.list(ctx, "namespaces", &list, client.MatchingLabels{
			networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: e.peer.id,
		})
		if err != nil {
			return nil, err
		}
		found = list.Items
	}
	name := TenantNamespaceName(e.peer.id)
	if e.NamespaceGiven {
		name = e.Namespace
	}
	if slices.ContainsFunc(found, func(n corev1.Namespace) bool { return n.Name == name }) {
		return found, nil
	}
	var n corev1.Namespace
	switch err := e.Client.Get(ctx, types.NamespacedName{Name: name}, &n); {
	case e.NamespaceGiven && apierrors.IsForbidden(err): // who may work in it need not be allowed to look at it
		n.Name = name
		found = append(found, n)
	case client.IgnoreNotFound(err) != nil:
		return nil, e.Explain("read namespace "+name, err)
	case err == nil:
		found = append(found, n)
	}
	return found, nil
}

// namespaceFound is the tenant namespace as it was; nil where it is to be made.
func (e *end) namespaceFound() *corev1.Namespace {
	for i, n := range e.found.namespaces {
		if n.Name == e.namespace {
			return &e.found.namespaces[i]
		}
	}
	return nil
}

// older orders objects by age: the oldest is the one that counts for the controllers.
func older(a, b client.Object) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// sort has the oldest come first.
func (f *found) sort() {
	gateways := func(a, b *gateway) int { return older(a, b) }
	slices.SortFunc(f.servers, gateways)
	slices.SortFunc(f.clients, gateways)
	slices.SortFunc(f.configurations, func(a, b networkingv1beta1.Configuration) int { return older(&a, &b) })
}

// surplus names the objects without effect, because an older one takes precedence.
func (e *end) surplus() (texts []string) {
	for _, role := range []networkingv1beta1.ConnectionType{networkingv1beta1.ConnectionServer, networkingv1beta1.ConnectionClient} {
		gs := e.gateways(role)
		for i := 1; i < len(gs); i++ {
			texts = append(texts, gs[i].String())
		}
	}
	for i := 1; i < len(e.found.configurations); i++ {
		c := e.found.configurations[i]
		texts = append(texts, fmt.Sprintf("Configuration %s/%s", c.Namespace, c.Name))
	}
	return texts
}
