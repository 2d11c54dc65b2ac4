package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Read finds what there is of ours. It asks for links of our kinds, for routes
// of our table, and for addresses and neighbors by link, so that a host with
// many others of each costs little. It needs no privilege, except for Translation.
func (c *Conn) Read() (Actual, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var a Actual
	if err := c.readLinks(&a); err != nil {
		return Actual{}, fmt.Errorf("read links: %w", err)
	}
	if err := c.readAddresses(&a); err != nil {
		return Actual{}, fmt.Errorf("read addresses: %w", err)
	}
	if err := c.readRoutes(&a); err != nil {
		return Actual{}, fmt.Errorf("read routes: %w", err)
	}
	if err := c.readRules(&a); err != nil {
		return Actual{}, fmt.Errorf("read rules: %w", err)
	}
	if err := c.readNeighbors(&a); err != nil {
		return Actual{}, fmt.Errorf("read neighbors: %w", err)
	}
	var err error
	if a.Translation, err = c.nft.read(); err != nil {
		return Actual{}, fmt.Errorf("read table %s: %w", TranslationTable, err)
	}
	return a, nil
}

// readLinks fills a.Links and a.Foreign.
func (c *Conn) readLinks(a *Actual) error {
	for _, kind := range Kinds {
		if c.unknown[kind] {
			continue
		}
		ms, err := c.dump(unix.RTM_GETLINK, attributes(linkHeader(0, 0, 0), func(ae *netlink.AttributeEncoder) {
			nested(ae, unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) {
				ae.String(unix.IFLA_INFO_KIND, string(kind))
			})
		}))
		if err != nil {
			return err
		}
		for _, m := range ms {
			l, linkKind, err := decodeLink(m.Data)
			if err != nil {
				return fmt.Errorf("decode link: %w", err)
			}
			if linkKind != string(kind) {
				// The kernel cannot filter by a kind that it does not know. It learns
				// kinds only when somebody makes such a link.
				c.unknown[kind] = true
				continue
			}
			switch {
			case l.marked():
				a.Links = append(a.Links, l)
			case strings.HasPrefix(l.Name, LinkPrefix):
				a.Foreign = append(a.Foreign, ForeignLink{Name: l.Name, Kind: linkKind, Alias: l.Alias})
			}
		}
	}
	slices.SortFunc(a.Links, func(x, y ActualLink) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(a.Foreign, func(x, y ForeignLink) int { return strings.Compare(x.Name, y.Name) })
	ours := make(map[int]bool, len(a.Links))
	for i := range a.Links {
		ours[a.Links[i].Index] = true
	}
	c.ours.Store(&ours)
	return nil
}

// marked tells whether the link is ours: by its alias, or by its MAC address
// where its maker died before it could set the alias.
func (l *ActualLink) marked() bool {
	return strings.HasPrefix(l.Alias, AliasPrefix) ||
		l.Kind != KindTUN && strings.HasPrefix(l.Name, LinkPrefix) && l.MAC == linkMAC(l.Name, l.VNI)
}

// decodeLink decodes a link and the kernel's name of its kind.
func decodeLink(b []byte) (l ActualLink, kind string, err error) {
	err = decode(b, unix.SizeofIfInfomsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.Name = ad.String()
		case unix.IFLA_MTU:
			l.MTU = int(ad.Uint32())
		case unix.IFLA_IFALIAS:
			l.Alias = ad.String()
		case unix.IFLA_ADDRESS:
			copy(l.MAC[:], ad.Bytes())
		case unix.IFLA_STATS64:
			l.Counters = decodeCounters(ad.Bytes())
		case unix.IFLA_LINKINFO:
			kind = decodeLinkInfo(ad, &l)
		}
	})
	if err == nil {
		l.Index = int(binary.NativeEndian.Uint32(b[4:]))
		l.Up = binary.NativeEndian.Uint32(b[8:])&unix.IFF_UP != 0
	}
	return l, kind, err
}

