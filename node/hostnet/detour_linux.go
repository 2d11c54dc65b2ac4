package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Detours finds the prefixes behind gateways that packets of pods do not reach
// through our links, because a policy rule of somebody else comes before ours. It
// asks the kernel for the way of a packet from a pod of this node to each prefix.
// pods are the pod CIDRs of this cluster.
//
// A host without such rules is asked for its rules only. Rules that hold for some
// packets of a pod alone (by mark, protocol, port or user) are not judged.
func (c *Conn) Detours(links []Link, pods []netip.Prefix) (out []Detour, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		rules, err := c.rulesBeforeOurs(family)
		if err != nil {
			return nil, fmt.Errorf("read rules: %w", err)
		}
		if len(rules) == 0 {
			continue
		}
		source, known, err := c.podSource(family, pods)
		if err != nil {
			return nil, fmt.Errorf("find a pod's way into this node: %w", err)
		}
		if !known {
			continue
		}
		for i := range links {
			found, err := c.linkDetours(&links[i], family, rules, source)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// podSource is where a packet of a pod comes from.
type podSource struct {
	addr   netip.Addr
	index  int // of the device by which it comes in
	device string
}

func (c *Conn) linkDetours(l *Link, family uint8, rules []otherRule, from podSource) (out []Detour, err error) {
	for _, p := range l.Routes {
		if familyOf(p) != family {
			continue
		}
		dst := p.Addr()
		if !p.IsSingleIP() {
			dst = dst.Next() // the first one of a prefix may have a meaning of its own
		}
		i := slices.IndexFunc(rules, func(r otherRule) bool { return r.holdsFor(from, dst) })
		if i < 0 {
			continue // whatever is wrong there, it is not a rule
		}
		way, err := c.forward(from, dst)
		if err != nil {
			return nil, fmt.Errorf("find the way of pods to %v: %w", dst, err)
		}
		if way.unknown || way.device == l.Name {
			continue
		}
		d := Detour{Link: l.Name, Prefix: p, Device: way.device, Why: way.why}
		// Of several rules it is the one whose table has the answer, or that drops.
		j := slices.IndexFunc(rules, func(r otherRule) bool {
			return r.holdsFor(from, dst) && (r.table != 0 && r.table == way.table || r.table == 0 && way.device == "")
		})
		switch {
		case j >= 0:
			i = j
		case way.device != "":
			continue // our own rule or one behind it has led there: that is drift, and mended
		}
		d.Rule, d.Priority, d.Table = rules[i].text, rules[i].priority, rules[i].table
		out = append(out, d)
	}
	return out, nil
}

// way is where the kernel would pass a packet on to.
type way struct {
	device  string // empty: nowhere
	table   uint32 // zero: not known
	why     string // nowhere
	unknown bool   // the kernel would not tell
}

// forward asks the kernel where it would pass on a packet from a pod.
func (c *Conn) forward(from podSource, dst netip.Addr) (way, error) {
	h := routeHeader{family: family(dst), dstBits: uint8(dst.BitLen()), srcBits: uint8(dst.BitLen())}
	if dst.Is4() {
		h.flags = unix.RTM_F_LOOKUP_TABLE // with IPv6 the kernel always tells the table, and refuses the flag
	}
	b, err := c.query(unix.RTM_GETROUTE, attributes(h.encode(), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.RTA_DST, dst.AsSlice())
		ae.Bytes(unix.RTA_SRC, from.addr.AsSlice())
		ae.Uint32(unix.RTA_IIF, uint32(from.index))
	}))
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENODEV):
		return way{unknown: true}, nil // the pod is somewhere else by now
	case errors.Is(err, unix.EHOSTUNREACH) && c.forwardsNothing(dst):
		return way{unknown: true}, nil // the rules were not asked
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return way{why: "they are dropped there (" + kernelSays(err).Error() + ")"}, nil
	case err != nil:
		return way{}, kernelSays(err)
	}
	r, table, err := decodeRoute(b)
	if err != nil {
		return way{}, err
	}
	if typ := decodeRouteHeader(b).typ; typ != unix.RTN_UNICAST && typ != unix.RTN_LOCAL {
		return way{table: table, why: "they are dropped there"}, nil
	}
	device, _, err := c.readLink("", r.index)
	if errors.Is(err, unix.ENODEV) {
		return way{unknown: true}, nil // gone since
	}
	return way{device: device.Name, table: table}, err
}

