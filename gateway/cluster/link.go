package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane/health"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
)

// Options say which gateway this is.
type Options struct {
	// Name, Namespace and Type name the GatewayServer or GatewayClient.
	Name, Namespace string
	Type            networkingv1beta1.ConnectionType
	// UID is that object's; empty: whichever has the name. One that was deleted and
	// made anew is another gateway, with another pod.
	UID string
	// ClusterID is the peer's.
	ClusterID string
	// LiqoNamespace holds what all gateways share.
	LiqoNamespace string
	// NodeName is the node that the gateway runs on; empty: not known.
	NodeName string
	// KeysDir holds the gateway's keys, a file for each entry of their Secret.
	KeysDir string
	// CacheDir is where the objects are kept over a restart; empty: nowhere.
	CacheDir string
	// UpdateInterval is how long a Connection may show an old latency.
	UpdateInterval time.Duration
	// Logger gets changes of state. Nil: slog.Default().
	Logger *slog.Logger
}

// Link is a gateway's tie to its API server: control.Feed and
// control.Reporter. Build it with New, and give it to a Runner.
type Link struct {
	options Options
	log     *slog.Logger
	config  *rest.Config
	clients *mirror.Clients
	mirror  *mirror.Mirror // of what Read returns
	keys    keyFolder
	kept    *keptFile
	before  kept        // by the process before this one, until all objects are read; owned by the caller of Read
	waited  atomic.Bool // keptAfter has passed

	networking, ipam, coordination rest.Interface
	// afresh is coordination on connections of its own, of which each ends with a
	// request that is given up.
	afresh rest.Interface

	servers    *mirror.Store[networkingv1beta1.GatewayServer, *networkingv1beta1.GatewayServer]
	gwClients  *mirror.Store[networkingv1beta1.GatewayClient, *networkingv1beta1.GatewayClient]
	configs    *mirror.Store[networkingv1beta1.Configuration, *networkingv1beta1.Configuration]
	publicKeys *mirror.Store[networkingv1beta1.PublicKey, *networkingv1beta1.PublicKey]
	fabrics    *mirror.Store[networkingv1beta1.InternalFabric, *networkingv1beta1.InternalFabric]
	nodes      *mirror.Store[networkingv1beta1.InternalNode, *networkingv1beta1.InternalNode]
	tunnels    *mirror.Store[networkingv1beta1.GeneveTunnel, *networkingv1beta1.GeneveTunnel]
	routes     *mirror.Store[networkingv1beta1.RouteConfiguration, *networkingv1beta1.RouteConfiguration]
	ips        *mirror.Store[ipamv1alpha1.IP, *ipamv1alpha1.IP]
	firewalls  []*mirror.Store[networkingv1beta1.FirewallConfiguration, *networkingv1beta1.FirewallConfiguration]

	reporter *reporter
}

// New builds a Link. Nothing is asked of the API server until Watch.
func New(c *rest.Config, o Options) (*Link, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.UpdateInterval = cmp.Or(o.UpdateInterval, health.DefaultUpdateInterval)
	clients, err := mirror.NewClients(c, "sluice-gateway",
		mirror.Group{Version: networkingv1beta1.GroupVersion, AddToScheme: networkingv1beta1.AddToScheme},
		mirror.Group{Version: ipamv1alpha1.GroupVersion, AddToScheme: ipamv1alpha1.AddToScheme},
		mirror.Group{Version: coordinationv1.SchemeGroupVersion, AddToScheme: coordinationv1.AddToScheme},
	)
	if err != nil {
		return nil, err
	}
	fresh, err := mirror.NewClients(oneRequestEach(c), "sluice-gateway", mirror.Group{Version: coordinationv1.SchemeGroupVersion, AddToScheme: coordinationv1.AddToScheme})
	if err != nil {
		return nil, err
	}
	l := &Link{
		options: o, log: o.Logger, config: c, clients: clients, mirror: mirror.New(o.Logger), keys: keyFolder{dir: o.KeysDir},
		networking:   clients.For(networkingv1beta1.GroupVersion),
		ipam:         clients.For(ipamv1alpha1.GroupVersion),
		coordination: clients.For(coordinationv1.SchemeGroupVersion),
		afresh:       fresh.For(coordinationv1.SchemeGroupVersion),
	}
	l.kept, l.before = newKeptFile(o)
	l.selectObjects()
	l.reporter = newReporter(l)
	return l, nil
}

