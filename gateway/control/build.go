package control

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/tunnel"
)

// The two ends of every tunnel, known to both sides without an exchange.
// Each tunnel has a subnet of four addresses, one after the other, as in Liqo.
var tunnelPrefix = netip.MustParsePrefix("169.254.18.0/24")

// tunnelEnds returns the addresses of the server and of the client inside the tunnel of a place.
func tunnelEnds(place int) (server, client netip.Addr) {
	a := tunnelPrefix.Addr().As4()
	a[3] = byte(4*place + 1)
	server = netip.AddrFrom4(a)
	return server, server.Next()
}

// Gateway says which gateway the objects describe.
type Gateway struct {
	// Type is the end of the tunnel.
	Type networkingv1beta1.ConnectionType `json:"type"`
	// Kind is GatewayServer or GatewayClient.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// ClusterID is the peer's.
	ClusterID string `json:"clusterID"`
}

// Desired is what the objects ask for.
type Desired struct {
	Gateway   Gateway
	DataPlane dataplane.Config
	// Endpoint is where the port of the tunnel is written down: a Problem
	// without a reason, for an EndpointError.
	Endpoint manifests.Problem
	// Warnings are what its author should know of a state that is valid.
	Warnings manifests.Problems
	// Ignored are objects of a cluster that cannot be used and were left out.
	Ignored manifests.Problems
	// Missing is what a gateway in a cluster lacks to carry traffic. It is among
	// the warnings, too.
	Missing manifests.Problems
	// Firewall says what became of each FirewallConfiguration for this gateway.
	Firewall []FirewallReport
	// Exported are the ExportedServices among the files; in a cluster they are no part of this.
	Exported []*networkingv1beta1.ExportedService
	// Kept is that of the Reading.
	Kept time.Time
}

// Build turns objects into the configuration of the data plane. It is pure: the
// same objects give the same result, whether they come from files or from an
// API server. An error is of type manifests.Problems and refuses the whole
// state; the warnings are there all the same, as they may tell what is behind
// it. In a cluster the error may be manifests.Waiting.
//
//	situation                                        from files                from a cluster
//	------------------------------------------------------------------------------------------------------
//	no GatewayServer or GatewayClient                refused                   waits
//	several of them                                  refused                   cannot be: it has a name
//	no private key                                   refused                   waits
//	one of a wrong length                            refused                   refused
//	no PublicKey of the peer yet                     admits nobody; warning    the same
//	one of a wrong length                            refused                   left out: admits nobody
//	several                                          refused                   left out: the key in force stays
//	no Configuration                                 refused                   forwards nothing; warning
//	Configuration without a status, or an old one    used as it is: not        the CIDRs in force stay; warning
//	                                                 remapped
//	a CIDR used here overlaps another one            refused                   refused
//	InternalNode without address or GeneveTunnel     waits; warning            the same
//	route via a node that waits                      waits with its node       the same
//	IP without an address yet                        waits; warning            the same
//	IP outside of the external CIDRs                 refused                   warning: it is for others
//	FirewallConfiguration with what cannot be        refused                   left out as a whole; what was in
//	done here                                                                  force of it stays
//	object of another peer                           refused                   not asked for
//	two objects that contradict each other           refused                   the newer one is left out
//	object that is being deleted                     cannot be                 counts as gone
func Build(objects Objects) (Desired, error) {
	b := builder{objects: objects}
	if b.gateway() {
		b.privateKey()
		b.peerKey()
		b.configuration()
		b.fabric()
		b.nodes()
		b.addresses()
		b.routes()
		b.firewall()
		b.exported()
		b.mtu()
		b.reach()
	}
	b.warnings = b.warnings.Condensed()
	if err := b.problems.OrNil(); err != nil {
		return Desired{Warnings: b.warnings}, err
	}
	if len(b.waiting) > 0 {
		return Desired{Gateway: b.desired.Gateway, Warnings: b.warnings}, manifests.Waiting(b.waiting)
	}
	b.desired.Warnings = b.warnings
	return b.desired, nil
}

