package fabric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/node/hostnet"
)

// LinkAuto asks for the best kind of link that can be had.
const LinkAuto = "auto"

// LinkChoice is what links are made of, and why.
type LinkChoice struct {
	// Kind is empty while no kind can be had.
	Kind   hostnet.Kind `json:"kind"`
	Reason string       `json:"reason"`
	// Forced says that a flag asks for it.
	Forced bool `json:"forced"`
	// Supported is what probing found.
	Supported []hostnet.KindSupport `json:"supported,omitempty"`
	// Failed are kinds that seemed to be possible, with what the kernel said when
	// a link was to be made.
	Failed map[hostnet.Kind]string `json:"failed,omitempty"`
}

// badLink says why --link cannot be what it is.
func badLink(s string) error {
	if s == "" || s == LinkAuto || slices.Contains(hostnet.Kinds, hostnet.Kind(s)) {
		return nil
	}
	return fmt.Errorf("--link is %q: it must be auto, geneve, vxlan or tun", s)
}

// chooseKind decides what links are made of. want is --link, inForce the kind of
// the links that are there, empty without any.
//
//	want    situation                                then
//	------------------------------------------------------------------------------
//	a kind  it can be had                            it
//	a kind  it cannot                                none: a clear reason
//	auto    kernel links are there, and can be had   their kind: a change would interrupt
//	auto    links are TUN devices, or there are none the first of geneve, vxlan, tun that can be had
//	auto    a kind failed when a link was made       the next one
//	auto    nothing can be had                       none: every reason
func chooseKind(want string, supported []hostnet.KindSupport, failed map[hostnet.Kind]string, inForce hostnet.Kind) (LinkChoice, error) {
	c := LinkChoice{Supported: supported, Failed: failed, Forced: want != "" && want != LinkAuto}
	why := make(map[hostnet.Kind]string) // it cannot be had
	for _, k := range hostnet.Kinds {
		why[k] = "it was not looked for"
	}
	for _, s := range supported {
		if why[s.Kind] = s.Reason; s.OK {
			delete(why, s.Kind)
		}
	}
	if c.Forced {
		kind := hostnet.Kind(want)
		if reason, no := why[kind]; no {
			c.Reason = fmt.Sprintf("--link=%s asks for links of kind %s, which cannot be had here: %s", want, kind, reason)
			return c, fmt.Errorf("%s; mend that, or use --link=auto", c.Reason)
		}
		c.Kind, c.Reason = kind, "asked for by --link="+want
		return c, nil
	}
	for k, reason := range failed {
		why[k] = reason
	}
	if _, no := why[inForce]; !no && (inForce == hostnet.KindGeneve || inForce == hostnet.KindVXLAN) {
		c.Kind, c.Reason = inForce, "the links that are there are of this kind: another one would interrupt them"
		if inForce == hostnet.Kinds[0] {
			c.Reason = "the best kind, and it can be had"
		}
		return c, nil
	}
	var passed []string
	for _, k := range hostnet.Kinds {
		reason, no := why[k]
		if !no {
			if c.Kind, c.Reason = k, "the best kind, and it can be had"; len(passed) > 0 {
				c.Reason = "no " + strings.Join(passed, "; no ")
			}
			return c, nil
		}
		passed = append(passed, fmt.Sprintf("%s: %s", k, reason))
	}
	c.Reason = "no " + strings.Join(passed, "; no ")
	return c, fmt.Errorf("no kind of link can be had here: %s", c.Reason)
}
