package doctor

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// named is a prefix and what it is.
type named struct {
	what   string
	prefix netip.Prefix
}

// granted are the prefixes of Networks of one kind. What cannot be read as a
// prefix is left out: the API server refuses such.
func granted(what string, networks []survey.Network) (out []named) {
	for _, n := range networks {
		if p, err := netip.ParsePrefix(n.CIDR); err == nil {
			out = append(out, named{what, p.Masked()})
		}
	}
	return out
}

// own are the prefixes that the cluster itself uses.
func (c *cluster) own() []named {
	return slices.Concat(granted("pod CIDR", c.Networks.Pod), granted("service CIDR", c.Networks.Service),
		granted("external CIDR", c.Networks.External), granted("internal CIDR", c.Networks.Internal))
}

// hosts are the nodes that are machines. Those that stand for a remote cluster have the
// address of a pod, no part in the internal network, and no pods of this cluster.
func (c *cluster) hosts() (out []*corev1.Node) {
	for i := range c.nodes.items {
		if n := &c.nodes.items[i]; n.Labels[networkingv1beta1.LabelNodeType] != networkingv1beta1.NodeTypeVirtual {
			out = append(out, n)
		}
	}
	return out
}

// nodeAddresses are the addresses of the hosts, as prefixes of one address.
func (c *cluster) nodeAddresses() (out []named) {
	for _, n := range c.hosts() {
		for _, a := range n.Status.Addresses {
			if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
				continue
			}
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				out = append(out, named{"address of node " + n.Name, netip.PrefixFrom(ip, ip.BitLen())})
			}
		}
	}
	return out
}

// nodeWith is the host that has an address.
func (c *cluster) nodeWith(a netip.Addr) (named, bool) {
	return clash(netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), c.nodeAddresses())
}

// clash is the first of others that overlaps with p.
func clash(p netip.Prefix, others []named) (named, bool) {
	for _, o := range others {
		if p.Overlaps(o.prefix) {
			return o, true
		}
	}
	return named{}, false
}

// contains tells whether one of the prefixes holds the address.
func contains(ps []named, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p named) bool { return p.prefix.Contains(a.Unmap()) })
}

func prefixesOf(ps []named) (out []netip.Prefix) {
	for _, p := range ps {
		out = append(out, p.prefix)
	}
	return out
}

// parsed are the prefixes of a field of a Configuration. What is no prefix is
// told by its condition.
func parsed(cidrs networkingv1beta1.CIDRs) (out []netip.Prefix) {
	for _, c := range cidrs.List {
		if p, err := c.Prefix(); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// samePrefixes compares without regard to order.
func samePrefixes(a, b []netip.Prefix) bool {
	if len(a) != len(b) {
		return false
	}
	return !slices.ContainsFunc(a, func(p netip.Prefix) bool { return !slices.Contains(b, p) })
}

func prefixText(ps []netip.Prefix) string { return cmp.Or(text.Join(ps, ", "), "nothing") }