// oneRequestEach is a configuration for connections that carry one request at a time,
// by HTTP/1.1, and are closed with one that is given up. A connection of HTTP/2 would
// outlive it.
func oneRequestEach(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.NextProtos = []string{"http/1.1"}
	return c
}

// Watch implements control.Feed. It also keeps what the reporter needs.
func (l *Link) Watch(ctx context.Context, changed func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		manifests.WatchAll(ctx, l.options.KeysDir, func() {
			if l.keys.load() {
				l.mirror.Changed()
			}
		}, func(err error) { l.log.Warn("no file events for the keys, polling instead", "error", err) })
	})
	wg.Go(func() { l.reporter.follow(ctx) })
	wg.Go(func() { l.reporter.writer.Run(ctx) })
	wg.Go(func() { l.kept.run(ctx) })
	defer time.AfterFunc(keptAfter, func() {
		l.waited.Store(true)
		l.mirror.Changed()
	}).Stop()
	l.mirror.Run(ctx, changed)
	wg.Wait()
}

// Read implements control.Feed.
func (l *Link) Read(known manifests.Digest) (control.Reading, error) {
	r, err := l.mirror.Read(known, l.objects)
	out := control.Reading{Digest: r.Digest, Heavy: r.Heavy}
	switch {
	case err != nil && !l.before.At.IsZero() && l.waited.Load():
		out.Digest, r.Objects, out.Kept = l.keys.digest(), l.before.Objects, l.before.At
	case err != nil:
		return out, err
	default:
		l.before = kept{}
	}
	if out.Digest == known {
		return out, nil
	}
	if out.Kept.IsZero() {
		now := time.Now()
		out.Accepted = func() { l.kept.keep(r.Objects, now) }
	}
	out.Objects = control.Objects{
		Objects: r.Objects,
		Cluster: &control.Cluster{ClusterID: l.options.ClusterID, NodeName: l.options.NodeName},
	}
	out.Objects.Secrets, out.Warnings = l.keys.get()
	return out, nil
}

// gatewayGone tells whether the GatewayServer or GatewayClient was deleted.
func (l *Link) gatewayGone() bool {
	if l.options.Type == networkingv1beta1.ConnectionServer {
		_, synced := l.servers.Size()
		return synced && l.servers.Only() == nil
	}
	_, synced := l.gwClients.Size()
	return synced && l.gwClients.Only() == nil
}

// rival tells whether the nodes are told of a gateway at another address, which
// reports a connection: one that ends says so, however it came to lead.
func (l *Link) rival() bool {
	fabric, connection := l.fabrics.Only(), l.reporter.connections.Only()
	if fabric == nil || connection == nil || connection.Status.Value != networkingv1beta1.Connected {
		return false
	}
	return elsewhere(net.ParseIP(string(fabric.Spec.GatewayIP)))
}

// elsewhere tells whether an address is none of this pod's.
func elsewhere(gateway net.IP) bool {
	if gateway == nil {
		return false
	}
	addrs, _ := net.InterfaceAddrs() // without them nobody is kept from leading
	return len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a net.Addr) bool {
		own, ok := a.(*net.IPNet)
		return ok && (own.IP.Equal(gateway) || own.IP.IsLoopback() && own.Contains(gateway))
	})
}

// Successor is the address of the pod to which the nodes are told to send, if it is
// another one than this.
func (l *Link) Successor() (netip.Addr, bool) {
	fabric := l.fabrics.Only()
	if fabric == nil || !elsewhere(net.ParseIP(string(fabric.Spec.GatewayIP))) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(string(fabric.Spec.GatewayIP))
	return addr.Unmap(), err == nil
}

// State returns what the Link does now, for display.
func (l *Link) State() mirror.State { return l.mirror.State() }
