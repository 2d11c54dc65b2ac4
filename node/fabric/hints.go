package fabric

import (
	"fmt"

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

// hint brings the hints up to date.
func (r *Runner) hint() {
	if !r.planned {
		return
	}
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