func decodeLinkInfo(ad *netlink.AttributeDecoder, l *ActualLink) (kind string) {
	within(ad, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFLA_INFO_KIND:
			kind = ad.String()
		case unix.IFLA_INFO_DATA:
			switch l.Kind = Kind(kind); l.Kind {
			case KindGeneve:
				within(ad, l.decodeGeneve)
			case KindVXLAN:
				within(ad, l.decodeVXLAN)
			case KindTUN:
				l.decodeTUN(ad)
			}
		}
	})
	l.Kind = Kind(kind)
	return kind
}

func (l *ActualLink) decodeGeneve(ad *netlink.AttributeDecoder) {
	switch ad.Type() {
	case unix.IFLA_GENEVE_ID:
		l.VNI = ad.Uint32()
	case unix.IFLA_GENEVE_REMOTE, unix.IFLA_GENEVE_REMOTE6:
		l.Gateway = address(ad.Bytes())
	case unix.IFLA_GENEVE_PORT:
		l.Port = swap16(ad.Uint16())
	case unix.IFLA_GENEVE_COLLECT_METADATA:
		l.Misfit = "it takes its remote from metadata"
	case unix.IFLA_GENEVE_INNER_PROTO_INHERIT:
		l.Misfit = "it carries no Ethernet frames"
	}
}

func (l *ActualLink) decodeVXLAN(ad *netlink.AttributeDecoder) {
	switch ad.Type() {
	case unix.IFLA_VXLAN_ID:
		l.VNI = ad.Uint32()
	case unix.IFLA_VXLAN_GROUP, unix.IFLA_VXLAN_GROUP6:
		l.Gateway = address(ad.Bytes())
	case unix.IFLA_VXLAN_PORT:
		l.Port = swap16(ad.Uint16())
	case unix.IFLA_VXLAN_COLLECT_METADATA:
		if ad.Uint8() != 0 {
			l.Misfit = "it takes its remote from metadata"
		}
	case unix.IFLA_VXLAN_GPE:
		l.Misfit = "it carries no Ethernet frames"
	}
}

func (l *ActualLink) decodeTUN(ad *netlink.AttributeDecoder) {
	var typ, noHeader, vnetHeader, multiQueue, persistent uint8
	within(ad, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFLA_TUN_TYPE:
			typ = ad.Uint8()
		case unix.IFLA_TUN_PI:
			noHeader = 1 - ad.Uint8()
		case unix.IFLA_TUN_VNET_HDR:
			vnetHeader = ad.Uint8()
		case unix.IFLA_TUN_MULTI_QUEUE:
			multiQueue = ad.Uint8()
		case unix.IFLA_TUN_PERSIST:
			persistent = ad.Uint8()
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

// fewLinks is up to how many links a dump by link is cheaper than one of
// everything: hosts have thousands of addresses and neighbors of others.
const fewLinks = 32

// byLink returns an index for each dump to make: those of our links, or 0 for
// all of the host in one.
func byLink(links []ActualLink) []int {
	if len(links) > fewLinks {
		return []int{0}
	}
	indexes := make([]int, len(links))
	for i := range links {
		indexes[i] = links[i].Index
	}
	return indexes
}

// linkByIndex finds links, which do not move meanwhile.
func linkByIndex(links []ActualLink) map[int]*ActualLink {
	m := make(map[int]*ActualLink, len(links))
	for i := range links {
		m[links[i].Index] = &links[i]
	}
	return m
}

func (c *Conn) readAddresses(a *Actual) error {
	links := linkByIndex(a.Links)
	for _, index := range byLink(a.Links) {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			header := make([]byte, unix.SizeofIfAddrmsg)
			header[0] = family
			binary.NativeEndian.PutUint32(header[4:], uint32(index))
			ms, err := c.dump(unix.RTM_GETADDR, header)
			if errors.Is(err, unix.ENODEV) {
				continue // gone since
			}
			if err != nil {
				return err
			}
			for _, m := range ms {
				p, index, err := decodeAddress(m.Data)
				if err != nil {
					return fmt.Errorf("decode address: %w", err)
				}
				// A kernel that does not filter answers each time with everything.
				if l := links[index]; l != nil && p.IsValid() && m.Data[0] == family && !slices.Contains(l.Addresses, p) {
					l.Addresses = append(l.Addresses, p)
				}
			}
		}
	}
	return nil
}

func decodeAddress(b []byte) (p netip.Prefix, index int, err error) {
	var local, addr netip.Addr
	err = decode(b, unix.SizeofIfAddrmsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFA_LOCAL:
			local = address(ad.Bytes())
		case unix.IFA_ADDRESS:
			addr = address(ad.Bytes())
		}
	})
	if err != nil {
		return p, 0, err
	}
	if !local.IsValid() {
		local = addr // IPv6 without a peer
	}
	return netip.PrefixFrom(local, int(b[1])), int(binary.NativeEndian.Uint32(b[4:])), nil
}

