package hostnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's messages to values.

// decodeLink decodes a link and the kernel's name of its kind.
func decodeLink(b []byte) (l ActualLink, kind string, err error) {
	err = decode(b, unix.SizeofIfInfomsg, func(a attribute) {
		switch a.typ {
		case unix.IFLA_IFNAME:
			l.Name = a.string()
		case unix.IFLA_MTU:
			l.MTU = int(a.uint32())
		case unix.IFLA_IFALIAS:
			l.Alias = a.string()
		case unix.IFLA_ADDRESS:
			copy(l.MAC[:], a.value)
		case unix.IFLA_STATS64:
			l.Counters = decodeCounters(a.value)
		case unix.IFLA_LINKINFO:
			kind = decodeLinkInfo(a, &l)
		}
	})
	if err != nil {
		return l, "", fmt.Errorf("decode link: %w", err)
	}
	l.Index = int(binary.NativeEndian.Uint32(b[4:]))
	flags := binary.NativeEndian.Uint32(b[8:])
	l.decodeAlias()
	l.Up, l.Carrier = flags&unix.IFF_UP != 0, flags&unix.IFF_LOWER_UP != 0
	return l, kind, nil
}

func decodeLinkInfo(a attribute, l *ActualLink) (kind string) {
	a.each(func(a attribute) {
		switch a.typ {
		case unix.IFLA_INFO_KIND:
			kind = a.string()
		case unix.IFLA_INFO_DATA:
			switch l.Kind = Kind(kind); l.Kind {
			case KindGeneve:
				a.each(l.decodeGeneve)
			case KindVXLAN:
				a.each(l.decodeVXLAN)
			case KindTUN:
				l.decodeTUN(a)
			}
		}
	})
	l.Kind = Kind(kind)
	return kind
}

func (l *ActualLink) decodeGeneve(a attribute) {
	switch a.typ {
	case unix.IFLA_GENEVE_ID:
		l.VNI = a.uint32()
	case unix.IFLA_GENEVE_REMOTE, unix.IFLA_GENEVE_REMOTE6:
		l.Gateway = a.addr()
	case unix.IFLA_GENEVE_PORT:
		l.Port = swap16(a.uint16())
	case unix.IFLA_GENEVE_COLLECT_METADATA:
		l.Misfit = "it takes its remote from metadata"
	case unix.IFLA_GENEVE_INNER_PROTO_INHERIT:
		l.Misfit = "it carries no Ethernet frames"
	}
}

func (l *ActualLink) decodeVXLAN(a attribute) {
	switch a.typ {
	case unix.IFLA_VXLAN_ID:
		l.VNI = a.uint32()
	case unix.IFLA_VXLAN_GROUP, unix.IFLA_VXLAN_GROUP6:
		l.Gateway = a.addr()
	case unix.IFLA_VXLAN_PORT:
		l.Port = swap16(a.uint16())
	case unix.IFLA_VXLAN_COLLECT_METADATA:
		if a.uint8() != 0 {
			l.Misfit = "it takes its remote from metadata"
		}
	case unix.IFLA_VXLAN_GPE:
		l.Misfit = "it carries no Ethernet frames"
	}
}

func (l *ActualLink) decodeTUN(a attribute) {
	var typ, noHeader, vnetHeader, multiQueue, persistent uint8
	a.each(func(a attribute) {
		switch a.typ {
		case unix.IFLA_TUN_TYPE:
			typ = a.uint8()
		case unix.IFLA_TUN_PI:
			noHeader = 1 - a.uint8()
		case unix.IFLA_TUN_VNET_HDR:
			vnetHeader = a.uint8()
		case unix.IFLA_TUN_MULTI_QUEUE:
			multiQueue = a.uint8()
		case unix.IFLA_TUN_PERSIST:
			persistent = a.uint8()
		}
	})
	if typ != unix.IFF_TUN || noHeader == 0 || vnetHeader == 0 || multiQueue == 0 || persistent == 0 {
		l.Misfit = "its flags are not those of a persistent TUN device with offloads and several queues"
	}
}

// decodeCounters decodes the beginning of struct rtnl_link_stats64.
func decodeCounters(b []byte) (s Counters) {
	for i, v := range []*uint64{&s.RxPackets, &s.TxPackets, &s.RxBytes, &s.TxBytes, &s.RxErrors, &s.TxErrors, &s.RxDropped, &s.TxDropped} {
		if len(b) >= 8*i+8 {
			*v = binary.NativeEndian.Uint64(b[8*i:])
		}
	}
	return s
}

// linkAddress is an address of a link.
type linkAddress struct {
	index  int
	prefix netip.Prefix
	// network is what is reached directly: with a point-to-point neighbor, it.
	network netip.Prefix
}

func decodeAddress(b []byte) (linkAddress, error) {
	var local, addr netip.Addr
	err := decode(b, unix.SizeofIfAddrmsg, func(a attribute) {
		switch a.typ {
		case unix.IFA_LOCAL:
			local = a.addr()
		case unix.IFA_ADDRESS:
			addr = a.addr()
		}
	})
	if err != nil {
		return linkAddress{}, fmt.Errorf("decode address: %w", err)
	}
	if !local.IsValid() {
		local = addr // IPv6 without a peer
	}
	if !addr.IsValid() {
		addr = local
	}
	return linkAddress{
		index:  int(binary.NativeEndian.Uint32(b[4:])),
		prefix: netip.PrefixFrom(local, int(b[1])), network: netip.PrefixFrom(addr, int(b[1])).Masked(),
	}, nil
}

