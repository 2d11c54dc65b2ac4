package hostnet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Actual is what the network namespace holds of ours, and what of others is in
// the way.
type Actual struct {
	// Links carry our mark, sorted by name.
	Links []ActualLink
	// Foreign are links of one of our kinds that are named like ours and are not.
	// A link of another kind that has a wanted name shows when ours is to be made.
	Foreign []ForeignLink
	// Routes are ours, in the kernel's order: of two to one prefix the first counts.
	Routes []Route
	// ForeignRoutes are in Table without being ours.
	ForeignRoutes []Route
	// Rules are ours.
	Rules []Rule
	// Translation is the state of TranslationTable.
	Translation TranslationState
	// NoForwarding says that this host passes no packets on, so that those of pods
	// never reach a link.
	NoForwarding struct{ IPv4, IPv6 bool }
}

// ActualLink is a tunnel link that is there.
type ActualLink struct {
	Name  string
	Index int
	Kind  Kind
	// VNI, Gateway and Port are those of the alias if it is a TUN device.
	VNI     uint32
	Gateway netip.Addr
	Port    uint16
	MTU     int
	Alias   string
	Up      bool
	// Carrier is whether packets go anywhere: of a TUN device, whether somebody
	// has it open.
	Carrier bool
	MAC     MAC
	// KeptMAC is the MAC address that the link had when it was Liqo's, and keeps:
	// the alias tells. Zero: it has the one that is computed.
	KeptMAC MAC
	// Addresses are in the kernel's order.
	Addresses []netip.Prefix
	// Misfit says what of the link cannot be put right without making it anew.
	Misfit   string
	Counters Counters
	// Neighbor is the gateway as this link knows it.
	Neighbor Neighbor
}

// ForeignLink is a link that is named like ours.
type ForeignLink struct {
	Name, Kind, Alias string
	// Tunnel is what it would be if it were ours.
	Tunnel ActualLink
}

// Counters are those of a link since it was made.
type Counters struct {
	RxPackets, RxBytes, RxErrors, RxDropped uint64
	TxPackets, TxBytes, TxErrors, TxDropped uint64
}

// Neighbor is what a link knows about the gateway's internal address.
type Neighbor struct {
	Addr netip.Addr
	MAC  MAC
	// State is the kernel's, in lower case ("reachable", "stale", "failed");
	// empty: it never asked.
	State string
	// Confirmed is when the gateway last proved to be there. Zero: not known.
	Confirmed time.Time
}

// Route is one of Table.
type Route struct {
	Dst netip.Prefix
	// Via is the next hop; invalid: Dst is on the link itself.
	Via netip.Addr
	// Src is the source of packets that have none yet.
	Src netip.Addr
	// Device is where it leads to.
	Device string
	// OnLink says that Via is behind Device although no route says so.
	OnLink bool
	// Metric is the kernel's preference: lower is better.
	Metric uint32
	// TOS restricts an IPv4 route to packets with this field.
	TOS uint8
	// Protocol is who made it.
	Protocol uint8
	// Odd says that it has properties that no route of ours has: several next
	// hops, another type than unicast, an encapsulation.
	Odd bool

	index int // of Device; zero where it is to be found by name
	// message is the kernel's description of an odd route: what removes this one
	// and no other.
	message string
}

// String is close to what ip(8) prints.
func (r Route) String() string {
	var b strings.Builder
	b.WriteString(r.Dst.String())
	if r.Via.IsValid() {
		fmt.Fprintf(&b, " via %v", r.Via)
	}
	if r.Device != "" {
		fmt.Fprintf(&b, " dev %s", r.Device)
	}
	if r.Src.IsValid() {
		fmt.Fprintf(&b, " src %v", r.Src)
	}
	if r.TOS != 0 {
		fmt.Fprintf(&b, " tos %#x", r.TOS)
	}
	if r.Metric != defaultMetric(r.Dst.Addr()) {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	if r.OnLink {
		b.WriteString(" onlink")
	}
	if r.Odd {
		b.WriteString(" (and more)")
	}
	return b.String()
}

// defaultMetric is what the kernel takes where a request names none.
func defaultMetric(dst netip.Addr) uint32 {
	if dst.Is4() {
		return 0
	}
	return 1024 // IP6_RT_PRIO_USER
}

// Rule is a policy rule that leads to Table.
type Rule struct {
	IPv6     bool
	Priority uint32
	// Odd says that it does not hold for all packets but those with PathMark, as ours do.
	Odd bool

	// message is the kernel's description: what removes this rule and no other.
	message string
}

// String is close to what ip(8) prints.
func (r Rule) String() string {
	s := fmt.Sprintf("%d: not from all fwmark %#x lookup %d", r.Priority, PathMark, Table)
	if r.Odd {
		s = fmt.Sprintf("%d: lookup %d (other conditions)", r.Priority, Table)
	}
	if r.IPv6 {
		s += " (IPv6)"
	}
	return s
}

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// linkMAC is the address of a kernel link: the same whenever the link is made
// again, so that what the gateway has learned stays right, and different on
// every node, as the VNI is. It also tells a link of ours that was not marked
// yet when its maker died: nobody else makes links with such addresses.
func linkMAC(name string, vni uint32) MAC {
	h := sha256.Sum256(binary.BigEndian.AppendUint32([]byte("sluice node "+name), vni))
	m := MAC(h[:6])
	m[0] = m[0]&^0x03 | 0x02 // unicast, locally administered
	return m
}

// linkLocal is the link-local address that belongs to m (RFC 4291, appendix A).
func linkLocal(m MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: m[0] ^ 0x02, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}
