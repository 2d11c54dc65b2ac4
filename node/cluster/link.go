package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
)

// Options say which node this is.
type Options struct {
	// NodeName is the Node, and the InternalNode of the same name.
	NodeName string
	// Logger gets changes of state. Nil: slog.Default().
	Logger *slog.Logger
}

// Link is a node's tie to its API server: fabric.Feed and fabric.Reporter. Build
// it with New, and give it to a Runner.
type Link struct {
	options Options
	clients *mirror.Clients
	mirror  *mirror.Mirror
	writer  *mirror.Writer

	networking, ipam rest.Interface

	nodes     *mirror.Store[networkingv1beta1.InternalNode, *networkingv1beta1.InternalNode]
	tunnels   *mirror.Store[networkingv1beta1.GeneveTunnel, *networkingv1beta1.GeneveTunnel]
	fabrics   *mirror.Store[networkingv1beta1.InternalFabric, *networkingv1beta1.InternalFabric]
	configs   *mirror.Store[networkingv1beta1.Configuration, *networkingv1beta1.Configuration]
	servers   *mirror.Store[networkingv1beta1.GatewayServer, *networkingv1beta1.GatewayServer]
	gwClients *mirror.Store[networkingv1beta1.GatewayClient, *networkingv1beta1.GatewayClient]
	ips       *mirror.Store[ipamv1alpha1.IP, *ipamv1alpha1.IP]
	networks  *mirror.Store[ipamv1alpha1.Network, *ipamv1alpha1.Network]

	addresses serverAddresses
	heavy     bool // what was read and could not be used yet; owned by the caller of Read

	mu     sync.Mutex
	newest *fabric.Report // nil: none yet
	err    error          // of the last write
}

// New builds a Link. Nothing is asked of the API server until Watch.
func New(c *rest.Config, o Options) (*Link, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	clients, err := mirror.NewClients(c, "sluice-fabric",
		mirror.Group{Version: networkingv1beta1.GroupVersion, AddToScheme: networkingv1beta1.AddToScheme},
		mirror.Group{Version: ipamv1alpha1.GroupVersion, AddToScheme: ipamv1alpha1.AddToScheme},
	)
	if err != nil {
		return nil, err
	}
	l := &Link{
		options: o, clients: clients, mirror: mirror.New(o.Logger),
		networking: clients.For(networkingv1beta1.GroupVersion), ipam: clients.For(ipamv1alpha1.GroupVersion),
	}
	l.writer = mirror.NewWriter(l.write)
	l.selectObjects()
	return l, nil
}

// selectObjects sets up the watches.
func (l *Link) selectObjects() {
	m, api := l.mirror, l.networking
	l.nodes = mirror.NewStore[networkingv1beta1.InternalNode]()
	mirror.Add(m, mirror.Watched{
		Client: api, Resource: "internalnodes", Fields: fields.OneTermEqualSelector("metadata.name", l.options.NodeName).String(),
	}, l.nodes)
	changed := l.nodes.Changed
	l.nodes.Changed = func() {
		changed()
		l.writer.Wake() // somebody may have edited the status
	}

	l.tunnels = mirror.NewStore[networkingv1beta1.GeneveTunnel]()
	l.tunnels.Keep = func(t *networkingv1beta1.GeneveTunnel) bool { return t.Spec.InternalNodeRef.Name == l.options.NodeName }
	mirror.Add(m, mirror.Watched{Client: api, Resource: "genevetunnels", Labels: tunnelLabels(l.options.NodeName)}, l.tunnels)

	l.fabrics = mirror.NewStore[networkingv1beta1.InternalFabric]()
	mirror.Add(m, mirror.Watched{Client: api, Resource: "internalfabrics"}, l.fabrics)

	l.configs = mirror.NewStore[networkingv1beta1.Configuration]()
	l.configs.Trim = func(c *networkingv1beta1.Configuration) {
		c.Spec.Remote, c.Status = networkingv1beta1.ClusterConfig{}, networkingv1beta1.ConfigurationStatus{}
	}
	mirror.Add(m, mirror.Watched{Client: api, Resource: "configurations"}, l.configs)

	// On which node a gateway runs.
	l.servers = mirror.NewStore[networkingv1beta1.GatewayServer]()
	l.servers.Trim = func(g *networkingv1beta1.GatewayServer) {
		g.Spec, g.Status = networkingv1beta1.GatewayServerSpec{}, networkingv1beta1.GatewayServerStatus{InternalEndpoint: g.Status.InternalEndpoint}
	}
	mirror.Add(m, mirror.Watched{Client: api, Resource: "gatewayservers"}, l.servers)
	l.gwClients = mirror.NewStore[networkingv1beta1.GatewayClient]()
	l.gwClients.Trim = func(g *networkingv1beta1.GatewayClient) {
		g.Spec, g.Status = networkingv1beta1.GatewayClientSpec{}, networkingv1beta1.GatewayClientStatus{InternalEndpoint: g.Status.InternalEndpoint}
	}
	mirror.Add(m, mirror.Watched{Client: api, Resource: "gatewayclients"}, l.gwClients)

	// There is one for every offloaded pod; those to masquerade are few.
	l.ips = mirror.NewStore[ipamv1alpha1.IP]()
	l.ips.Keep = func(ip *ipamv1alpha1.IP) bool { return ip.Spec.Masquerade != nil && *ip.Spec.Masquerade }
	l.ips.Trim = func(ip *ipamv1alpha1.IP) { ip.Spec.ServiceTemplate, ip.Status.Conditions = nil, nil }
	mirror.Add(m, mirror.Watched{Client: l.ipam, Resource: "ips"}, l.ips)

	// Those of the installation: where the pods and Services of this cluster are.
	l.networks = mirror.NewStore[ipamv1alpha1.Network]()
	l.networks.Trim = func(n *ipamv1alpha1.Network) { n.Status.Conditions = nil }
	mirror.Add(m, mirror.Watched{Client: l.ipam, Resource: "networks", Labels: ipamv1alpha1.LabelNetworkType}, l.networks)
}

