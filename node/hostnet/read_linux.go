package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	if err := c.readForwarding(&a); err != nil {
		return Actual{}, fmt.Errorf("read whether this host forwards: %w", err)
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
		links, err := c.dumpLinks(kind)
		if err != nil {
			return err
		}
		a.Links = slices.Grow(a.Links, len(links))
		for _, l := range links {
			// What was ours stays ours, whoever took the mark from it.
			if l.marked() || c.ours.has(l.Index) {
				a.Links = append(a.Links, l)
			} else {
				a.Foreign = append(a.Foreign, ForeignLink{Name: l.Name, Kind: string(l.Kind), Alias: l.Alias, Tunnel: l})
			}
		}
	}
	slices.SortFunc(a.Links, func(x, y ActualLink) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(a.Foreign, func(x, y ForeignLink) int { return strings.Compare(x.Name, y.Name) })
	ours := make(map[int]bool, len(a.Links))
	for i := range a.Links {
		ours[a.Links[i].Index] = true
	}
	c.ours.replace(ours)
	return nil
}

// dumpLinks finds the links of a kind that are ours or named like ours.
func (c *Conn) dumpLinks(kind Kind) ([]ActualLink, error) {
	request := attributes(linkHeader(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		nested(ae, unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.IFLA_INFO_KIND, string(kind))
		})
	})
	return dump(c, unix.RTM_GETLINK, request, func(b []byte) (l ActualLink, take bool, err error) {
		l, linkKind, err := decodeLink(b)
		if err == nil && linkKind != string(kind) {
			// The kernel cannot filter by a kind that it does not know. It learns
			// kinds only when somebody makes such a link.
			c.unknown[kind] = true
			return l, false, err
		}
		return l, l.marked() || c.ours.has(l.Index) || strings.HasPrefix(l.Name, LinkPrefix), err
	})
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
			addresses, err := dump(c, unix.RTM_GETADDR, header, func(b []byte) (a linkAddress, take bool, err error) {
				a, err = decodeAddress(b)
				return a, links[a.index] != nil && b[0] == family, err
			})
			if errors.Is(err, unix.ENODEV) {
				continue // gone since
			}
			if err != nil {
				return err
			}
			for _, a := range addresses {
				// A kernel that does not filter answers each time with everything.
				if l := links[a.index]; !slices.Contains(l.Addresses, a.prefix) {
					l.Addresses = append(l.Addresses, a.prefix)
				}
			}
		}
	}
	return nil
}

// readRoutes fills a.Routes and a.ForeignRoutes.
func (c *Conn) readRoutes(a *Actual) error {
	links := linkByIndex(a.Links)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := attributes(routeHeader{family: family}.encode(), func(ae *netlink.AttributeEncoder) {
			ae.Uint32(unix.RTA_TABLE, Table)
		})
		routes, err := dump(c, unix.RTM_GETROUTE, request, func(b []byte) (r Route, take bool, err error) {
			r, table, err := decodeRoute(b)
			return r, table == Table && b[0] == family, err
		})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // no such table yet, or no IPv6
		}
		if err != nil {
			return err
		}
		a.Routes = slices.Grow(a.Routes, len(routes))
		for _, r := range routes {
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

func (c *Conn) readRules(a *Actual) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		rules, err := dump(c, unix.RTM_GETRULE, routeHeader{family: family}.encode(), func(b []byte) (r Rule, take bool, err error) {
			r, ours, err := decodeRule(b)
			return r, ours && b[0] == family, err
		})
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // no IPv6, or no policy routing
		}
		if err != nil {
			return err
		}
		a.Rules = append(a.Rules, rules...)
	}
	return nil
}

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
		request := attributes(make([]byte, unix.SizeofNdMsg), func(ae *netlink.AttributeEncoder) {
			if index != 0 {
				ae.Uint32(unix.NDA_IFINDEX, uint32(index))
			}
		})
		neighbors, err := dump(c, unix.RTM_GETNEIGH, request, func(b []byte) (n linkNeighbor, take bool, err error) {
			n, err = decodeNeighbor(b, now)
			l := links[n.index]
			return n, l != nil && l.Neighbor.Addr == n.Addr, err
		})
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return err
		}
		for _, n := range neighbors {
			links[n.index].Neighbor = n.Neighbor
		}
	}
	return nil
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

// findLinks finds the index of each named link that is there.
func (c *Conn) findLinks(names []string) (map[string]int, error) {
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
