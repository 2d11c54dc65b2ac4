package hostnet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Diff finds what leads from have to want. It changes only what carries our mark.
//
//	situation                                          what is planned
//	-------------------------------------------------  ----------------------------------------------------------
//	wanted, not there                                  add link, addresses, up, routes
//	there: other kind, VNI, port, family of gateway    remove link, then as above
//	there: other gateway, MTU, alias, MAC, down        change in place; addresses and routes stay
//	other address                                      add the new one, change the routes, remove the old one
//	other routes                                       add and replace, then remove
//	its owner's link has another name now              as two links, but it stays unless the new one can be made
//	ours, neither wanted nor kept                      remove link; first, if a wanted link needs its VNI or port
//	kept                                               nothing
//	somebody else's link has a wanted name             nothing, a problem
//	somebody else's route holds a wanted prefix        nothing about that route, a problem
//	two links want one prefix or one VNI               the first one gets it, a problem of the second
//	a kept link has a wanted prefix or VNI             nothing about that, a problem
//	impossible (MTU, families, name)                   nothing, a problem; what is there stays
//	rule missing, wrong, twice                         add, remove
func Diff(want Desired, have Actual) Plan {
	d := differ{
		have:    make(map[string]*ActualLink, len(have.Links)),
		foreign: make(map[string]ForeignLink, len(have.Foreign)),
		kept:    make(map[string]bool, len(want.Keep)),
		wanted:  make(map[string]bool, len(want.Links)),
		gone:    make(map[string]bool),
	}
	for i := range have.Links {
		d.have[have.Links[i].Name] = &have.Links[i]
	}
	for _, f := range have.Foreign {
		d.foreign[f.Name] = f
	}
	for _, name := range want.Keep {
		d.kept[name] = true
	}

	links := d.possible(want.Links)
	for i := range links {
		d.link(&links[i])
	}
	d.removeLinks(links, have.Links)
	d.routes(links, have)
	d.rules(want, links, have)
	slices.SortStableFunc(d.steps, func(a, b networkStep) int { return cmp.Compare(a.phase(), b.phase()) })

	// The table of translation also guards the tunnels: it comes before them and
	// goes after them.
	translation := diffTranslation(want.Translation, have.Translation)
	plan := Plan{Problems: d.problems}
	if len(d.steps)+len(translation) == 0 {
		return plan
	}
	plan.Steps = make([]Step, 0, len(d.steps)+len(translation))
	guard := len(want.Links)+len(want.Keep) > 0
	if guard {
		plan.Steps = appendSteps(plan.Steps, translation)
	}
	plan.Steps = appendSteps(plan.Steps, d.steps)
	if !guard {
		plan.Steps = appendSteps(plan.Steps, translation)
	}
	return plan
}

func appendSteps[S Step](steps []Step, more []S) []Step {
	for _, s := range more {
		steps = append(steps, s)
	}
	return steps
}

type differ struct {
	have    map[string]*ActualLink
	foreign map[string]ForeignLink
	kept    map[string]bool
	wanted  map[string]bool // links that are possible
	// gone are links that are removed before routes change; the kernel takes their
	// routes along.
	gone     map[string]bool
	steps    []networkStep
	problems []*LinkError
}

func (d *differ) plan(s networkStep) { d.steps = append(d.steps, s) }

func (d *differ) problem(link, format string, args ...any) {
	d.problems = append(d.problems, &LinkError{Link: link, Err: fmt.Errorf(format, args...)})
}

// possible returns the links that can be had. Whatever is there under the name
// of one that cannot is kept, except for the sake of another one.
func (d *differ) possible(links []Link) []Link {
	possible := make([]Link, 0, len(links))
	first := make(map[string]*Link, len(links))
	numbers := make(map[number]string, len(links))
	for i := range links {
		l := &links[i]
		if other := first[l.Name]; other != nil {
			d.problem(l.Name, "%q and %q both want this name: names of links must differ", other.Owner, l.Owner)
			continue
		}
		first[l.Name] = l
		if d.kept[l.Name] {
			continue
		}
		if err := l.check(); err != nil {
			d.problem(l.Name, "%w", err)
			d.kept[l.Name] = true
			d.keepOwner(l.Owner, links)
			continue
		}
		if f, ok := d.foreign[l.Name]; ok {
			d.problem(l.Name, "%w", inTheWay{foreignLinkError(f)})
			d.keepOwner(l.Owner, links)
			continue
		}
		if other, ok := numbers[l.number()]; ok && l.ethernet() {
			d.problem(l.Name, "link %s has VNI %d, too: VNIs must differ", other, l.VNI)
			continue
		}
		numbers[l.number()] = l.Name
		want := *l
		if h := d.have[l.Name]; h != nil && misfit(l, h) == "" {
			want.MAC = h.KeptMAC
		}
		possible = append(possible, want)
	}
	possible = d.withoutTaken(possible)
	for i := range possible {
		d.wanted[possible[i].Name] = true
	}
	return possible
}