func decodeRoute(b []byte) (r Route, table uint32, err error) {
	if len(b) < unix.SizeofRtMsg {
		return r, 0, errShort
	}
	h := decodeRouteHeader(b)
	dst := netip.IPv4Unspecified()
	if h.family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	table = uint32(h.table)
	r.TOS, r.Protocol = h.tos, h.protocol
	r.OnLink = h.flags&unix.RTNH_F_ONLINK != 0
	r.Odd = h.typ != unix.RTN_UNICAST
	err = decode(b, unix.SizeofRtMsg, func(a attribute) {
		switch a.typ {
		case unix.RTA_TABLE:
			table = a.uint32()
		case unix.RTA_DST:
			dst = a.addr()
		case unix.RTA_GATEWAY:
			r.Via = a.addr()
		case unix.RTA_PREFSRC:
			r.Src = a.addr()
		case unix.RTA_OIF:
			r.index = int(a.uint32())
		case unix.RTA_PRIORITY:
			r.Metric = a.uint32()
		case unix.RTA_MULTIPATH, rtaNextHop, unix.RTA_ENCAP, unix.RTA_VIA, unix.RTA_SRC, unix.RTA_METRICS:
			r.Odd = true
		}
	})
	if err != nil {
		return r, 0, fmt.Errorf("decode route: %w", err)
	}
	r.Dst = netip.PrefixFrom(dst, int(h.dstBits))
	if r.Odd {
		r.message = routeRequest(b)
	}
	return r, table, nil
}

// routeRequest is the kernel's description of a route as a request about it.
func routeRequest(b []byte) string {
	h := decodeRouteHeader(b)
	h.flags = 0 // states of next hops, which a request must not have
	return string(append(h.encode(), b[unix.SizeofRtMsg:]...))
}

// decodeRule decodes a rule and tells whether it is ours. Its header, struct
// fib_rule_hdr, has the layout of a route's, with the action for the type.
func decodeRule(b []byte) (r Rule, ours bool, err error) {
	if len(b) < unix.SizeofRtMsg {
		return r, false, errShort
	}
	h := decodeRouteHeader(b)
	table, protocol := uint32(h.table), uint8(0)
	r.IPv6 = h.family == unix.AF_INET6
	r.Odd = h.typ != unix.FR_ACT_TO_TBL || h.dstBits != 0 || h.srcBits != 0 || h.tos != 0 || h.flags&unix.FIB_RULE_INVERT == 0
	var mark uint32
	err = decode(b, unix.SizeofRtMsg, func(a attribute) {
		switch a.typ {
		case unix.FRA_TABLE:
			table = a.uint32()
		case unix.FRA_PROTOCOL:
			protocol = a.uint8()
		case unix.FRA_PRIORITY:
			r.Priority = a.uint32()
		case unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_SUPPRESS_IFGROUP:
			r.Odd = r.Odd || a.uint32() != ^uint32(0)
		case unix.FRA_FWMARK:
			mark = a.uint32()
		case unix.FRA_FWMASK:
			r.Odd = r.Odd || a.uint32() != ^uint32(0)
		case unix.FRA_PAD:
		default:
			r.Odd = true
		}
	})
	if err != nil {
		return r, false, fmt.Errorf("decode rule: %w", err)
	}
	r.Odd = r.Odd || mark != PathMark
	r.message = string(b)
	return r, protocol == Protocol && table == Table, nil
}

// rtaNextHop is RTA_NH_ID: the route leads to a nexthop object.
const rtaNextHop = 30

// neighborStates name the kernel's, the ones that say most first.
var neighborStates = []struct {
	bit  uint16
	name string
}{
	{unix.NUD_PERMANENT, "permanent"}, {unix.NUD_NOARP, "noarp"}, {unix.NUD_REACHABLE, "reachable"}, {unix.NUD_STALE, "stale"},
	{unix.NUD_DELAY, "delay"}, {unix.NUD_PROBE, "probe"}, {unix.NUD_INCOMPLETE, "incomplete"}, {unix.NUD_FAILED, "failed"},
}

// tick is the unit of times in netlink messages (USER_HZ is 100 everywhere).
const tick = 10 * time.Millisecond

// linkNeighbor is a neighbor on a link.
type linkNeighbor struct {
	index int
	Neighbor
}

func decodeNeighbor(b []byte, now time.Time) (n linkNeighbor, err error) {
	err = decode(b, unix.SizeofNdMsg, func(a attribute) {
		switch a.typ {
		case unix.NDA_DST:
			n.Addr = a.addr()
		case unix.NDA_LLADDR:
			copy(n.MAC[:], a.value)
		case unix.NDA_CACHEINFO:
			if info := a.value; len(info) >= 4 {
				n.Confirmed = now.Add(-tick * time.Duration(binary.NativeEndian.Uint32(info)))
			}
		}
	})
	if err != nil {
		return n, fmt.Errorf("decode neighbor: %w", err)
	}
	n.index = int(binary.NativeEndian.Uint32(b[4:]))
	state := binary.NativeEndian.Uint16(b[8:])
	for _, s := range neighborStates {
		if state&s.bit != 0 {
			n.State = s.name
			break
		}
	}
	if n.MAC == (MAC{}) {
		// Never heard of: the kernel's time is that of the entry itself.
		n.Confirmed = time.Time{}
	}
	return n, nil
}
