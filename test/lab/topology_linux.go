package lab

import (
	"fmt"
	"net"
	"net/netip"
)

// The addresses of a lab. Both clusters use the same ones inside; each maps the
// other's prefixes to free ones of its own choice.
const (
	PodCIDR       = "10.243.0.0/16"
	PodCIDR6      = "fd00:10:243::/48"
	ExternalCIDR  = "10.70.0.0/16"
	ExternalCIDR6 = "fd00:10:70::/48"

	// GatewayPort is the UDP port of the node tunnels, WireGuardPort the one of
	// the tunnel between the gateways.
	GatewayPort   = 6091
	WireGuardPort = 51840

	// TunnelMTU is the largest inner packet between the gateways, where no other is set.
	TunnelMTU = 1340
)

// Encapsulation is what a node's tunnel speaks on the wire.
type Encapsulation string

// The node ends that can be built from kernel devices.
const (
	VXLAN  Encapsulation = "vxlan"
	Geneve Encapsulation = "geneve"
)

// NodeSpec describes one node of a cluster.
type NodeSpec struct {
	// Agent leaves tunnel, routes and translation to the node agent, see
	// Node.StartFabric. What else a CNI does to such a node is done: pods leave the
	// cluster with the node's address.
	Agent bool
	// NodesSeePods has the CNI of such a node hide pods from the Internet only: other
	// nodes see their addresses.
	NodesSeePods  bool
	Encapsulation Encapsulation
	// MTU of the node's tunnel device. Zero means 1450, the most that fits the
	// underlay: then the gateway, not the node, has to deal with what exceeds
	// TunnelMTU.
	MTU int
}

// Topology is two clusters and the network between them.
type Topology struct {
	Lab  *Lab
	A, B *Cluster
}

// Cluster is one side: pods behind nodes, nodes joined to a gateway.
type Cluster struct {
	// Name is "a" or "b", and the cluster ID.
	Name string
	// Gateway is the host of the gateway; eth0 leads to the nodes, wan0 to the
	// peer.
	Gateway *Host
	Nodes   []*Node
	// RemotePod, RemotePod6 and RemoteExternal... are the peer's prefixes as this
	// cluster addresses them.
	RemotePod, RemotePod6           netip.Prefix
	RemoteExternal, RemoteExternal6 netip.Prefix
	// Underlay is the gateway's address towards the nodes, Internal its address
	// inside the node tunnels, WAN its address towards the peer.
	Underlay, Internal, WAN netip.Addr
	// MTU is the largest packet that the gateway sends to the peer: TunnelMTU, unless a test sets
	// another before it starts the gateway.
	MTU int
	// Keys of the tunnel between the gateways.
	Keys KeyPair
	// Peer is the other cluster.
	Peer *Cluster

	lab *Lab
	// lan joins the nodes and the gateway when there is more than one node.
	lan *Host
}

// Node is one node and its one pod.
type Node struct {
	Name string
	Host *Host
	Pod  *Host
	Spec NodeSpec
	// PodAddr and PodAddr6 are the pod's addresses, Underlay the address of the
	// node's encapsulated packets, Internal its address inside the tunnel.
	PodAddr, PodAddr6   netip.Addr
	PodNet, PodNet6     netip.Prefix
	Underlay, Underlay6 netip.Addr
	Internal            netip.Addr
	// VNI identifies the node's tunnel at the gateway.
	VNI int

	cluster *Cluster
	// agentDir holds the files of the node's agent, once there was one.
	agentDir string
}

// device is the name of a node's tunnel device.
const device = "gnv0"

// NewTopology builds both clusters with everything but the gateways.
func (l *Lab) NewTopology(a, b []NodeSpec) *Topology {
	l.t.Helper()
	topo := &Topology{Lab: l, A: l.newCluster("a", 1, a), B: l.newCluster("b", 2, b)}
	topo.A.Peer, topo.B.Peer = topo.B, topo.A
	l.Link(topo.A.Gateway, "wan0", topo.B.Gateway, "wan0")
	for _, c := range []*Cluster{topo.A, topo.B} {
		c.Gateway.IP("addr add %s/24 dev wan0", c.WAN)
		for i := range c.Nodes {
			c.buildNode(i)
		}
	}
	return topo
}

// SetLinkMTU gives every link between pod, node and gateway, and between the gateways, another MTU.
// Each cluster has one node, whose tunnel has the MTU of its NodeSpec.
func (t *Topology) SetLinkMTU(mtu int) {
	for _, c := range []*Cluster{t.A, t.B} {
		n := c.Nodes[0]
		for _, link := range []struct {
			host *Host
			name string
		}{{c.Gateway, "wan0"}, {c.Gateway, "eth0"}, {n.Host, "lan0"}, {n.Host, "pod0"}, {n.Pod, "eth0"}} {
			link.host.IP("link set %s mtu %d", link.name, mtu)
		}
	}
}

