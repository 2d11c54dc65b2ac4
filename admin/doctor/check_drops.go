package doctor

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/api/text"
)

// meaningOf is what a drop means; known is false for what nobody need do anything about.
func meaningOf(reason string) (r drops.Reason, known bool) {
	r, known = drops.Explain(reason)
	return r, known && !r.Harmless
}

// dropsRising tells which named drops rise now. What was dropped long ago is no news.
func dropsRising(e *end) (out []Finding) {
	if !e.asked() {
		return []Finding{skip("the gateway cannot be asked: %s", e.silent())}
	}
	before := make(map[string]uint64)
	if e.before.Started.Equal(e.after.Started) {
		for _, d := range e.before.Drops() {
			before[d.Direction+d.Reason] = d.Count
		}
	}
	window := e.after.Time.Sub(e.before.Time).Round(100 * time.Millisecond)
	var old []string
	for _, d := range e.after.Drops() {
		m, known := meaningOf(d.Reason)
		if !known {
			continue
		}
		rising := d.Count - min(before[d.Direction+d.Reason], d.Count)
		if rising == 0 {
			old = append(old, fmt.Sprintf("%s %d", d.Reason, d.Count))
			continue
		}
		out = append(out, warn("%s in %v %s dropped %s, for %s", packets(rising), window, wasOrWere(rising), directionText(d.Direction), d.Reason).on(e.gateway().String()).
			because("%s", m.Cause).fix("%s", m.Fix))
	}
	for name, s := range e.after.DataPlane.Sockets {
		if rising := s.Overruns - min(e.before.DataPlane.Sockets[name].Overruns, s.Overruns); rising > 0 {
			out = append(out, warn("the kernel dropped %d datagrams of the socket %s in %v: its buffer was full", rising, name, window).on(e.gateway().String()).
				because("more packets arrive than the gateway can handle").fix("give the gateway more CPU, or raise net.core.rmem_max on its node"))
		}
	}
	out = append(out, unchecked(e)...)
	switch {
	case len(out) > 0:
		return out
	case len(old) > 0:
		return []Finding{pass("none rises; since the start: %s", text.Few(old))}
	}
	return []Finding{pass("none")}
}

func directionText(d string) string {
	if d == survey.Egress {
		return "on the way to the peer"
	}
	return "on the way from the peer"
}

// unchecked tells whether the gateway takes packets of pods from any node.
func unchecked(e *end) []Finding {
	p := e.after.DataPlane
	rising := p.Egress.Fallback - min(e.before.DataPlane.Egress.Fallback, p.Egress.Fallback)
	if !e.before.Started.Equal(e.after.Started) {
		rising = 0
	}
	var f Finding
	switch {
	case p.Sources == "off":
		f = warn("any node can send as any pod: the gateway does not check where packets of pods come from").
			because("--strict-source=off is among its arguments").fix("leave it out, unless pods send from other nodes than their own")
	case rising > 0 && p.Sources == "routed":
		f = warn("for %s of pods it was not checked from which node they came", packets(rising)).
			because("the pods have no route: they are newer than their routes, or there are none").
			fix("if it continues, see 'kubectl get routeconfigurations -A' and the log of the controller")
	default:
		return nil
	}
	return []Finding{f.on(e.gateway().String())}
}

// packets is a number of them.
func packets(n uint64) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}

// wasOrWere is the verb of so many.
func wasOrWere(n uint64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