// tunnelLabels selects the GeneveTunnels of a node. A name that is too long for a
// label is written there in another way; such nodes read all of them.
func tunnelLabels(node string) string {
	if len(validation.IsValidLabelValue(node)) > 0 {
		return ""
	}
	return networkingv1beta1.LabelInternalNodeName + "=" + node
}

// objects gathers what is at hand.
func (l *Link) objects() manifests.Objects {
	return manifests.Objects{
		InternalNodes:   mirror.Sourced(l.nodes),
		GeneveTunnels:   mirror.Sourced(l.tunnels),
		InternalFabrics: mirror.Sourced(l.fabrics),
		Configurations:  mirror.Sourced(l.configs),
		GatewayServers:  mirror.Sourced(l.servers),
		GatewayClients:  mirror.Sourced(l.gwClients),
		IPs:             mirror.Sourced(l.ips),
		Networks:        mirror.Sourced(l.networks),
	}
}

// Watch implements fabric.Feed. It also writes what is reported.
func (l *Link) Watch(ctx context.Context, changed func()) {
	var wg sync.WaitGroup
	wg.Go(func() { l.writer.Run(ctx) })
	wg.Go(func() { l.addresses.follow(ctx, l.networking, changed) })
	l.mirror.Run(ctx, changed)
	wg.Wait()
}

// Read implements fabric.Feed.
func (l *Link) Read(known manifests.Digest) (manifests.Reading, error) {
	r, err := l.mirror.Read(known, l.objects)
	l.heavy = l.heavy || r.Heavy
	switch {
	case err != nil:
		return r, err
	case !l.addresses.known():
		// Without them a tunnel could take the API server away.
		return manifests.Reading{}, manifests.Waiting{{Reason: "asking the API server where it is"}}
	}
	r.Heavy, l.heavy = l.heavy, false
	return r, nil
}

// Reserved implements fabric.Reserver: where the API server is, behind whatever
// address the agent knows it by.
func (l *Link) Reserved() []fabric.Reserved { return l.addresses.reserved() }

// State returns what the Link does now, for display.
func (l *Link) State() mirror.State { return l.mirror.State() }

// Disconnect closes the connections to the API server, once nothing uses the
// Link any more.
func (l *Link) Disconnect() { l.clients.Disconnect() }

// Report implements fabric.Reporter.
func (l *Link) Report(r fabric.Report) error {
	l.mu.Lock()
	l.newest = &r
	err := l.err
	l.mu.Unlock()
	l.writer.Wake()
	return err
}

// Close implements fabric.Reporter: it writes the last report.
func (l *Link) Close() { l.writer.Last() }

// errNoNode: the agent may not create it.
const errNoNode = mirror.AbsentError("there is no InternalNode of this node: the controller makes it")

// write writes the newest report where it differs from what the API server has.
func (l *Link) write(ctx context.Context, _ bool) (wrote bool, err error) {
	l.mu.Lock()
	report := l.newest
	l.mu.Unlock()
	if report == nil {
		return false, nil
	}
	wrote, err = l.patch(ctx, *report)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	return wrote, err
}

func (l *Link) patch(ctx context.Context, report fabric.Report) (wrote bool, err error) {
	live := l.nodes.Only()
	switch _, synced := l.nodes.Size(); {
	case live != nil:
	case synced:
		return false, errNoNode
	default:
		return false, nil // the first list will wake us
	}
	want, differs := report.Status(live.Status)
	if !differs {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{"status": want})
	if err != nil {
		return false, fmt.Errorf("encode InternalNode: %w", err)
	}
	err = l.networking.Patch(types.MergePatchType).Resource("internalnodes").Name(live.Name).SubResource("status").Body(patch).Do(ctx).Error()
	if err != nil {
		return false, fmt.Errorf("write InternalNode: %s", mirror.PlainError(err))
	}
	// The answer does not go into the store: the watch may have brought a newer
	// version already. Until it brings this one, to write it again is no change.
	return true, nil
}
