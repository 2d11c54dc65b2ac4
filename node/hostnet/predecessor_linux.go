package hostnet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Left finds what is left of Liqo's node agent.
func (c *Conn) Left(p Predecessor) (Left, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var is theirs
	var err error
	if len(p.Fabrics) > 0 {
		numbers := make(map[uint32]bool, len(p.Fabrics))
		for _, f := range p.Fabrics {
			numbers[f.routingTable()] = true
		}
		if is.rules, err = c.theirRules(numbers); err != nil {
			return Left{}, fmt.Errorf("read rules: %w", kernelSays(err))
		}
		if is.routes, err = c.theirRoutes(numbers); err != nil {
			return Left{}, fmt.Errorf("read routes: %w", kernelSays(err))
		}
	}
	if is.tables, err = c.nft.theirTables(p.Tables); err != nil {
		return Left{}, fmt.Errorf("list nftables tables: %w", err)
	}
	return p.left(is), nil
}

// theirRules finds the rules that lead to some tables.
func (c *Conn) theirRules(tables map[uint32]bool) (all []theirRule, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		rules, err := dump(c, unix.RTM_GETRULE, routeHeader{family: family}.encode(), func(b []byte) (r theirRule, take bool, err error) {
			other, judged, err := decodeOtherRule(b)
			r = theirRule{table: other.table, text: other.text, message: string(b)}
			if judged && other.liqos() {
				r.dst = other.dst
			}
			return r, err == nil && b[0] == family && tables[other.table], err
		})
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // no IPv6, or no policy routing
		}
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	return all, nil
}

// liqos tells whether the rule has no more to it than one as Liqo makes it.
func (r *otherRule) liqos() bool {
	return r.action == unix.FR_ACT_TO_TBL && r.dst.IsValid() && !r.src.IsValid() && r.device == "" && !r.invert && !r.narrow &&
		(r.protocol == protocolNone || r.protocol == protocolBoot)
}

// theirRoutes finds the routes of some tables.
func (c *Conn) theirRoutes(tables map[uint32]bool) (all []theirRoute, err error) {
	var ask []uint32
	for number := range tables {
		ask = append(ask, number)
	}
	if slices.Sort(ask); len(ask) > fewLinks {
		ask = []uint32{unix.RT_TABLE_UNSPEC} // all of the host in one
	}
	names := make(map[int]string)
	for _, number := range ask {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			request := attributes(routeHeader{family: family}.encode(), func(ae *netlink.AttributeEncoder) {
				if number != unix.RT_TABLE_UNSPEC {
					ae.Uint32(unix.RTA_TABLE, number)
				}
			})
			routes, err := dump(c, unix.RTM_GETROUTE, request, func(b []byte) (r theirRoute, take bool, err error) {
				r.Route, r.table, err = decodeRoute(b)
				// A kernel that does not filter answers each time with everything.
				wanted := r.table == number || number == unix.RT_TABLE_UNSPEC && tables[r.table]
				if take = err == nil && b[0] == family && wanted; take {
					r.message = routeRequest(b)
				}
				return r, take, err
			})
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
				continue // no such table, or no IPv6
			}
			if err != nil {
				return nil, err
			}
			for _, r := range routes {
				if r.Device, err = c.linkName(r.index, names); err != nil {
					return nil, err
				}
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// linkName finds the name of a link; empty: there is none.
func (c *Conn) linkName(index int, known map[int]string) (string, error) {
	name, asked := known[index]
	if asked || index == 0 {
		return name, nil
	}
	l, _, err := c.readLink("", index)
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return "", err
	}
	known[index] = l.Name
	return l.Name, nil
}

// ipFamilies are those of nftables that Liqo's tables may have.
var ipFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}

// theirTables finds the tables that have one of the names. There are none where
// there is no nf_tables.
func (n *nft) theirTables(names []string) (found []theirTable, err error) {
	if len(names) == 0 || n.err != nil {
		return nil, nil
	}
	n.setDeadline(nftTimeout)
	tables, err := n.conn.ListTables()
	if err != nil {
		n.settle()
		if unusable(err) != "" && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			err = nil
		}
		return nil, err
	}
	for _, t := range tables {
		if family, ok := ipFamilies[t.Family]; ok && slices.Contains(names, t.Name) {
			found = append(found, theirTable{family, t.Name})
		}
	}
	return found, nil
}

func (s removeTheirs) apply(c *Conn) error {
	var err error
	switch {
	case s.rule != "":
		err = c.request(change(unix.RTM_DELRULE, 0, []byte(s.rule)))
	case s.route != "":
		err = c.request(change(unix.RTM_DELROUTE, 0, []byte(s.route)))
	default:
		err = c.nft.removeTable(s.table)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil // gone already
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.text, kernelSays(err))
	}
	return nil
}

func (n *nft) removeTable(t theirTable) error {
	if n.err != nil {
		return n.err
	}
	return n.transaction(func() error {
		for family, name := range ipFamilies {
			if name == t.family {
				n.conn.DelTable(&nftables.Table{Name: t.name, Family: family})
			}
		}
		return nil
	})
}