// readRoutes fills a.Routes and a.ForeignRoutes.
func (c *Conn) readRoutes(a *Actual) error {
	links := linkByIndex(a.Links)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		ms, err := c.dump(unix.RTM_GETROUTE, attributes(routeHeader{family: family}.encode(), func(ae *netlink.AttributeEncoder) {
			ae.Uint32(unix.RTA_TABLE, Table)
		}))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // no such table yet, or no IPv6
		}
		if err != nil {
			return err
		}
		for _, m := range ms {
			r, table, err := decodeRoute(m.Data)
			if err != nil {
				return fmt.Errorf("decode route: %w", err)
			}
			if table != Table || m.Data[0] != family {
				continue
			}
			if l := links[r.index]; l != nil {
				r.Device = l.Name
			} else if r.index != 0 {
				r.Device = fmt.Sprintf("#%d", r.index)
			}
			if r.Protocol == Protocol {
				a.Routes = append(a.Routes, r)
			} else {
				a.ForeignRoutes = append(a.ForeignRoutes, r)
			}
		}
	}
	return nil
}

func decodeRoute(b []byte) (r Route, table uint32, err error) {
	if len(b) < unix.SizeofRtMsg {
		return r, 0, errors.New("message is shorter than its header")
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
	err = decode(b, unix.SizeofRtMsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.RTA_TABLE:
			table = ad.Uint32()
		case unix.RTA_DST:
			dst = address(ad.Bytes())
		case unix.RTA_GATEWAY:
			r.Via = address(ad.Bytes())
		case unix.RTA_PREFSRC:
			r.Src = address(ad.Bytes())
		case unix.RTA_OIF:
			r.index = int(ad.Uint32())
		case unix.RTA_PRIORITY:
			r.Metric = ad.Uint32()
		case unix.RTA_MULTIPATH, rtaNextHop, unix.RTA_ENCAP, unix.RTA_VIA, unix.RTA_SRC, unix.RTA_METRICS:
			r.Odd = true
		}
	})
	r.Dst = netip.PrefixFrom(dst, int(h.dstBits))
	return r, table, err
}

func (c *Conn) readRules(a *Actual) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		ms, err := c.dump(unix.RTM_GETRULE, routeHeader{family: family}.encode())
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // no IPv6, or no policy routing
		}
		if err != nil {
			return err
		}
		for _, m := range ms {
			r, ours, err := decodeRule(m.Data)
			if err != nil {
				return fmt.Errorf("decode rule: %w", err)
			}
			if ours && m.Data[0] == family {
				a.Rules = append(a.Rules, r)
			}
		}
	}
	return nil
}

