package hostnet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Where this agent takes the place of Liqo's, and where it gives it back, nothing
// is silent for a moment:
//
//   - A Geneve link of Liqo's gets our mark (TakeOver). It keeps its MAC address,
//     by which the gateway knows the node.
//   - Liqo's rules, routes and nftables tables stay until ours are in force beside
//     them. Then what Left has found goes.
//   - On the way back the links lose our mark and stay (GiveBack).
//
// Liqo marks nothing. What it makes is known by the names that its objects give
// it, and what has such a name and is not as Liqo makes it stays.

// Predecessor is what Liqo's node agent makes on a node beside its links.
type Predecessor struct {
	// Fabrics are the InternalFabrics with a tunnel to this node.
	Fabrics []PredecessorFabric
	// Tables are the names of nftables tables, of any family of IP.
	Tables []string
}

// PredecessorFabric is an InternalFabric.
type PredecessorFabric struct {
	Name string
	// Prefixes are what is behind its gateway, and the gateway's own address.
	Prefixes []netip.Prefix
}

// routingTable is the number of the routing table that Liqo keeps for it. The table
// is named as the RouteConfiguration of the InternalFabric, and its number is made
// of the hash of that name: too large for the tables of the system.
func (f PredecessorFabric) routingTable() uint32 {
	h := sha256.Sum256([]byte(f.Name + "-node-gw"))
	h[1] |= 1
	h[3] >>= 1
	return binary.LittleEndian.Uint32(h[:])
}

// Left is what is left of a Predecessor.
type Left struct {
	Rules, Routes int
	// Tables are nftables tables, with their family.
	Tables []string
	// Others has Liqo's names and is somebody else's: it stays.
	Others []string
	// Plan removes everything but Others.
	Plan Plan
}

// String names what Plan removes.
func (l Left) String() string {
	var parts []string
	for _, p := range []struct {
		n          int
		one, other string
	}{{l.Rules, "rule", "rules"}, {l.Routes, "route", "routes"}} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.other))
		}
	}
	for _, t := range l.Tables {
		parts = append(parts, "table "+t)
	}
	return strings.Join(parts, ", ")
}

// theirs is what there is that may be Liqo's.
type theirs struct {
	rules  []theirRule
	routes []theirRoute
	tables []theirTable
}

// theirRule is a policy rule that leads to a table of Liqo's number.
type theirRule struct {
	table uint32
	// dst is the only condition of a rule as Liqo makes it; invalid: it has another
	// one, or none.
	dst     netip.Prefix
	text    string
	message string
}

// theirRoute is a route of a table of Liqo's number.
type theirRoute struct {
	Route
	table   uint32
	message string
}

// theirTable is an nftables table of a name of Liqo's.
type theirTable struct{ family, name string }

// The origin of what nobody has named one for, as Liqo does.
const (
	protocolNone = 0 // RTPROT_UNSPEC
	protocolBoot = 3 // RTPROT_BOOT
)

// liqos tells whether the route is one as Liqo makes it: into a link of its own.
func (r *theirRoute) liqos() bool {
	return !r.Odd && r.TOS == 0 && (r.Protocol == protocolNone || r.Protocol == protocolBoot) && strings.HasPrefix(r.Device, LinkPrefix)
}

