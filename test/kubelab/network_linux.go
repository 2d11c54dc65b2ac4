package kubelab

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/test/lab"
)

// wanAddr is the WAN host's.
var wanAddr = netip.MustParseAddr("203.0.113.1")

// LANs holds the LANs of all clusters, and routerHost, planeHost and firstNode are hosts
// of each, by the last byte of the address.
const (
	LANs = "192.168.0.0/16"

	routerHost = 1
	planeHost  = 2
	firstNode  = 11
)

const apiPort = 6443

// Internet is a host outside of all clusters, which serves HTTP at the ports 80
// and 443. It is what liqoctl test network asks, where it really is one.
const Internet = "1.1.1.1"

// publicAddr is where the router of a cluster is on the WAN: .10, .20, ...
func publicAddr(cluster int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(10 * (cluster + 1))})
}

// lanAddr is the address of a host on the LAN, which is 192.168.50.0/24 in every cluster
// unless Options.Routed has each use its own.
func (c *Cluster) lanAddr(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, byte(50 + c.lan), byte(host)})
}

// nodeAddr is the address of a node, counted from 0.
func (c *Cluster) nodeAddr(node int) netip.Addr { return c.lanAddr(firstNode + node) }

// podNet is the part of PodCIDR that belongs to a node, counted from 0.
func podNet(node int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 243, byte(node), 0}), 24)
}

// lanAddr6, nodeAddr6 and podNet6 are what lanAddr, nodeAddr and podNet are, of IPv6.
func (c *Cluster) lanAddr6(host int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d", 50+c.lan, host))
}

func (c *Cluster) nodeAddr6(node int) netip.Addr { return c.lanAddr6(firstNode + node) }

func podNet6(node int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("fd00:243:0:%d::/64", node))
}

// podNets are those of a node.
func (o *Options) podNets(node int) []string {
	nets := []string{podNet(node).String()}
	if o.DualStack {
		nets = append(nets, podNet6(node).String())
	}
	return nets
}

// families joins a value of IPv4 and, where there is that, the one of IPv6, as options of Kubernetes have them.
func (o *Options) families(four, six string) string {
	if o.DualStack {
		return four + "," + six
	}
	return four
}

// buildWAN makes the bridge that joins the routers, and the Internet behind it.
func (l *Lab) buildWAN(web string) {
	l.WAN.IP("link add br0 type bridge")
	l.WAN.IP("addr add %s/24 dev br0", wanAddr)
	l.WAN.IP("link set br0 up")
	l.WAN.IP("addr add %s/32 dev lo", Internet)
	l.WAN.Start(lab.Program{
		Name: "internet", Args: []string{web, "-listen", Internet + ":80," + Internet + ":443"}, Log: filepath.Join(l.Dir, "internet.log"), Worthless: true,
	})
}

// buildRouter makes the cluster's router: a bridge that is the LAN, and address
// translation to the WAN. From there the API server and, as UDP, the node ports
// of one node can be reached.
func (c *Cluster) buildRouter() {
	r := c.Router
	r.Forward()
	port := "w-" + c.Name
	c.lab.Link(r, "wan0", c.lab.WAN, port)
	c.lab.WAN.IP("link set %s master br0", port)
	r.IP("addr add %s/24 dev wan0", c.Public)
	r.IP("route add default via %s", wanAddr)
	r.IP("link add br0 type bridge")
	r.IP("addr add %s/24 dev br0", c.lanAddr(routerHost))
	r.IP("link set br0 up")
	// What one node says to another passes the bridge, not the router. A kernel without this filter has no such setting.
	_ = r.TrySysctl("net.bridge.bridge-nf-call-iptables", "0")
	r.Nft(fmt.Sprintf(`
table ip router {
	chain pre {
		type nat hook prerouting priority dstnat;
		ip daddr %[1]s tcp dport %[2]d dnat to %[3]s
	}
	chain post {
		type nat hook postrouting priority srcnat;
		oifname wan0 ip daddr != %[4]s masquerade
	}
}`, c.Public, apiPort, c.lanAddr(planeHost), LANs))
	if c.lab.options.Routed {
		for i := range c.lab.options.Clusters {
			if i != c.lan {
				r.IP("route add 192.168.%d.0/24 via %s", 50+i, publicAddr(i))
			}
		}
	}
	if err := c.leadPorts(c.Nodes[0]); err != nil {
		c.lab.t.Fatal(err)
	}
	c.buildPlaneHost()
}