func (c *Conn) forwardsNothing(dst netip.Addr) bool {
	var a Actual
	return c.readForwarding(&a) == nil && (dst.Is4() && a.NoForwarding.IPv4 || dst.Is6() && a.NoForwarding.IPv6)
}

// podSource finds an address that a pod of this node could have, and the device
// by which its packets come in. known is false where there is none of a family.
func (c *Conn) podSource(family uint8, pods []netip.Prefix) (s podSource, known bool, err error) {
	isPod := func(p netip.Prefix) bool {
		return slices.ContainsFunc(pods, func(q netip.Prefix) bool { return q.Overlaps(p) && q.Bits() <= p.Bits() })
	}
	type place struct {
		addr  netip.Addr
		index int // zero: where the kernel would send to it
	}
	var candidates []place
	// A bridge, or whatever else has an address of the pods' network.
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0] = family
	addresses, err := dump(c, unix.RTM_GETADDR, header, func(b []byte) (a linkAddress, take bool, err error) {
		a, err = decodeAddress(b)
		return a, b[0] == family && isPod(a.network) && !a.network.IsSingleIP() && !c.ours.has(a.index), err
	})
	if err != nil {
		return s, false, kernelSays(err)
	}
	for _, a := range addresses {
		next := a.prefix.Addr().Next()
		if !a.network.Contains(next) {
			next = a.prefix.Addr().Prev()
		}
		candidates = append(candidates, place{next, a.index})
	}
	if len(candidates) == 0 {
		// A device of each pod's own, with a route to its address.
		routes, err := dump(c, unix.RTM_GETROUTE, attributes(routeHeader{family: family}.encode(), func(ae *netlink.AttributeEncoder) {
			ae.Uint32(unix.RTA_TABLE, unix.RT_TABLE_MAIN)
		}), func(b []byte) (r Route, take bool, err error) {
			r, table, err := decodeRoute(b)
			return r, b[0] == family && table == unix.RT_TABLE_MAIN && r.Dst.IsSingleIP() && !r.Via.IsValid() && !r.Odd && isPod(r.Dst) && !c.ours.has(r.index), err
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return s, false, kernelSays(err)
		}
		for _, r := range routes {
			candidates = append(candidates, place{r.Dst.Addr(), r.index})
		}
	}
	// None of this node is known: what is passed on for one of another node goes
	// the same way, unless a rule looks at the device.
	for _, p := range pods {
		if familyOf(p) == family && !p.IsSingleIP() {
			candidates = append(candidates, place{p.Addr().Next().Next(), 0})
		}
	}
	for _, p := range candidates {
		if p.index == 0 {
			if p.index, err = c.outDevice(p.addr); err != nil {
				return s, false, err
			}
		}
		device, _, err := c.readLink("", p.index)
		switch {
		case p.index == 0, errors.Is(err, unix.ENODEV), err == nil && !device.Up:
			continue
		case err != nil:
			return s, false, kernelSays(err)
		}
		return podSource{addr: p.addr, index: p.index, device: device.Name}, true, nil
	}
	return s, false, nil
}

// outDevice finds by which device the kernel sends to a pod; zero: by none, or by
// one of ours.
func (c *Conn) outDevice(pod netip.Addr) (int, error) {
	b, err := c.query(unix.RTM_GETROUTE, attributes(routeHeader{family: family(pod), dstBits: uint8(pod.BitLen())}.encode(), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.RTA_DST, pod.AsSlice())
	}))
	if err != nil {
		return 0, nil // there is no way to it
	}
	r, _, err := decodeRoute(b)
	if err != nil || decodeRouteHeader(b).typ != unix.RTN_UNICAST || c.ours.has(r.index) {
		return 0, err
	}
	return r.index, nil
}

// otherRule is a policy rule of somebody else, as far as it says which packets of
// pods it holds for.
type otherRule struct {
	priority uint32
	action   uint8
	table    uint32
	protocol uint8        // who made it
	src, dst netip.Prefix // invalid: any
	device   string       // by which packets come in; empty: any
	invert   bool
	narrow   bool // it looks at marks, or skips routes that its table has
	text     string
}

