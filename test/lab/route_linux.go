package lab

import "fmt"

// RemoveTunnel takes the kernel's tunnel from a node that was built with one, and
// what belongs to it: for an agent that makes its own, or for plain routes.
func (n *Node) RemoveTunnel() {
	n.cluster.lab.t.Helper()
	n.Host.IP("link del %s", device)
	n.Host.Nft("delete table inet unknown-source\n")
	if n.Spec.Encapsulation == Geneve {
		n.Host.Nft("delete table inet geneve\n")
	}
	n.Spec.Agent = true
}

// RestoreTunnel undoes RemoveTunnel.
func (n *Node) RestoreTunnel() {
	n.cluster.lab.t.Helper()
	n.Spec.Agent = false
	n.buildTunnel()
	n.hideUnknownSources()
}

// Route joins the clusters by routes alone, which is what the kernel's own way
// from pod to pod costs. It returns what undoes that.
func (t *Topology) Route() (stop func()) {
	t.Lab.t.Helper()
	a := t.A.route(fmt.Sprintf("via %s", t.B.WAN))
	b := t.B.route(fmt.Sprintf("via %s", t.A.WAN))
	return func() {
		a()
		b()
		t.A.Gateway.stopForwarding()
		t.B.Gateway.stopForwarding()
	}
}

// route leads what is for the peer's pods through the gateway and out by next.
// Nothing is translated: pods have, beside their own address, the one by which the
// peer knows them, and use it. The MTU is that of a tunnel, so that packets have the
// same size as through one.
func (c *Cluster) route(next string) (undo func()) {
	c.lab.t.Helper()
	gw, remote := c.Gateway, c.RemotePod
	gw.Forward()
	gw.IP("route add %s %s", remote, next)
	for _, n := range c.Nodes {
		known, router := c.Peer.Remote(n.PodAddr), n.PodNet.Addr().Next()
		n.RemoveTunnel()
		n.Pod.IP("addr add %s/32 dev eth0", known)
		n.Pod.IP("route add %s via %s src %s mtu %d", remote, router, known, c.MTU)
		n.Host.IP("route add %s/32 dev pod0", known)
		n.Host.IP("route add %s via %s", remote, c.Underlay)
		gw.IP("route add %s/32 via %s", known, n.Underlay)
	}
	return func() {
		// That of a device which has gone by itself went with it.
		_, _ = gw.Try("ip", "route", "del", remote.String())
		for _, n := range c.Nodes {
			known := c.Peer.Remote(n.PodAddr)
			n.Pod.IP("route del %s", remote)
			n.Pod.IP("addr del %s/32 dev eth0", known)
			n.Host.IP("route del %s/32", known)
			n.Host.IP("route del %s", remote)
			gw.IP("route del %s/32", known)
			n.RestoreTunnel()
		}
	}
}

// Cut drops all packets between the gateways, each way, until the returned function is
// called.
func (t *Topology) Cut() (join func()) {
	t.Lab.t.Helper()
	for _, c := range []*Cluster{t.A, t.B} {
		c.Gateway.Nft(`
table netdev cut {
	chain in { type filter hook ingress device wan0 priority 0; policy drop; }
}`)
	}
	return func() {
		for _, c := range []*Cluster{t.A, t.B} {
			c.Gateway.Nft("delete table netdev cut\n")
		}
	}
}

// Lose drops a share of the packets between the gateways, each way, until the
// returned function is called. It needs no netem, which many kernels lack. What is
// lost is single packets: the link does not carry super-packets meanwhile, which
// costs a gateway's kernel some time.
func (t *Topology) Lose(percent int) (stop func()) {
	t.Lab.t.Helper()
	offload := func(state string) {
		for _, c := range []*Cluster{t.A, t.B} {
			c.Gateway.Run("ethtool", "-K", "wan0", "tx-udp-segmentation", state, "tso", state, "gso", state)
		}
	}
	offload("off")
	for _, c := range []*Cluster{t.A, t.B} {
		c.Gateway.Nft(fmt.Sprintf(`
table netdev loss {
	chain in { type filter hook ingress device wan0 priority 0; ether type ip numgen random mod 100 < %d drop; }
}`, percent))
	}
	return func() {
		for _, c := range []*Cluster{t.A, t.B} {
			c.Gateway.Nft("delete table netdev loss\n")
		}
		offload("on")
	}
}