// newCluster fills in the addresses of cluster number id and adds its hosts.
func (l *Lab) newCluster(name string, id int, specs []NodeSpec) *Cluster {
	l.t.Helper()
	c := &Cluster{
		Name:            name,
		Gateway:         l.Host(name + "-gw"),
		RemotePod:       netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 70+id)),
		RemotePod6:      netip.MustParsePrefix(fmt.Sprintf("fd00:10:%d::/48", 70+id)),
		RemoteExternal:  netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 60+id)),
		RemoteExternal6: netip.MustParsePrefix(fmt.Sprintf("fd00:10:%d::/48", 60+id)),
		Underlay:        netip.MustParseAddr("172.30.0.254"),
		Internal:        netip.MustParseAddr("10.80.0.254"),
		WAN:             netip.AddrFrom4([4]byte{192, 0, 2, byte(id)}),
		MTU:             TunnelMTU,
		Keys:            NewKeyPair(),
		lab:             l,
	}
	if len(specs) > 1 {
		c.lan = l.Host(name + "-lan")
		c.lan.IP("link add br0 type bridge")
		c.lan.IP("link set br0 up")
		c.Join(c.Gateway, "eth0")
	}
	for i, spec := range specs {
		if spec.MTU == 0 {
			spec.MTU = 1450
		}
		number := i + 1
		c.Nodes = append(c.Nodes, &Node{
			Name:      fmt.Sprintf("node%d", number),
			Host:      l.Host(fmt.Sprintf("%s-node%d", name, number)),
			Pod:       l.Host(fmt.Sprintf("%s-pod%d", name, number)),
			Spec:      spec,
			PodNet:    netip.MustParsePrefix(fmt.Sprintf("10.243.%d.0/24", number)),
			PodNet6:   netip.MustParsePrefix(fmt.Sprintf("fd00:10:243:%d::/64", number)),
			PodAddr:   netip.MustParseAddr(fmt.Sprintf("10.243.%d.10", number)),
			PodAddr6:  netip.MustParseAddr(fmt.Sprintf("fd00:10:243:%d::10", number)),
			Underlay:  netip.MustParseAddr(fmt.Sprintf("172.30.0.%d", number)),
			Underlay6: netip.MustParseAddr(fmt.Sprintf("fd00:30::%d", number)),
			Internal:  netip.MustParseAddr(fmt.Sprintf("10.80.0.%d", number)),
			VNI:       100 + number,
			cluster:   c,
		})
	}
	return c
}

// Join connects a host to the bridge of a cluster with several nodes. The host's
// name begins with the cluster's.
func (c *Cluster) Join(h *Host, name string) {
	port := "p-" + h.Name[len(c.Name)+1:]
	c.lab.Link(h, name, c.lan, port)
	c.lan.IP("link set %s master br0", port)
}

// Remote returns the address by which this cluster reaches addr of its peer.
func (c *Cluster) Remote(addr netip.Addr) netip.Addr {
	prefix := c.RemotePod
	if addr.Is6() {
		prefix = c.RemotePod6
	}
	host, mapped := addr.AsSlice(), prefix.Addr().AsSlice()
	copy(mapped, mapped[:prefix.Bits()/8])
	copy(mapped[prefix.Bits()/8:], host[prefix.Bits()/8:])
	out, _ := netip.AddrFromSlice(mapped)
	return out
}

// remotePrefixes are all prefixes that lie behind the gateway.
func (c *Cluster) remotePrefixes() []netip.Prefix {
	return []netip.Prefix{c.RemotePod, c.RemoteExternal, c.RemotePod6, c.RemoteExternal6}
}

// buildNode joins node i to its pod, the other nodes and the gateway.
func (c *Cluster) buildNode(i int) {
	n := c.Nodes[i]
	n.Host.Forward()

	c.lab.Link(n.Pod, "eth0", n.Host, "pod0")
	n.Pod.IP("addr add %s/24 dev eth0", n.PodAddr)
	n.Pod.IP("addr add %s/64 dev eth0", n.PodAddr6)
	router, router6 := n.PodNet.Addr().Next(), n.PodNet6.Addr().Next()
	n.Host.IP("addr add %s/24 dev pod0", router)
	n.Host.IP("addr add %s/64 dev pod0", router6)
	n.Pod.IP("route add default via %s", router)
	n.Pod.IP("route add default via %s", router6)

	if c.lan != nil {
		c.Join(n.Host, "lan0")
	} else {
		c.lab.Link(n.Host, "lan0", c.Gateway, "eth0")
	}
	n.Host.IP("addr add %s/24 dev lan0", n.Underlay)
	n.Host.IP("addr add %s/64 dev lan0", n.Underlay6)
	if i == 0 {
		c.Gateway.IP("addr add %s/24 dev eth0", c.Underlay)
	}
	// What a CNI does: every node reaches the pods of every other.
	for j, other := range c.Nodes {
		if j < i {
			n.Host.IP("route add %s via %s", other.PodNet, other.Underlay)
			n.Host.IP("route add %s via %s", other.PodNet6, other.Underlay6)
			other.Host.IP("route add %s via %s", n.PodNet, n.Underlay)
			other.Host.IP("route add %s via %s", n.PodNet6, n.Underlay6)
		}
	}
	if n.Spec.Agent {
		n.masquerade()
		return
	}
	n.buildTunnel()
	n.hideUnknownSources()
}