// leadPorts makes the router lead the node ports to a node. What it has tracked
// before belongs to another zone, so it holds for flows under way, too.
func (c *Cluster) leadPorts(n *Node) error {
	c.ports = n
	return c.Router.TryNft(fmt.Sprintf(`
table ip ports
delete table ip ports
table ip ports {
	chain zone {
		type filter hook prerouting priority raw;
		iifname wan0 udp dport 30000-32767 ct zone set %[3]d
		iifname br0 ip saddr %[2]s udp sport 30000-32767 ct zone set %[3]d
	}
	chain pre {
		type nat hook prerouting priority dstnat;
		ip daddr %[1]s udp dport 30000-32767 dnat to %[2]s
	}
}`, c.Public, n.Addr, n.index+1))
}

// leadPortsAway does what a load balancer does when a node is lost: the node ports
// lead to one that lives, if there is one, and stay there when the node is back.
func (c *Cluster) leadPortsAway(lost *Node) error {
	if c.ports != lost {
		return nil
	}
	for _, n := range c.Nodes {
		if n != lost && n.init.Running() {
			return c.leadPorts(n)
		}
	}
	return nil
}

// LeadPorts has the router lead the node ports to the node.
func (n *Node) LeadPorts() {
	n.cluster.lab.t.Helper()
	if err := n.cluster.leadPorts(n); err != nil {
		n.cluster.lab.t.Fatal(err)
	}
}

// Cut takes the node off the LAN; its processes go on. If the router led node ports to
// it, they lead to another node.
func (n *Node) Cut() { n.impair("iifname eth0 drop", "oifname eth0 drop") }

// CutFromAPIServer takes what the node and its pods and the API server send to each other by
// connections to that away, and nothing else. Node ports lead to another node, as with a load balancer that goes by
// which nodes are ready.
func (n *Node) CutFromAPIServer() {
	n.impair(fmt.Sprintf("ip saddr %s tcp sport %d drop", n.cluster.lanAddr(planeHost), apiPort), fmt.Sprintf("ip daddr %s tcp dport %d drop", n.cluster.lanAddr(planeHost), apiPort))
}

// Mend undoes Cut and CutFromAPIServer. Node ports stay where they are.
func (n *Node) Mend() { n.filter("accept", "accept") }

func (n *Node) impair(in, out string) {
	n.cluster.lab.t.Helper()
	n.filter(in, out)
	if err := n.cluster.leadPortsAway(n); err != nil {
		n.cluster.lab.t.Fatal(err)
	}
}

// filter sets a rule for what comes to the node, and one for what leaves it or its pods.
func (n *Node) filter(in, out string) {
	n.cluster.lab.t.Helper()
	err := n.Host.TryNft(fmt.Sprintf(`
table ip cut
delete table ip cut
table ip cut {
	chain in {
		type filter hook prerouting priority raw;
		%s
	}
	chain out {
		type filter hook postrouting priority filter;
		%s
	}
}`, in, out))
	if err != nil {
		n.cluster.lab.t.Fatal(err)
	}
}

// buildPlaneHost joins the control plane's host to the LAN. It has routes to the
// pods, for the API server's proxy and webhooks.
func (c *Cluster) buildPlaneHost() {
	c.lab.Link(c.plane, "eth0", c.Router, "plane")
	c.Router.IP("link set plane master br0")
	c.plane.IP("addr add %s/24 dev eth0", c.lanAddr(planeHost))
	c.plane.IP("route add default via %s", c.lanAddr(routerHost))
	for i := range c.Nodes {
		c.plane.IP("route add %s via %s", podNet(i), c.nodeAddr(i))
	}
	if c.lab.options.DualStack {
		c.plane.IP("addr add %s/64 dev eth0 nodad", c.lanAddr6(planeHost))
		for i := range c.Nodes {
			c.plane.IP("route add %s via %s", podNet6(i), c.nodeAddr6(i))
		}
	}
}

