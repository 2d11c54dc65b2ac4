package hostnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// What a Link asks of the kernel beside the link itself.

// maxName is IFNAMSIZ without its final zero.
const maxName = 15

// minIPv6MTU is what IPv6 demands of a link (RFC 8200, section 5); the kernel
// takes IPv6 away from links with less.
const minIPv6MTU = 1280

// check finds what the kernel would refuse, or take and not mean the same.
func (l *Link) check() error {
	switch {
	case !strings.HasPrefix(l.Name, LinkPrefix) || len(l.Name) == len(LinkPrefix) || len(l.Name) > maxName || strings.ContainsAny(l.Name, "/: \t\n%"):
		return fmt.Errorf("the name must be %q and 1 to %d further bytes", LinkPrefix, maxName-len(LinkPrefix))
	case len(l.Owner) > MaxOwner:
		return fmt.Errorf("owner %q is longer than %d bytes", l.Owner, MaxOwner)
	case !slices.Contains(Kinds, l.Kind):
		return fmt.Errorf("kind %q: there are %v", l.Kind, Kinds)
	case l.VNI >= 1<<24:
		return fmt.Errorf("VNI %d does not fit into 24 bits", l.VNI)
	case l.Port == 0:
		return fmt.Errorf("no UDP port")
	case !usable(l.Gateway):
		return fmt.Errorf("gateway %v is not the address of a host", l.Gateway)
	case !usable(l.Address) || !usable(l.GatewayAddress) || l.Address.Is4() != l.GatewayAddress.Is4():
		return fmt.Errorf("address %v and gateway address %v must be addresses of hosts and of one family", l.Address, l.GatewayAddress)
	case l.Address == l.GatewayAddress:
		return fmt.Errorf("node and gateway have the same address %v", l.Address)
	case l.MTU < 576 || l.MTU > 65535:
		return fmt.Errorf("MTU %d is outside of 576 to 65535", l.MTU)
	case l.ipv6() && l.MTU < minIPv6MTU:
		return fmt.Errorf("MTU %d is too small for IPv6, which needs %d", l.MTU, minIPv6MTU)
	}
	for _, p := range l.Routes {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("route %v is not a masked prefix", p)
		}
		if p.Addr().Is4() && !l.GatewayAddress.Is4() {
			return fmt.Errorf("route %v needs an IPv4 gateway address, not %v", p, l.GatewayAddress)
		}
	}
	return nil
}

// usable tells whether a is that of one host.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.Is4In6() && a.Zone() == ""
}

// ipv6 tells whether IPv6 packets pass the link.
func (l *Link) ipv6() bool {
	return l.Address.Is6() || slices.ContainsFunc(l.Routes, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// ethernet tells whether the link carries Ethernet frames.
func (l *Link) ethernet() bool { return l.Kind != KindTUN }

// mac is the MAC address of a kernel link.
func (l *Link) mac() MAC {
	if l.MAC != (MAC{}) {
		return l.MAC
	}
	return linkMAC(l.Name, l.VNI)
}

// addresses are those of the link. The kernel makes no link-local one: it would
// wait for duplicates for a second or two, in which no neighbor can be asked for.
func (l *Link) addresses() []netip.Prefix {
	as := []netip.Prefix{host(l.Address)}
	if l.ethernet() && l.ipv6() {
		as = append(as, netip.PrefixFrom(linkLocal(l.mac()), 64))
	}
	return as
}

// host is a as a prefix.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// routes are those into the link, the one to the gateway first.
func (l *Link) routes() []Route {
	rs := make([]Route, 0, 1+len(l.Routes))
	gateway := host(l.GatewayAddress)
	rs = append(rs, Route{
		Dst: gateway, Src: l.Address, Device: l.Name,
		Metric: defaultMetric(l.GatewayAddress), Protocol: Protocol,
	})
	for _, p := range l.Routes {
		if p == gateway {
			continue
		}
		r := Route{Dst: p, Device: l.Name, Metric: defaultMetric(p.Addr()), Protocol: Protocol}
		switch {
		case !l.ethernet():
			// Whatever enters a TUN device reaches the gateway.
		case p.Addr().Is4() == l.GatewayAddress.Is4():
			r.Via, r.OnLink = l.GatewayAddress, true
		default:
			// A link-local next hop is always on the link.
			r.Via = RouterLinkLocal
		}
		rs = append(rs, r)
	}
	return rs
}