// buildTunnel adds the node's end of the tunnel to the gateway.
func (n *Node) buildTunnel() {
	c := n.cluster
	n.Host.IP("link add %s mtu %d type vxlan id %d local %s remote %s dstport %d",
		device, n.Spec.MTU, n.VNI, n.Underlay, c.Underlay, GatewayPort)
	n.Host.IP("addr add %s/32 dev %s", n.Internal, device)
	n.Host.IP("link set %s up", device)
	n.Host.IP("route add %s/32 dev %s src %s", c.Internal, device, n.Internal)
	for _, p := range c.remotePrefixes() {
		if p.Addr().Is4() {
			n.Host.IP("route add %s via %s dev %s onlink", p, c.Internal, device)
		}
	}
	if n.Spec.Encapsulation == Geneve {
		n.speakGeneve()
	}
}

// speakGeneve turns the node's VXLAN device into a Geneve device as seen from
// the wire. The two headers differ in the first four of their eight bytes: the
// flags of VXLAN (RFC 7348 section 5) against version, option length, flags and
// protocol type of Geneve (RFC 8926 section 3.4); both carry an Ethernet frame.
//
// In a batch that the gateway sends as one UDP_SEGMENT message the rules would
// see the first datagram only, so the gateway's link must segment such a batch.
//
// A test that writes its own headers sends from a port below 1024; the kernel's
// tunnels never do.
func (n *Node) speakGeneve() {
	n.Host.Nft(fmt.Sprintf(`
table inet geneve {
	chain out { type filter hook postrouting priority 0; oifname lan0 udp sport >= 1024 udp dport %[1]d @th,64,32 set 0x00006558; }
	chain in { type filter hook prerouting priority -300; iifname lan0 udp dport %[1]d @th,64,32 set 0x08000000; }
}`, GatewayPort))
	n.cluster.Gateway.Run("ethtool", "-K", "eth0", "tx-udp-segmentation", "off")
}

// hideUnknownSources does what a node of a cluster does for traffic that comes
// from no pod: it translates the source to the first address of the external
// CIDR, the unknown-source address.
func (n *Node) hideUnknownSources() {
	c := n.cluster
	n.Host.Nft(fmt.Sprintf(`
table inet unknown-source {
	chain post {
		type nat hook postrouting priority 99;
		ip daddr { %s, %s } ip saddr != %s snat ip to %s
		ip6 daddr { %s, %s } ip6 saddr != %s snat ip6 to %s
	}
}`, c.RemotePod, c.RemoteExternal, PodCIDR, netip.MustParsePrefix(ExternalCIDR).Addr(),
		c.RemotePod6, c.RemoteExternal6, PodCIDR6, netip.MustParsePrefix(ExternalCIDR6).Addr()))
}

// LinkAddresses returns the MAC addresses of the gateway's and the node's end of
// the tunnel.
func (n *Node) LinkAddresses() (gateway, node net.HardwareAddr, err error) {
	to := n.cluster.Internal
	if _, err := n.Host.Try("ping", "-c1", "-W2", to.String()); err != nil {
		return nil, nil, fmt.Errorf("%s: the gateway's internal address does not answer: %w", n.Host.Name, err)
	}
	if gateway, err = n.Host.neighbor(to, device); err != nil {
		return nil, nil, err
	}
	err = n.Host.Do(func() error {
		link, err := net.InterfaceByName(device)
		if err == nil {
			node = link.HardwareAddr
		}
		return err
	})
	return gateway, node, err
}

// RouteIPv6 leads the node's IPv6 traffic for the peer to the gateway. A route
// needs the gateway's MAC address; there is no IPv6 address in the manifests to
// ask it for, so it is taken from the neighbor entry of the IPv4 address.
func (n *Node) RouteIPv6() error {
	mac, _, err := n.LinkAddresses()
	if err != nil {
		return err
	}
	n.Host.IP("-6 neigh replace fe80::5 lladdr %s dev %s nud permanent", mac, device)
	for _, p := range n.cluster.remotePrefixes() {
		if p.Addr().Is6() {
			n.Host.IP("-6 route replace %s via fe80::5 dev %s", p, device)
		}
	}
	return nil
}

// forgetGateway makes the nodes ask for the gateway's MAC address again: the
// next gateway has another one.
func (c *Cluster) forgetGateway() {
	c.lab.t.Helper()
	for _, n := range c.Nodes {
		if !n.Spec.Agent {
			n.Host.IP("neigh flush dev %s", device)
		}
	}
}

// LAN is the host whose bridge br0 joins the nodes and the gateway of a cluster
// with several nodes.
func (c *Cluster) LAN() *Host { return c.lan }