// keepOwner keeps what is there of an object under a name that nobody wants.
func (d *differ) keepOwner(owner string, links []Link) {
	for name, h := range d.have {
		if h.Owner() == owner && !slices.ContainsFunc(links, func(l Link) bool { return l.Name == name }) {
			d.kept[name] = true
		}
	}
}

// number is what the kernel has only one link of.
type number struct {
	kind    Kind
	vni     uint32
	port    uint16
	gateway netip.Addr // of geneve; vxlan devices are told apart without it
}

func (l *Link) number() number {
	n := number{kind: l.Kind, vni: l.VNI, port: l.Port}
	if l.Kind == KindGeneve {
		n.gateway = l.Gateway
	}
	return n
}

func (l *ActualLink) number() number {
	have := Link{Kind: l.Kind, VNI: l.VNI, Port: l.Port, Gateway: l.Gateway}
	return have.number()
}

// withoutTaken returns the links whose number no kept link has. To keep one may
// take the number of another, so this goes on until it comes to rest.
func (d *differ) withoutTaken(links []Link) []Link {
	for {
		taken := make(map[number]string)
		for name, h := range d.have {
			if d.kept[name] && h.Kind != KindTUN {
				taken[h.number()] = name
			}
		}
		if len(taken) == 0 {
			return links
		}
		keeping := len(d.kept)
		links = slices.DeleteFunc(links, func(l Link) bool {
			other, ok := taken[l.number()]
			if ok {
				d.problem(l.Name, "VNI %d is still that of link %s, which stays as it is", l.VNI, other)
				d.kept[l.Name] = true
			}
			return ok
		})
		if len(d.kept) == keeping {
			return links
		}
	}
}

// foreignLinkError is what is wrong with a link that has our name and not our mark.
func foreignLinkError(f ForeignLink) error {
	return fmt.Errorf("the name belongs to somebody else (kind %q, alias %q): remove that link (ip link del %s) or choose another name", f.Kind, f.Alias, f.Name)
}

// link plans for the link itself and its addresses.
func (d *differ) link(l *Link) {
	have, ok := d.have[l.Name]
	if ok {
		if why := misfit(l, have); why != "" {
			d.plan(removeLink{name: l.Name, index: have.Index, kind: have.Kind, why: why, first: true})
			d.gone[l.Name] = true
			ok = false
		}
	}
	if !ok {
		d.plan(addLink{want: *l})
		for _, a := range l.addresses() {
			d.plan(addAddress{want: *l, address: a})
		}
		d.plan(setUp{want: *l})
		return
	}

	if changes := differences(l, have); len(changes) > 0 {
		mac := l.ethernet() && have.MAC != l.mac()
		d.plan(setLink{want: *l, index: have.Index, changes: changes, mac: mac})
	}
	addresses := l.addresses()
	for _, a := range addresses {
		if !slices.Contains(have.Addresses, a) {
			d.plan(addAddress{want: *l, index: have.Index, address: a})
		}
	}
	if !have.Up {
		d.plan(setUp{want: *l, index: have.Index})
	}
	for _, a := range have.Addresses {
		// Link-local ones come and go with IPv6 and do no harm.
		if !slices.Contains(addresses, a) && !a.Addr().IsLinkLocalUnicast() {
			d.plan(removeAddress{name: l.Name, index: have.Index, address: a})
		}
	}
}

// misfit says why the link must be made anew, or nothing.
func misfit(l *Link, have *ActualLink) string {
	switch {
	case have.Misfit != "":
		return have.Misfit
	case l.Kind != have.Kind:
		return fmt.Sprintf("its kind is %s, not %s", have.Kind, l.Kind)
	case l.Kind == KindTUN:
		return ""
	case l.VNI != have.VNI:
		return fmt.Sprintf("its VNI is %d, not %d", have.VNI, l.VNI)
	case l.Port != have.Port:
		return fmt.Sprintf("its port is %d, not %d", have.Port, l.Port)
	case l.Gateway.Is4() != have.Gateway.Is4():
		return fmt.Sprintf("its remote is %v, of another family than %v", have.Gateway, l.Gateway)
	}
	return ""
}

// differences are what can be changed without a packet noticing.
func differences(l *Link, have *ActualLink) []string {
	var changes []string
	differs := func(what string, want, have any) {
		changes = append(changes, fmt.Sprintf("%s %v (was %v)", what, want, have))
	}
	if l.ethernet() {
		if l.Gateway != have.Gateway {
			differs("remote", l.Gateway, have.Gateway)
		}
		if mac := l.mac(); mac != have.MAC {
			differs("MAC address", mac, have.MAC)
		}
	}
	if l.MTU != have.MTU {
		differs("MTU", l.MTU, have.MTU)
	}
	if l.alias() != have.Alias {
		changes = append(changes, fmt.Sprintf("alias %q (was %q)", l.alias(), have.Alias))
	}
	return changes
}