// decodeRule decodes a rule and tells whether it is ours. Its header, struct
// fib_rule_hdr, has the layout of a route's, with the action for the type.
func decodeRule(b []byte) (r Rule, ours bool, err error) {
	if len(b) < unix.SizeofRtMsg {
		return r, false, errors.New("message is shorter than its header")
	}
	h := decodeRouteHeader(b)
	table, protocol := uint32(h.table), uint8(0)
	r.IPv6 = h.family == unix.AF_INET6
	r.Odd = h.typ != unix.FR_ACT_TO_TBL || h.dstBits != 0 || b[2] != 0 || h.tos != 0 || h.flags&unix.FIB_RULE_INVERT != 0
	err = decode(b, unix.SizeofRtMsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.FRA_TABLE:
			table = ad.Uint32()
		case unix.FRA_PROTOCOL:
			protocol = ad.Uint8()
		case unix.FRA_PRIORITY:
			r.Priority = ad.Uint32()
		case unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_SUPPRESS_IFGROUP:
			r.Odd = r.Odd || ad.Uint32() != ^uint32(0)
		case unix.FRA_PAD:
		default:
			r.Odd = true
		}
	})
	r.message = string(b)
	return r, protocol == Protocol && table == Table, err
}

// rtaNextHop is RTA_NH_ID: the route leads to a nexthop object.
const rtaNextHop = 30

// readNeighbors finds what links know about the addresses that their routes
// make the gateway's.
func (c *Conn) readNeighbors(a *Actual) error {
	links := linkByIndex(a.Links)
	for _, r := range a.Routes {
		if l := links[r.index]; l != nil && l.Kind != KindTUN && !r.Via.IsValid() && r.Dst.IsSingleIP() {
			l.Neighbor.Addr = r.Dst.Addr()
		}
	}
	now := time.Now()
	for _, index := range byLink(a.Links) {
		ms, err := c.dump(unix.RTM_GETNEIGH, attributes(make([]byte, unix.SizeofNdMsg), func(ae *netlink.AttributeEncoder) {
			if index != 0 {
				ae.Uint32(unix.NDA_IFINDEX, uint32(index))
			}
		}))
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range ms {
			n, index, err := decodeNeighbor(m.Data, now)
			if err != nil {
				return fmt.Errorf("decode neighbor: %w", err)
			}
			if l := links[index]; l != nil && l.Neighbor.Addr == n.Addr {
				l.Neighbor = n
			}
		}
	}
	return nil
}

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

func decodeNeighbor(b []byte, now time.Time) (n Neighbor, index int, err error) {
	err = decode(b, unix.SizeofNdMsg, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.NDA_DST:
			n.Addr = address(ad.Bytes())
		case unix.NDA_LLADDR:
			copy(n.MAC[:], ad.Bytes())
		case unix.NDA_CACHEINFO:
			if info := ad.Bytes(); len(info) >= 4 {
				n.Confirmed = now.Add(-tick * time.Duration(binary.NativeEndian.Uint32(info)))
			}
		}
	})
	if err != nil {
		return n, 0, err
	}
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
	return n, int(binary.NativeEndian.Uint32(b[4:])), nil
}

// readLink finds one link by name or by index. It is unix.ENODEV where there is none.
func (c *Conn) readLink(name string, index int) (l ActualLink, kind string, err error) {
	b, err := c.query(unix.RTM_GETLINK, attributes(linkHeader(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		if name != "" {
			ae.String(unix.IFLA_IFNAME, name)
		}
	}))
	if err != nil {
		return l, "", err
	}
	return decodeLink(b)
}

// indexes finds the index of each named link that is there.
func (c *Conn) indexes(names []string) (map[string]int, error) {
	found := make(map[string]int, len(names))
	if len(names) <= fewLinks {
		for _, name := range names {
			l, _, err := c.readLink(name, 0)
			if err != nil {
				return nil, fmt.Errorf("find link %s: %w", name, err)
			}
			found[name] = l.Index
		}
		return found, nil
	}
	var a Actual
	if err := c.readLinks(&a); err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	for i := range a.Links {
		found[a.Links[i].Name] = a.Links[i].Index
	}
	return found, nil
}

