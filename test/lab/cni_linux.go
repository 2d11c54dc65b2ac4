package lab

import (
	"fmt"
	"net/netip"
	"strings"
)

// Where a cluster's own network ends: the address of its router, and a host of
// the Internet behind it, which knows the nodes but not the pods.
var (
	routerAddr    = netip.MustParseAddr("172.30.0.250")
	routerAddr6   = netip.MustParseAddr("fd00:30::250")
	InternetAddr  = netip.MustParseAddr("198.51.100.10")
	InternetAddr6 = netip.MustParseAddr("2001:db8::10")
)

// masquerade does what a CNI and a distribution do to a node whose tunnel is
// the agent's: pods leave the cluster with the node's address, and a packet is
// refused that comes from where its source is not routed to.
func (n *Node) masquerade() {
	nodes, nodes6 := PodCIDR, PodCIDR6
	if n.Spec.NodesSeePods {
		nodes, nodes6 = "172.30.0.0/24", "fd00:30::/64"
	}
	n.Host.Nft(fmt.Sprintf(`
table inet cni {
	chain post {
		type nat hook postrouting priority 100;
		ip saddr %[1]s ip daddr != { %[1]s, %[3]s } masquerade
		ip6 saddr %[2]s ip6 daddr != { %[2]s, %[4]s, fe80::/10, ff00::/8 } masquerade
	}
}`, PodCIDR, PodCIDR6, nodes, nodes6))
	n.Host.Sysctl("net.ipv4.conf.all.rp_filter", "1")
}

// JoinInternet adds a host that stands for the Internet: the nodes' default
// route leads to it, and it has no way to the pods.
func (c *Cluster) JoinInternet() *Host {
	h := c.lab.Host(c.Name + "-internet")
	c.Join(h, "eth0")
	h.IP("addr add %s/24 dev eth0", routerAddr)
	h.IP("addr add %s/64 dev eth0", routerAddr6)
	h.IP("addr add %s/32 dev lo", InternetAddr)
	h.IP("addr add %s/128 dev lo", InternetAddr6)
	for _, n := range c.Nodes {
		n.Host.IP("route add default via %s", routerAddr)
		n.Host.IP("-6 route add default via %s", routerAddr6)
	}
	return h
}

// Service is a Service of one address family, as kube-proxy carries it out.
type Service struct {
	Name      string
	ClusterIP netip.Addr
	Port      uint16
	// NodePort is open at the underlay address of every node; zero is none.
	NodePort uint16
	// LoadBalancer is an address that the network leads to a node.
	LoadBalancer netip.Addr
	// Backends are taken in turn. They listen on Port, too.
	Backends []netip.Addr
}

// Serve installs a Service on all nodes of the cluster, as kube-proxy does:
// what comes from outside the pods' network gets the node's address, so that
// the answer finds the way back through it.
func (c *Cluster) Serve(s Service) {
	c.lab.t.Helper()
	family, pods := "ip", PodCIDR
	if s.ClusterIP.Is6() {
		family, pods = "ip6", PodCIDR6
	}
	backends, hairpins := make([]string, len(s.Backends)), make([]string, len(s.Backends))
	for i, b := range s.Backends {
		backends[i] = fmt.Sprintf("%d : %s", i, b)
		hairpins[i] = fmt.Sprintf("%s . %s", b, b) // a pod that is its own backend
	}
	for _, n := range c.Nodes {
		node := n.Underlay
		if s.ClusterIP.Is6() {
			node = n.Underlay6
		}
		frontends := []string{
			fmt.Sprintf("%s daddr %s tcp dport %d %s saddr != %s meta mark set meta mark or 0x4000", family, s.ClusterIP, s.Port, family, pods),
			fmt.Sprintf("%s daddr %s tcp dport %d jump balance", family, s.ClusterIP, s.Port),
		}
		if s.NodePort != 0 {
			frontends = append(frontends, fmt.Sprintf("%s daddr %s tcp dport %d meta mark set meta mark or 0x4000 jump balance", family, node, s.NodePort))
		}
		if s.LoadBalancer.IsValid() {
			frontends = append(frontends, fmt.Sprintf("%s daddr %s tcp dport %d meta mark set meta mark or 0x4000 jump balance", family, s.LoadBalancer, s.Port))
		}
		n.Host.Nft(fmt.Sprintf(`
table inet kube-proxy-%s {
	chain balance { meta l4proto tcp dnat %s to numgen inc mod %d map { %s } : %d; }
	chain services {
		%s
	}
	chain pre { type nat hook prerouting priority -100; jump services; }
	chain out { type nat hook output priority -100; jump services; }
	chain post {
		type nat hook postrouting priority 100;
		meta mark and 0x4000 == 0x4000 masquerade
		%s saddr . %s daddr { %s } masquerade
	}
}`, s.Name, family, len(s.Backends), strings.Join(backends, ", "), s.Port, strings.Join(frontends, "\n\t\t"),
			family, family, strings.Join(hairpins, ", ")))
	}
}
