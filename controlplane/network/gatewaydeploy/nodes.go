package gatewaydeploy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// maxNodePrefixes bounds a NetworkPolicy: it is written anew for every gateway
// when a node comes, and CNIs make something of each of its entries. Beyond it
// prefixes grow, and let in neighbors of nodes, too; the gateway itself takes
// packets of known nodes only.
const maxNodePrefixes = 256

// widestNodePrefix is how many bits an address and a prefix of nodes share at least.
const widestNodePrefix = 8

// nodePrefixes are the addresses from which the nodes' tunnels come. A Node has
// its addresses before the agent runs there, so a new one is let in early. The
// agent then says in the InternalNode which address its packets really have: on an
// overlay network it is another one.
func nodePrefixes(nodes []corev1.Node, internal []networkingv1beta1.InternalNode) []netip.Prefix {
	var addrs []netip.Addr
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsLoopback() && !a.IsUnspecified() {
			addrs = append(addrs, a.Unmap().WithZone(""))
		}
	}
	for i := range nodes {
		if nodes[i].Labels[networkingv1beta1.LabelNodeType] == networkingv1beta1.NodeTypeVirtual {
			continue // it has the address of a pod
		}
		for _, a := range nodes[i].Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				add(a.Address)
			}
		}
	}
	for i := range internal {
		add(string(internal[i].Status.NodeIP.Local))
		add(string(internal[i].Status.NodeIP.Remote))
	}
	return covering(addrs, maxNodePrefixes)
}

// covering returns prefixes that hold the addresses, sorted. They hold nothing else
// as long as there are no more than limit of them.
func covering(addrs []netip.Addr, limit int) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		prefixes[i] = netip.PrefixFrom(a, a.BitLen())
	}
	prefixes = joined(prefixes)
	for bits := 127; len(prefixes) > limit && bits >= widestNodePrefix; bits-- {
		for i, p := range prefixes {
			if p.Bits() > bits {
				prefixes[i] = netip.PrefixFrom(p.Addr(), bits).Masked()
			}
		}
		prefixes = joined(prefixes)
	}
	return prefixes
}

// joined sorts prefixes, drops those that others hold, and joins two halves of one.
func joined(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	out := prefixes[:0:0]
	for _, p := range prefixes {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) && out[n-1].Bits() <= p.Bits() {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1; n = len(out) {
			a, b := out[n-2], out[n-1]
			whole := netip.PrefixFrom(a.Addr(), max(a.Bits()-1, 0)).Masked()
			if a.Bits() == 0 || a.Bits() != b.Bits() || !whole.Contains(b.Addr()) || whole.Addr() != a.Addr() {
				break
			}
			out = append(out[:n-2], whole)
		}
	}
	return out
}
