package hostnet

import (
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// messages are the requests that do a step.
func (a *applier) messages(s networkStep) []netlink.Message {
	index := a.index(s)
	if s, ok := s.(setLink); ok {
		return setLinkMessages(index, s)
	}
	return []netlink.Message{message(s, index)}
}

// message is the request that does a step which takes one.
func message(s networkStep, index int) netlink.Message {
	switch s := s.(type) {
	case addLink:
		return addLinkMessage(s.want)
	case removeLink:
		return removeLinkMessage(index)
	case setAlias:
		return aliasMessage(index, s.alias)
	case setUp:
		return change(unix.RTM_NEWLINK, 0, linkHeader(index, unix.IFF_UP, unix.IFF_UP))
	case addAddress:
		return addressMessage(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, index, s.address)
	case removeAddress:
		return addressMessage(unix.RTM_DELADDR, 0, index, s.address)
	case putRoute:
		flags := netlink.Create | netlink.Excl
		if s.old != nil {
			flags = netlink.Create | netlink.Replace
		}
		return routeMessage(unix.RTM_NEWROUTE, flags, index, s.route)
	case removeRoute:
		return routeMessage(unix.RTM_DELROUTE, 0, index, s.route)
	case addRule:
		return addRuleMessage(s.rule)
	case removeRule:
		return change(unix.RTM_DELRULE, 0, []byte(s.rule.message))
	}
	panic(fmt.Sprintf("no message for %T", s))
}

// change is a request that is acknowledged.
func change(typ netlink.HeaderType, flags netlink.HeaderFlags, data []byte) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: data}
}

func addLinkMessage(l Link) netlink.Message {
	mac := l.mac()
	return change(unix.RTM_NEWLINK, netlink.Create|netlink.Excl, attributes(linkHeader(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, l.Name)
		ae.Uint32(unix.IFLA_MTU, uint32(l.MTU))
		ae.Bytes(unix.IFLA_ADDRESS, mac[:])
		nested(ae, unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.IFLA_INFO_KIND, string(l.Kind))
			nested(ae, unix.IFLA_INFO_DATA, func(ae *netlink.AttributeEncoder) {
				if l.Kind == KindGeneve {
					geneveAttributes(ae, l)
				} else {
					vxlanAttributes(ae, l)
				}
			})
		})
	}))
}

func geneveAttributes(ae *netlink.AttributeEncoder, l Link) {
	ae.Uint32(unix.IFLA_GENEVE_ID, l.VNI)
	ae.Uint16(unix.IFLA_GENEVE_PORT, swap16(l.Port))
	remoteAttribute(ae, l, unix.IFLA_GENEVE_REMOTE, unix.IFLA_GENEVE_REMOTE6)
	if l.Gateway.Is6() {
		// A gateway sends what it sends one by one without a checksum.
		ae.Uint8(unix.IFLA_GENEVE_UDP_ZERO_CSUM6_RX, 1)
	}
}

func vxlanAttributes(ae *netlink.AttributeEncoder, l Link) {
	ae.Uint32(unix.IFLA_VXLAN_ID, l.VNI)
	ae.Uint16(unix.IFLA_VXLAN_PORT, swap16(l.Port))
	// There is one remote, and nothing that it sends can change that.
	ae.Uint8(unix.IFLA_VXLAN_LEARNING, 0)
	remoteAttribute(ae, l, unix.IFLA_VXLAN_GROUP, unix.IFLA_VXLAN_GROUP6)
	if l.Gateway.Is6() {
		ae.Uint8(unix.IFLA_VXLAN_UDP_ZERO_CSUM6_RX, 1)
	}
}

func remoteAttribute(ae *netlink.AttributeEncoder, l Link, typ4, typ6 uint16) {
	if l.Gateway.Is4() {
		ae.Bytes(typ4, l.Gateway.AsSlice())
	} else {
		ae.Bytes(typ6, l.Gateway.AsSlice())
	}
}

// setLinkMessages set everything that can differ, the remote first.
func setLinkMessages(index int, s setLink) []netlink.Message {
	l := s.want
	attrs := change(unix.RTM_NEWLINK, 0, attributes(linkHeader(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_MTU, uint32(l.MTU))
		ae.String(unix.IFLA_IFALIAS, l.alias())
		if s.mac {
			mac := l.mac()
			ae.Bytes(unix.IFLA_ADDRESS, mac[:])
		}
	}))
	if !l.ethernet() {
		return []netlink.Message{attrs}
	}
	remote := change(unix.RTM_NEWLINK, 0, attributes(linkHeader(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		if l.Kind == KindGeneve {
			// Otherwise the kernel chooses an MTU by the new remote. With vxlan devices
			// it does not, and refuses a message with both.
			ae.Uint32(unix.IFLA_MTU, uint32(l.MTU))
		}
		nested(ae, unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.IFLA_INFO_KIND, string(l.Kind))
			nested(ae, unix.IFLA_INFO_DATA, func(ae *netlink.AttributeEncoder) {
				if l.Kind == KindGeneve {
					remoteAttribute(ae, l, unix.IFLA_GENEVE_REMOTE, unix.IFLA_GENEVE_REMOTE6)
				} else {
					remoteAttribute(ae, l, unix.IFLA_VXLAN_GROUP, unix.IFLA_VXLAN_GROUP6)
				}
			})
		})
	}))
	return []netlink.Message{remote, attrs}
}