// left finds what is Liqo's of what is there.
//
//	situation                                              what becomes of it
//	-----------------------------------------------------  -------------------------------------
//	rule: nothing but "to PREFIX" to one of Liqo's tables  goes
//	rule with another condition, or to another prefix      stays, told
//	route of such a table, into a link liqo.*              goes
//	a route into another device, or of another origin      stays with its whole table, told; the
//	                                                       number of a table is a hash of a name
//	                                                       that a peer may choose
//	our own table has the number of one of Liqo's          stays
//	nftables table of a name that was given                goes
func (p Predecessor) left(is theirs) (l Left) {
	prefixes := make(map[uint32][]netip.Prefix, len(p.Fabrics))
	for _, f := range p.Fabrics {
		number := f.routingTable()
		prefixes[number] = append(prefixes[number], f.Prefixes...)
	}
	delete(prefixes, Table)
	others := make(map[uint32]bool)
	for i := range is.routes {
		r := &is.routes[i]
		ps, known := prefixes[r.table]
		switch {
		case !known || others[r.table]:
		case r.liqos():
			prefixes[r.table] = append(ps, r.Dst)
		default:
			others[r.table] = true
			l.Others = append(l.Others, fmt.Sprintf("routing table %d: it has the route %v (protocol %d)", r.table, r.Route, r.Protocol))
		}
	}
	remove := func(text string, s removeTheirs) {
		s.text = "remove Liqo's " + text
		l.Plan.Steps = append(l.Plan.Steps, s)
	}
	for _, r := range is.rules {
		ps, known := prefixes[r.table]
		switch {
		case !known || others[r.table]:
		case !slices.Contains(ps, r.dst):
			l.Others = append(l.Others, "rule "+r.text)
		default:
			l.Rules++
			remove("rule "+r.text, removeTheirs{rule: r.message})
		}
	}
	for i := range is.routes {
		r := &is.routes[i]
		if _, known := prefixes[r.table]; known && !others[r.table] {
			l.Routes++
			remove(fmt.Sprintf("route %v table %d", r.Route, r.table), removeTheirs{route: r.message})
		}
	}
	for _, t := range is.tables {
		if slices.Contains(p.Tables, t.name) && t.name != TranslationTable {
			l.Tables = append(l.Tables, t.family+" "+t.name)
			remove("table "+t.family+" "+t.name, removeTheirs{table: t})
		}
	}
	return l
}

// removeTheirs removes a rule, a route or a table of Liqo's. That it is gone
// already is no error.
type removeTheirs struct {
	text        string
	rule, route string // the kernel's description; empty: it is not one
	table       theirTable
}

func (s removeTheirs) String() string { return s.text }

// TakeOver finds the links of Liqo's that become ours: Geneve links that have the
// name, or the number, of a wanted one. A link that is as it should be but for its
// MAC address keeps that; Diff changes what is left to change, or makes the link
// anew, as it does with links of ours. A link with an alias is not Liqo's.
func TakeOver(want Desired, have Actual) (p Plan) {
	for i := range have.Foreign {
		f := &have.Foreign[i]
		if f.Kind != string(KindGeneve) || f.Alias != "" || !strings.HasPrefix(f.Name, LinkPrefix) || f.Tunnel.Misfit != "" {
			continue
		}
		j := slices.IndexFunc(want.Links, func(l Link) bool { return l.Name == f.Name })
		if j < 0 {
			j = slices.IndexFunc(want.Links, func(l Link) bool { return l.number() == f.Tunnel.number() })
		}
		if j < 0 {
			continue
		}
		l := want.Links[j]
		if l.check() != nil {
			continue // it cannot be had, and what there is of it stays
		}
		if l.Name == f.Name && l.Gateway == f.Tunnel.Gateway && misfit(&l, &f.Tunnel) == "" {
			l.MAC = f.Tunnel.MAC
		}
		l.Kind = KindGeneve // which the link is, whatever becomes of it
		p.Steps = append(p.Steps, setAlias{name: f.Name, index: f.Tunnel.Index, alias: l.alias()})
	}
	return p
}

// GiveBack is the way back: it removes everything of ours but the Geneve links,
// which lose our mark. They are what Liqo's agent makes, with the address that it
// gives them.
func GiveBack(have Actual) Plan {
	rest := have
	rest.Links = slices.DeleteFunc(slices.Clone(have.Links), func(l ActualLink) bool { return l.Kind == KindGeneve })
	plan := Diff(Desired{}, rest)
	for i := range have.Links {
		// Without its alias a link that we have made is still known by its MAC address.
		if l := &have.Links[i]; l.Kind == KindGeneve && l.Alias != "" {
			plan.Steps = append(plan.Steps, setAlias{name: l.Name, index: l.Index})
		}
	}
	return plan
}