// builder holds what the steps of Build share.
type builder struct {
	objects  Objects
	desired  Desired
	problems manifests.Problems
	warnings manifests.Problems
	waiting  manifests.Problems

	gatewayRef manifests.Ref
	secretName string // from the gateway's spec; empty: find it by its label
	used       []usedPrefix
	byInternal map[netip.Addr]string    // node, by its address towards the gateway
	byLink     map[string]string        // node, by the name of the gateway's link to it
	ready      map[string]bool          // nodes that can be sent to
	nodeRefs   map[string]manifests.Ref // InternalNodes, by name
}

func (b *builder) fail(r manifests.Ref, path *field.Path, format string, args ...any) {
	b.problems = append(b.problems, r.Problem(path, format, args...))
}

func (b *builder) warn(r manifests.Ref, path *field.Path, format string, args ...any) {
	b.warnings = append(b.warnings, r.Problem(path, format, args...))
}

var (
	labelsPath   = field.NewPath("metadata", "labels")
	endpointPath = field.NewPath("spec", "endpoint")
	mtuPath      = field.NewPath("spec", "mtu")
)

// gateway finds the one gateway and sets the tunnel's addresses. Without one
// nothing else can be checked.
func (b *builder) gateway() bool {
	servers, clients := b.objects.GatewayServers, b.objects.GatewayClients
	switch {
	case len(servers)+len(clients) == 0 && b.inCluster():
		b.wait(manifests.Problem{Reason: "the GatewayServer or GatewayClient of this gateway does not exist"})
		return false
	case len(servers)+len(clients) == 0:
		b.problems = append(b.problems, manifests.Problem{Reason: "no GatewayServer or GatewayClient: exactly one is needed"})
		return false
	case len(servers)+len(clients) > 1:
		var first string
		tooMany := func(r manifests.Ref) {
			if first == "" {
				first = r.Problem(nil, "the other one").String()
				return
			}
			b.fail(r, nil, "is a second gateway (%s): a gateway process serves one peering", first)
		}
		for _, s := range servers {
			tooMany(manifests.RefTo("GatewayServer", s, &s.Object.ObjectMeta))
		}
		for _, s := range clients {
			tooMany(manifests.RefTo("GatewayClient", s, &s.Object.ObjectMeta))
		}
		return false
	case len(servers) == 1:
		b.server(servers[0])
	default:
		b.client(clients[0])
	}
	g := b.gatewayRef
	b.desired.Gateway.Kind, b.desired.Gateway.Namespace, b.desired.Gateway.Name = g.Kind, g.Meta.Namespace, g.Meta.Name
	b.desired.Gateway.ClusterID = g.Meta.Labels[networkingv1beta1.LabelRemoteClusterID]
	path := labelsPath.Key(networkingv1beta1.LabelRemoteClusterID)
	if id := b.desired.Gateway.ClusterID; id == "" {
		b.fail(g, path, "is required: the peer's cluster ID")
	} else if why := validation.IsValidLabelValue(id); len(why) > 0 {
		b.fail(g, path, "%q is not a label value: %s", id, why[0])
	} else if b.inCluster() && id != b.objects.Cluster.ClusterID {
		b.fail(g, path, "is %q, but this gateway was started for %q: delete its pod once its Deployment says --remote-cluster-id=%s",
			id, b.objects.Cluster.ClusterID, id)
	}
	return true
}