// holdsFor tells whether the rule holds for packets from a pod to dst.
func (r *otherRule) holdsFor(from podSource, dst netip.Addr) bool {
	holds := (!r.src.IsValid() || r.src.Contains(from.addr)) && (!r.dst.IsValid() || r.dst.Contains(dst)) && (r.device == "" || r.device == from.device)
	return holds != r.invert
}

// rulesBeforeOurs returns the rules of others that the kernel looks at before
// ours, in its order; none where ours is missing.
func (c *Conn) rulesBeforeOurs(family uint8) ([]otherRule, error) {
	type listed struct {
		otherRule
		ours, judged bool
	}
	rules, err := dump(c, unix.RTM_GETRULE, routeHeader{family: family}.encode(), func(b []byte) (r listed, take bool, err error) {
		if _, r.ours, err = decodeRule(b); err == nil && !r.ours {
			r.otherRule, r.judged, err = decodeOtherRule(b)
		}
		return r, len(b) > 0 && b[0] == family, err
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, kernelSays(err)
	}
	end := slices.IndexFunc(rules, func(r listed) bool { return r.ours })
	var out []otherRule
	for _, r := range rules[:max(end, 0)] {
		if r.judged {
			out = append(out, r.otherRule)
		}
	}
	return out, nil
}

// decodeOtherRule decodes a rule. It is not judged where it leads to the table of
// the host's own addresses, nowhere, or holds for some packets of a pod alone.
func decodeOtherRule(b []byte) (r otherRule, judged bool, err error) {
	if len(b) < unix.SizeofRtMsg {
		return r, false, errShort
	}
	h := decodeRouteHeader(b)
	r.action, r.table, r.invert, judged = h.typ, uint32(h.table), h.flags&unix.FIB_RULE_INVERT != 0, h.tos == 0
	err = decode(b, unix.SizeofRtMsg, func(a attribute) {
		switch a.typ {
		case unix.FRA_TABLE:
			r.table = a.uint32()
		case unix.FRA_PRIORITY:
			r.priority = a.uint32()
		case unix.FRA_SRC:
			r.src = netip.PrefixFrom(a.addr(), int(h.srcBits))
		case unix.FRA_DST:
			r.dst = netip.PrefixFrom(a.addr(), int(h.dstBits))
		case unix.FRA_IIFNAME:
			r.device = a.string()
		case unix.FRA_FWMARK:
			// Packets of pods have no mark, as far as is known here.
			judged, r.narrow = judged && (a.uint32() == 0 || r.invert), true
		case unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_SUPPRESS_IFGROUP:
			r.narrow = r.narrow || a.uint32() != ^uint32(0)
		case unix.FRA_FWMASK:
			r.narrow = true
		case unix.FRA_PROTOCOL:
			r.protocol = a.uint8()
		case unix.FRA_PAD:
		default:
			judged = false
		}
	})
	if err != nil {
		return r, false, fmt.Errorf("decode rule: %w", err)
	}
	switch r.action {
	case unix.FR_ACT_TO_TBL:
		judged = judged && r.table != unix.RT_TABLE_LOCAL
	case unix.FR_ACT_BLACKHOLE, unix.FR_ACT_UNREACHABLE, unix.FR_ACT_PROHIBIT:
		r.table = 0
	default:
		judged = false // goto, nop: no way of its own
	}
	r.text = r.String()
	return r, judged, nil
}

// String is close to what ip(8) prints.
func (r *otherRule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", r.priority)
	if r.invert {
		b.WriteString(" not")
	}
	if b.WriteString(" from "); r.src.IsValid() {
		b.WriteString(r.src.String())
	} else {
		b.WriteString("all")
	}
	if r.dst.IsValid() {
		fmt.Fprintf(&b, " to %v", r.dst)
	}
	if r.device != "" {
		fmt.Fprintf(&b, " iif %s", r.device)
	}
	switch r.action {
	case unix.FR_ACT_BLACKHOLE:
		b.WriteString(" blackhole")
	case unix.FR_ACT_UNREACHABLE:
		b.WriteString(" unreachable")
	case unix.FR_ACT_PROHIBIT:
		b.WriteString(" prohibit")
	default:
		fmt.Fprintf(&b, " lookup %d", r.table)
	}
	return b.String()
}

func familyOf(p netip.Prefix) uint8 { return family(p.Addr()) }
