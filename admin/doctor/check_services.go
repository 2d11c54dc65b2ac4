package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// exchange judges what the gateways tell each other of Services.
func exchange(e *end) (out []Finding) {
	if !e.asked() {
		return []Finding{skip("the gateway cannot be asked: %s", e.silent())}
	}
	s, gateway := e.after.Services, e.gateway().String()
	if s == nil {
		return []Finding{pass("no Services are exchanged")}
	}
	if len(s.LeftOut) > 0 {
		out = append(out, warn("%d Services are not offered to the peer", len(s.LeftOut)).on(gateway).
			because("%s", s.LeftOut[0]).fix("export fewer Services, or with fewer endpoints, to this peer: docs/services-exchange.md has the limits"))
	}
	// Without the exchange a peer is well, if nobody misses it. What was refused and is not any more is no news.
	if !s.Heard && s.Problem != "" && e.connected() && (s.Exported+len(s.Imported) > 0 || len(s.Refused) > 0) {
		out = append(out, warn("the Services of the peer are not received; those received before stay").on(gateway).
			because("%s", s.Problem).fix("both installations need services.enabled=true; docs/services-exchange.md explains why Services are refused"))
	}
	if len(out) > 0 {
		return out
	}
	return []Finding{pass("%d exported, %d imported", s.Exported, len(s.Imported))}
}

// sharedServices judges the Services that a cluster exports and imports.
func sharedServices(c *cluster) (out []Finding) {
	if c.shared.err != nil {
		return []Finding{skip("%s", plain(c.shared.err))}
	}
	const most = 10
	all, wrong := 0, 0
	for i := range c.shared.items {
		s := &c.shared.items[i]
		// Peers may export what nobody here wants: without a namespace of that name, or with an annotation that leaves it out,
		// it is not imported, and all is well. 'liqoctl get services' lists it, with the reason.
		if !s.Exported && s.Type == "" && !s.Missed {
			continue
		}
		all++
		why := ""
		switch {
		case len(s.Problems) > 0:
			why = s.Problems[0]
		case s.Type != "" && s.Ready == 0:
			about := slices.DeleteFunc(slices.Clone(s.Notes), func(n string) bool { return !strings.HasPrefix(n, "from cluster ") })
			why = strings.Join(append([]string{fmt.Sprintf("of its %d endpoints none is ready", s.Endpoints)}, about...), "; ")
		default:
			continue
		}
		if wrong++; wrong > most {
			continue
		}
		more := "'liqoctl get services -o wide' shows more"
		switch {
		case s.Exported:
			more = fmt.Sprintf("'kubectl -n %s describe serviceexport %s' and 'liqoctl get services -o wide' show more", s.Namespace, s.Name)
		case s.Type != "":
			more = fmt.Sprintf("'kubectl -n %s describe serviceimport %s' and 'liqoctl get services -o wide' show more", s.Namespace, s.Name)
		}
		out = append(out, warn("the Service is not shared as asked for").on("Service "+s.Namespace+"/"+s.Name).because("%s", why).fix("fix what is named; %s", more))
	}
	switch {
	case wrong > most:
		out = append(out, warn("the same of %d more Services", wrong-most).because("see 'liqoctl get services -o wide'").fix("mend what it names"))
	case len(out) == 0 && all == 0:
		out = append(out, pass("none"))
	case len(out) == 0:
		out = append(out, pass("%d are shared as asked for", all))
	}
	return out
}