// aliasMessage sets an alias; an empty one takes it away, which takes an attribute
// without even the zero of a string.
func aliasMessage(index int, alias string) netlink.Message {
	return change(unix.RTM_NEWLINK, 0, attributes(linkHeader(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFLA_IFALIAS, []byte(alias))
	}))
}

// noLinkLocalMessage leaves link-local addresses to us.
func noLinkLocalMessage(index int) netlink.Message {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	return change(unix.RTM_NEWLINK, 0, attributes(linkHeader(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		nested(ae, unix.IFLA_AF_SPEC, func(ae *netlink.AttributeEncoder) {
			nested(ae, unix.AF_INET6, func(ae *netlink.AttributeEncoder) {
				ae.Uint8(unix.IFLA_INET6_ADDR_GEN_MODE, none)
			})
		})
	}))
}

func removeLinkMessage(index int) netlink.Message {
	return change(unix.RTM_DELLINK, 0, linkHeader(index, 0, 0))
}

func groupMessage(index int, group uint32) netlink.Message {
	return change(unix.RTM_NEWLINK, 0, attributes(linkHeader(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_GROUP, group)
	}))
}

// removeGroupMessage removes all links of a group.
func removeGroupMessage(group uint32) netlink.Message {
	return change(unix.RTM_DELLINK, 0, attributes(linkHeader(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_GROUP, group)
	}))
}

func addressMessage(typ netlink.HeaderType, flags netlink.HeaderFlags, index int, p netip.Prefix) netlink.Message {
	a := p.Addr()
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if a.IsLinkLocalUnicast() && a.Is6() {
		scope = unix.RT_SCOPE_LINK
	}
	return change(typ, flags, attributes(addressHeader(p, scope, index), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFA_LOCAL, a.AsSlice())
		ae.Bytes(unix.IFA_ADDRESS, a.AsSlice())
		switch {
		case a.Is4() || typ != unix.RTM_NEWADDR:
		case p.IsSingleIP():
			// The kernel would add a route to the address, outside of our table.
			ae.Uint32(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE)
		default:
			ae.Uint32(unix.IFA_FLAGS, unix.IFA_F_NODAD)
		}
	}))
}

func routeMessage(typ netlink.HeaderType, flags netlink.HeaderFlags, index int, r Route) netlink.Message {
	if r.Odd {
		return change(typ, flags, []byte(r.message))
	}
	h := routeHeader{
		family: family(r.Dst.Addr()), dstBits: uint8(r.Dst.Bits()), tos: r.TOS,
		protocol: Protocol, typ: unix.RTN_UNICAST, scope: unix.RT_SCOPE_UNIVERSE,
	}
	if r.OnLink {
		h.flags = unix.RTNH_F_ONLINK
	}
	if r.Dst.Addr().Is4() && !r.Via.IsValid() {
		h.scope = unix.RT_SCOPE_LINK
	}
	if typ == unix.RTM_DELROUTE {
		h.scope, h.flags = unix.RT_SCOPE_NOWHERE, 0 // any
	}
	return change(typ, flags, attributes(h.encode(), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.RTA_TABLE, Table)
		ae.Bytes(unix.RTA_DST, r.Dst.Addr().AsSlice())
		if r.Metric != 0 {
			ae.Uint32(unix.RTA_PRIORITY, r.Metric)
		}
		if index != 0 {
			ae.Uint32(unix.RTA_OIF, uint32(index))
		}
		if r.Via.IsValid() {
			ae.Bytes(unix.RTA_GATEWAY, r.Via.AsSlice())
		}
		if r.Src.IsValid() {
			ae.Bytes(unix.RTA_PREFSRC, r.Src.AsSlice())
		}
	}))
}

func addRuleMessage(r Rule) netlink.Message {
	h := routeHeader{family: unix.AF_INET, typ: unix.FR_ACT_TO_TBL, flags: unix.FIB_RULE_INVERT}
	if r.IPv6 {
		h.family = unix.AF_INET6
	}
	// Not exclusive: somebody else's rule that does the same may go at any time.
	return change(unix.RTM_NEWRULE, netlink.Create, attributes(h.encode(), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.FRA_TABLE, Table)
		ae.Uint32(unix.FRA_PRIORITY, r.Priority)
		ae.Uint8(unix.FRA_PROTOCOL, Protocol)
		ae.Uint32(unix.FRA_FWMARK, PathMark)
		ae.Uint32(unix.FRA_FWMASK, ^uint32(0))
	}))
}