func (b *builder) server(s manifests.Sourced[networkingv1beta1.GatewayServer]) {
	spec := &s.Object.Spec
	b.gatewayRef = manifests.RefTo("GatewayServer", s, &s.Object.ObjectMeta)
	b.desired.Gateway.Type = networkingv1beta1.ConnectionServer
	b.secretName = spec.SecretRef.Name
	c := &b.desired.DataPlane
	c.MTU = spec.MTU
	ports := b.ports(spec.Endpoint.Port, spec.Endpoint.Ports)
	for i, port := range ports {
		if port.number == b.objects.NodePort && port.number != 0 {
			b.fail(b.gatewayRef, port.path, "UDP port %d is asked for twice: by --geneve-port and by the endpoint of the GatewayServer", port.number)
		}
		server, client := tunnelEnds(i)
		if i == 0 {
			c.TunnelAddr, c.PeerTunnelAddr, c.Tunnel.ListenPort = server, client, port.number
			continue
		}
		c.Further = append(c.Further, dataplane.TunnelEnds{Own: server, Peer: client})
		c.Tunnel.Further = append(c.Tunnel.Further, tunnel.Further{ListenPort: port.number})
	}
	b.oneOf(endpointPath.Child("serviceType"), string(spec.Endpoint.ServiceType), "ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
}

func (b *builder) client(s manifests.Sourced[networkingv1beta1.GatewayClient]) {
	spec := &s.Object.Spec
	b.gatewayRef = manifests.RefTo("GatewayClient", s, &s.Object.ObjectMeta)
	b.desired.Gateway.Type = networkingv1beta1.ConnectionClient
	b.secretName = spec.SecretRef.Name
	c := &b.desired.DataPlane
	c.MTU = spec.MTU
	ports := b.ports(spec.Endpoint.Port, spec.Endpoint.Ports)
	if b.oneOf(endpointPath.Child("protocol"), string(spec.Endpoint.Protocol), "TCP", "UDP"); spec.Endpoint.Protocol == "TCP" {
		b.fail(b.gatewayRef, endpointPath.Child("protocol"), "is TCP: WireGuard runs over UDP")
	}
	path := endpointPath.Child("addresses")
	switch addresses := spec.Endpoint.Addresses; len(addresses) {
	case 0:
		b.fail(b.gatewayRef, path, "is required: where the GatewayServer of the peer is reached")
	default:
		if len(addresses) > 1 {
			b.warn(b.gatewayRef, path, "only the first of %d addresses is used", len(addresses))
		}
		if why := badHost(addresses[0]); why != "" {
			b.fail(b.gatewayRef, path.Index(0), "%q %s", addresses[0], why)
		}
		for i, port := range ports {
			server, client := tunnelEnds(i)
			endpoint := net.JoinHostPort(addresses[0], strconv.Itoa(int(port.number)))
			if i == 0 {
				c.TunnelAddr, c.PeerTunnelAddr, c.Tunnel.Endpoint = client, server, endpoint
				continue
			}
			c.Further = append(c.Further, dataplane.TunnelEnds{Own: client, Peer: server})
			c.Tunnel.Further = append(c.Tunnel.Further, tunnel.Further{Endpoint: endpoint})
		}
	}
}

// oneOf checks a field of the gateway that takes one of a few words, as an API
// server does. Empty is the default.
func (b *builder) oneOf(path *field.Path, value string, words ...string) {
	if value != "" && !slices.Contains(words, value) {
		b.fail(b.gatewayRef, path, "%q is none of %s", value, strings.Join(words, ", "))
	}
}

// badHost says why a host is neither an address nor a DNS name.
func badHost(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		_, why := manifests.ParseAddr(host)
		return why
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return "must be without a port: that is spec.endpoint.port"
	}
	// Real zones have capitals and underscores. A name without a letter is a
	// mistyped address.
	name := strings.ReplaceAll(strings.ToLower(host), "_", "-")
	if len(validation.IsDNS1123Subdomain(name)) > 0 || !strings.ContainsAny(name, "abcdefghijklmnopqrstuvwxyz") {
		return "is neither an IP address nor a DNS name"
	}
	return ""
}

// endpointPort is a port of an endpoint, and where it is written.
type endpointPort struct {
	number uint16
	path   *field.Path
}

// ports takes the single port, or several: each is a tunnel. There is one at least; one that is
// wrong is zero.
func (b *builder) ports(port int32, several []int32) (ports []endpointPort) {
	path := endpointPath.Child("port")
	defer func() { b.desired.Endpoint = b.gatewayRef.Problem(ports[0].path, "") }()
	wrong := []endpointPort{{path: path}}
	switch {
	case port != 0 && len(several) > 0:
		b.fail(b.gatewayRef, path, "port and ports exclude each other")
		return wrong
	case port == 0 && len(several) == 0:
		b.fail(b.gatewayRef, path, "is required")
		return wrong
	case len(several) > tunnel.MaxTunnels:
		b.fail(b.gatewayRef, endpointPath.Child("ports"), "has %d ports, the most are %d", len(several), tunnel.MaxTunnels)
		return wrong
	case port != 0:
		several = []int32{port}
	default:
		path = endpointPath.Child("ports")
	}
	for i, p := range several {
		at := path
		if port == 0 {
			at = path.Index(i)
		}
		number := uint16(p)
		if p < 1 || p > 65535 {
			b.fail(b.gatewayRef, at, "%d is not a UDP port: 1 to 65535", p)
			number = 0
		}
		if slices.Index(several, p) < i {
			b.fail(b.gatewayRef, at, "%d stands there twice", p)
		}
		ports = append(ports, endpointPort{number, at})
	}
	return ports
}