// removeLinks plans for the links that nobody wants.
func (d *differ) removeLinks(links []Link, have []ActualLink) {
	needed := make(map[number]bool, len(links))
	heirs := make(map[string]string)  // by owner
	ports := make(map[uint16]Kind, 1) // one kind can have a port
	for i := range links {
		if d.have[links[i].Name] == nil {
			heirs[links[i].Owner] = links[i].Name
		}
		if links[i].ethernet() {
			needed[links[i].number()] = true
			ports[links[i].Port] = links[i].Kind
		}
	}
	for _, h := range have {
		if d.wanted[h.Name] || d.kept[h.Name] {
			continue
		}
		kind, taken := ports[h.Port]
		first := needed[h.number()] || taken && kind != h.Kind && h.Kind != KindTUN
		d.plan(removeLink{name: h.Name, index: h.Index, kind: h.Kind, why: "nothing asks for it", heir: heirs[h.Owner()], first: first})
		if first {
			d.gone[h.Name] = true
		}
	}
}

// routeKey is what the kernel tells routes of one table apart by when it replaces one.
type routeKey struct {
	dst    netip.Prefix
	metric uint32
	tos    uint8
}

func (r *Route) key() routeKey { return routeKey{r.Dst, r.Metric, r.TOS} }

// same tells whether r does what other does.
func (r Route) same(other Route) bool {
	r.index, other.index = 0, 0
	return r == other
}

func (d *differ) routes(links []Link, have Actual) {
	ours := make(map[routeKey][]*Route, len(have.Routes))
	for i := range have.Routes {
		// A route goes with its link, which is deleted first.
		if r := &have.Routes[i]; !d.gone[r.Device] {
			ours[r.key()] = append(ours[r.key()], r)
		}
	}
	foreign := make(map[routeKey]*Route, len(have.ForeignRoutes))
	for i := range have.ForeignRoutes {
		foreign[have.ForeignRoutes[i].key()] = &have.ForeignRoutes[i]
	}

	stays := make(map[*Route]bool, len(have.Routes)) // or is replaced
	taken := make(map[routeKey]string, len(have.Routes))
	for i := range links {
		for _, r := range links[i].routes() {
			key := r.key()
			if other, ok := taken[key]; ok {
				d.problem(r.Device, "%v is already behind link %s: two gateways must not have the same prefix", r.Dst, other)
				continue
			}
			taken[key] = r.Device
			d.route(r, ours[key], foreign[key], stays)
		}
	}
	for i := range have.Routes {
		r := &have.Routes[i]
		h := d.have[r.Device]
		// With its link a route goes by itself.
		goes := h != nil && !d.wanted[r.Device] && !d.kept[r.Device]
		if !stays[r] && !d.gone[r.Device] && !d.kept[r.Device] && !goes {
			d.plan(removeRoute{route: *r})
		}
	}
}

// route plans for one wanted route, where have are ours with the same key.
func (d *differ) route(r Route, have []*Route, foreign *Route, stays map[*Route]bool) {
	for _, h := range have {
		if h.same(r) {
			stays[h] = true
			return
		}
	}
	if len(have) > 0 && d.kept[have[0].Device] {
		d.problem(r.Device, "%v is still behind link %s, which stays as it is", r.Dst, have[0].Device)
		return
	}
	if foreign != nil {
		// A replacement could hit it, even where there is one of ours, too.
		d.problem(r.Device, "route %v cannot be set: in table %d somebody else has %v (protocol %d): remove it (ip route del %v table %d)", r.Dst, Table, *foreign, foreign.Protocol, r.Dst, Table)
		for _, h := range have {
			stays[h] = true
		}
		return
	}
	if l := d.have[r.Device]; l != nil && !d.gone[r.Device] {
		r.index = l.Index
	}
	if len(have) == 0 {
		d.plan(putRoute{route: r})
		return
	}
	stays[have[0]] = true
	d.plan(putRoute{route: r, old: have[0]})
}

func (d *differ) rules(want Desired, links []Link, have Actual) {
	priority := cmp.Or(want.RulePriority, RulePriority)
	var needed [2]bool // IPv4, IPv6
	family := map[bool]int{false: 0, true: 1}
	for i := range links {
		for _, r := range links[i].routes() {
			needed[family[r.Dst.Addr().Is6()]] = true
		}
	}
	for _, r := range have.Routes {
		if d.kept[r.Device] {
			needed[family[r.Dst.Addr().Is6()]] = true
		}
	}
	for _, v6 := range []bool{false, true} {
		right := Rule{IPv6: v6, Priority: priority}
		found := false
		for _, r := range have.Rules {
			if r.IPv6 != v6 {
				continue
			}
			if !found && needed[family[v6]] && r.Priority == right.Priority && !r.Odd {
				found = true
				continue
			}
			d.plan(removeRule{rule: r})
		}
		if needed[family[v6]] && !found {
			d.plan(addRule{rule: right})
		}
	}
}
