package fabric

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

// hints are what keeps packets from passing although everything is as desired.
// silent are the links whose gateway was found not to answer before: while
// somebody sends into them, the kernel asks again and again.
func hints(links []hostnet.Link, actual hostnet.Actual, silent map[string]bool) (out manifests.Problems, stillSilent map[string]bool) {
	stillSilent = make(map[string]bool)
	var ipv4, ipv6 bool
	wanted := make(map[string]bool, len(links))
	for i := range links {
		wanted[links[i].Name] = true
		for _, p := range links[i].Routes {
			ipv4, ipv6 = ipv4 || p.Addr().Is4(), ipv6 || p.Addr().Is6()
		}
	}
	closed := func(sysctl string) {
		out = append(out, manifests.Problem{Object: "this node", Reason: fmt.Sprintf("%s is 0: packets of pods do not get into the tunnels; set it to 1 (sysctl -w %s=1)", sysctl, sysctl)})
	}
	if actual.NoForwarding.IPv4 && ipv4 {
		closed("net.ipv4.ip_forward")
	}
	if actual.NoForwarding.IPv6 && ipv6 {
		closed("net.ipv6.conf.all.forwarding")
	}
	for i := range actual.Links {
		l := &actual.Links[i]
		if n := l.Neighbor; wanted[l.Name] && (n.State == "failed" || n.State == "incomplete" && silent[l.Name]) {
			stillSilent[l.Name] = true
			out = append(out, manifests.Problem{Object: "link " + l.Name, Reason: fmt.Sprintf(
				"the gateway %s (%s) does not answer: does it run, and does it have a tunnel with VNI %d to this node?", l.Gateway, n.Addr, l.VNI)})
		}
	}
	return out, stillSilent
}

// detours says which rules take the packets of pods elsewhere: one problem for
// each rule and link.
func detours(found []hostnet.Detour) (out manifests.Problems) {
	type key struct {
		link string
		rule hostnet.Detour
	}
	prefixes := make(map[key][]string)
	var order []key
	for _, d := range found {
		k := key{d.Link, d}
		k.rule.Prefix = netip.Prefix{}
		if prefixes[k] == nil {
			order = append(order, k)
		}
		prefixes[k] = append(prefixes[k], d.Prefix.String())
	}
	for _, k := range order {
		d, to := k.rule, "the rule drops them"
		if d.Table != 0 {
			to = fmt.Sprintf("table %d sends them to device %s", d.Table, d.Device)
			if d.Device == "" {
				to = fmt.Sprintf("it leads to table %d: %s", d.Table, d.Why)
			}
		}
		out = append(out, manifests.Problem{Object: "link " + k.link, Reason: fmt.Sprintf(
			"packets of pods to %s do not get into it: the rule %q of another program comes before ours, and %s; "+
				"give that rule a priority above ours, or start the agents with a --rule-priority below %d, or except these prefixes there",
			enumerate(prefixes[k]), d.Rule, to, d.Priority)})
	}
	return out
}

// detour looks which rules take packets elsewhere.
func (r *Runner) detour() {
	before := r.detours
	found, err := r.host.Detours(r.plan.Desired.Links, r.plan.Desired.Translation.Local)
	if err != nil {
		if !r.detourFailed {
			r.log.Warn("the way of packets of pods cannot be found, what was known before counts", "error", err)
		}
		r.detourFailed = true
		return
	}
	r.detourFailed = false
	r.detours = detours(found).Condensed()
	for _, p := range r.detours.Without(before) {
		r.log.Warn("packets go another way", p.Attrs()...)
	}
	if len(r.detours) == 0 && len(before) > 0 {
		r.log.Info("no rule takes packets another way any more")
	}
}

// hint brings the hints up to date.
func (r *Runner) hint() {
	if !r.planned {
		return
	}
	r.detour()
	before := r.hints
	r.hints, r.silent = hints(r.plan.Desired.Links, r.actual, r.silent)
	r.hints = r.hints.Condensed()
	for _, p := range r.hints.Without(before) {
		r.log.Warn("packets do not pass", p.Attrs()...)
	}
	if len(r.hints) == 0 && len(before) > 0 {
		r.log.Info("nothing is known any more that keeps packets from passing")
	}
}