// port is the router's end of the link to the node.
func (n *Node) port() string { return fmt.Sprintf("node%d", n.index+1) }

// join connects the node to the LAN, with routes to the pods of the other nodes
// and address translation for its own pods on the way to anywhere else, which is
// what its CNI's plugins leave out.
func (n *Node) join() error {
	commands := []string{
		fmt.Sprintf("link add eth0 type veth peer name %s netns %s", n.port(), n.cluster.Router.Namespace()),
		fmt.Sprintf("addr add %s/24 dev eth0", n.Addr),
		"link set eth0 up",
		fmt.Sprintf("route add default via %s", n.cluster.lanAddr(routerHost)),
	}
	for i := range n.cluster.Nodes {
		if i != n.index {
			commands = append(commands, fmt.Sprintf("route add %s via %s", podNet(i), n.cluster.nodeAddr(i)))
		}
	}
	if n.cluster.lab.options.DualStack {
		commands = append(commands, fmt.Sprintf("addr add %s/64 dev eth0 nodad", n.cluster.nodeAddr6(n.index)))
		for i := range n.cluster.Nodes {
			if i != n.index {
				commands = append(commands, fmt.Sprintf("route add %s via %s", podNet6(i), n.cluster.nodeAddr6(i)))
			}
		}
		if err := n.Host.TrySysctl("net.ipv6.conf.all.forwarding", "1"); err != nil {
			return err
		}
	}
	for _, command := range commands {
		if err := ip(n.Host, command); err != nil {
			return err
		}
	}
	if err := ip(n.cluster.Router, fmt.Sprintf("link set %s master br0 up", n.port())); err != nil {
		return err
	}
	if err := n.Host.TrySysctl("net.ipv4.ip_forward", "1"); err != nil {
		return err
	}
	return n.Host.TryNft(fmt.Sprintf(`
table ip cni {
	chain post {
		type nat hook postrouting priority 101;
		oifname eth0 ip saddr %[1]s ip daddr != %[1]s masquerade
	}
}`, PodCIDR))
}

// ip runs iproute2 with arguments in one string.
func ip(h *lab.Host, command string) error {
	if out, err := h.Try(append([]string{"ip"}, strings.Fields(command)...)...); err != nil {
		return fmt.Errorf("%s: ip %s: %w: %s", h.Name, command, err, out)
	}
	return nil
}

// Lose lets the WAN drop this share of the packets between the clusters, of each
// direction on its own. Only UDP is meant, which is what peerings are made of:
// the administrator still reaches the API servers, and so do the clusters.
func (l *Lab) Lose(percent int) {
	l.impair(fmt.Sprintf("meta l4proto udp numgen random mod 100 < %d drop", percent))
}

// Cut takes the WAN between the clusters away, as Lose does with every packet.
func (l *Lab) Cut() { l.impair("meta l4proto udp drop") }

// Isolate takes it away for everything, so that no cluster reaches the API server
// of another one, either. The administrator still reaches all of them.
func (l *Lab) Isolate() {
	l.impair(fmt.Sprintf("ip saddr %s-%s drop", publicAddr(0), publicAddr(len(l.Clusters)-1)))
}

// Mend undoes Lose, Cut and Isolate.
func (l *Lab) Mend() { l.impair("accept") }

// impair adds a rule for what comes to the routers from the WAN.
func (l *Lab) impair(rule string) {
	l.t.Helper()
	for _, c := range l.Clusters {
		c.Router.Nft(fmt.Sprintf(`
table ip wan
delete table ip wan
table ip wan {
	chain in {
		type filter hook prerouting priority raw;
		iifname wan0 %s
	}
}`, rule))
	}
}