// sameNamespace checks that a key is the gateway's: another namespace is another
// tenant.
func (b *builder) sameNamespace(r manifests.Ref) {
	if own, other := b.gatewayRef.Meta.Namespace, r.Meta.Namespace; own != "" && other != "" && own != other {
		b.fail(r, field.NewPath("metadata", "namespace"), "is %q, but that of %s is %q", other, b.gatewayRef.Problem(nil, "").Object, own)
	}
}

// peerLabel checks that an object belongs to the gateway's peer.
func (b *builder) peerLabel(r manifests.Ref, required bool) {
	id, labelled := r.Meta.Labels[networkingv1beta1.LabelRemoteClusterID]
	path := labelsPath.Key(networkingv1beta1.LabelRemoteClusterID)
	switch {
	case !labelled && required:
		b.fail(r, path, "is required: the peer's cluster ID")
	case labelled && id != b.desired.Gateway.ClusterID && b.desired.Gateway.ClusterID != "":
		b.fail(r, path, "is %q, but the peer of %s is %q", id, b.gatewayRef.Problem(nil, "").Object, b.desired.Gateway.ClusterID)
	}
}

// exported takes the Services that the peer may use.
func (b *builder) exported() {
	for _, e := range b.objects.ExportedServices {
		r := manifests.RefTo("ExportedService", e, &e.Object.ObjectMeta)
		b.peerLabel(r, false)
		if name := e.Object.Spec.ObjectName(); e.Object.Name != name {
			b.fail(r, field.NewPath("metadata", "name"), "must be %q: spec.namespace, a dot and spec.name", name)
		}
		b.desired.Exported = append(b.desired.Exported, e.Object)
	}
}

// mtu checks the size of the tunnel once it is known whether IPv6 passes it.
func (b *builder) mtu() {
	c := &b.desired.DataPlane
	if c.MTU == 0 {
		c.MTU = dataplane.DefaultMTU
	}
	least, why := dataplane.MinMTU, ""
	for _, p := range b.used {
		if p.prefix.Addr().Is6() {
			least, why = dataplane.MinMTUIPv6, fmt.Sprintf(" (IPv6 is in use: %s)", p.prefix)
			break
		}
	}
	if c.MTU < least || c.MTU > dataplane.MaxMTU {
		b.fail(b.gatewayRef, mtuPath, "%d is out of range: %d to %d%s", c.MTU, least, dataplane.MaxMTU, why)
	}
	for _, f := range b.objects.InternalFabrics {
		if m := f.Object.Spec.MTU; m != 0 && m != c.MTU {
			b.warn(manifests.RefTo("InternalFabric", f, &f.Object.ObjectMeta), mtuPath, "is %d, but the gateway's is %d, which is used", m, c.MTU)
		}
	}
}

// reach sets what the peer may send from: its real prefixes and its end of the
// tunnel. WireGuard drops everything else.
func (b *builder) reach() {
	c := &b.desired.DataPlane
	var remote []netip.Prefix
	for _, m := range c.Remote {
		remote = append(remote, m.Outside)
	}
	with := func(peer netip.Addr) []netip.Prefix {
		return append(slices.Clip(remote), netip.PrefixFrom(peer, peer.BitLen()))
	}
	c.Tunnel.AllowedIPs = with(c.PeerTunnelAddr)
	for i := range c.Tunnel.Further {
		c.Tunnel.Further[i].AllowedIPs = with(c.Further[i].Peer)
	}
}
