package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/drops"
)

// This file asks gateways which filter rules the packet meets, as the first of a TCP
// connection or its answer. Rules about other protocols and about the client's port are
// known by what they have dropped only: see lately.

const (
	rulesTimeout = 10 * time.Second
	// clientPort is the port of whoever opens the connection: one of those that clients have.
	clientPort = 40000
)

// question is about a packet at a gateway.
type question struct {
	hops *[]Hop // There or Back of the way
	at   int    // the gateway's place in them
	argv []string
}

func (q *question) hop() *Hop { return &(*q.hops)[q.at] }

// questions are those to the gateways that have filter chains.
func (f *Facts) questions(way *Way) (all []question) {
	for _, side := range []*Side{&f.Local, f.Remote} {
		if side == nil || side.report() == nil || len(side.report().DataPlane.Filter) == 0 {
			continue
		}
		for _, hops := range []*[]Hop{&way.There, &way.Back} {
			for i := range *hops {
				if h := &(*hops)[i]; h.Kind == "gateway" && h.Cluster == side.Name && (h.Problem == nil || strings.Contains(h.Problem.Message, ": DropFilter")) && h.Unknown == "" {
					if argv := filterArgs(*hops, i, f.Port, hops == &way.Back); argv != nil {
						all = append(all, question{hops, i, argv})
					}
				}
			}
		}
	}
	return all
}

// filterArgs is the command that asks a gateway about the packet; nil if its path is not
// known well enough. Port is the server's.
func filterArgs(hops []Hop, i int, port uint16, answer bool) []string {
	kind := func(i int, kind string) bool { return i >= 0 && i < len(hops) && hops[i].Kind == kind }
	var before, after, node *Hop
	argv := []string{"gateway", "filter", "-o", "json"}
	switch {
	case kind(i+1, "translation"):
		before, after, node = &hops[i], &hops[i+1], &hops[max(i-1, 0)]
	case kind(i-1, "translation") && kind(i-2, "tunnel"):
		before, after, node = &hops[i-2], &hops[i-1], &hops[min(i+1, len(hops)-1)]
		argv = append(argv, "--ingress")
	case i == len(hops)-1 && kind(i-1, "node"): // it stops here, as far as is known
		before, after, node = &hops[i], &hops[i], &hops[i-1]
	default:
		return nil
	}
	from, to := uint16(clientPort), port
	if answer {
		from, to = to, from
		argv = append(argv, "--answer")
	}
	if node.Kind == "node" {
		argv = append(argv, "--node", node.Name)
	}
	return append(argv, "--from", netip.AddrPortFrom(before.Source, from).String(), "--to", netip.AddrPortFrom(before.Destination, to).String(),
		"--then-from", after.Source.String(), "--then-to", after.Destination.String())
}

// rulesMet is what the gateway answers: see cmd/gateway.
type rulesMet struct {
	Action string `json:"action"`
	Steps  []struct {
		Table, Chain, Rule, Action string
	} `json:"steps"`
}

// askRules adds to the hops of gateways which rules the packet matches there. The way ends
// where one drops it. run runs a command in the gateway of a side.
func (f *Facts) askRules(ctx context.Context, way *Way, run func(ctx context.Context, side string, argv []string) ([]byte, error)) {
	all := f.questions(way)
	if len(all) == 0 {
		return
	}
	if f.Port == 0 {
		for _, q := range all {
			q.hop().Facts = append(q.hop().Facts, "give a port to see which filter rule decides")
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	answers, errs := access.Parallel(all, len(all), func(q question) (met rulesMet, err error) {
		out, err := run(ctx, q.hop().Cluster, q.argv)
		if err == nil {
			err = json.Unmarshal(out, &met)
		}
		return met, err
	})
	stopped := func(q *question) bool { return q.at >= len(*q.hops) }
	for _, hops := range []*[]Hop{&way.There, &way.Back} {
		for i := range all {
			if q := &all[i]; q.hops == hops && !stopped(q) && q.judge(&answers[i], errs[i]) {
				*q.hops = (*q.hops)[:q.at+1]
				if hops == &way.There {
					way.Back = nil
				}
			}
		}
	}
}

// judge adds the answer to the hop, and reports whether the packet stops there.
func (q *question) judge(met *rulesMet, err error) (stops bool) {
	h := q.hop()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), `unknown command "filter"`): // an older gateway
		return false
	default:
		h.Unknown = plain("which filter rule decides: " + err.Error())
		return false
	}
	last := ""
	for _, s := range met.Steps {
		last = fmt.Sprintf("policy of filter chain %s/%s", s.Table, s.Chain)
		if s.Rule != "" {
			last = fmt.Sprintf("filter rule %s/%s/%s", s.Table, s.Chain, s.Rule)
		}
		h.Facts = append(h.Facts, plain(last+": "+s.Action))
	}
	switch met.Action {
	case "drop", "reject":
		reason, _ := drops.Explain("DropFilter")
		h.Problem = &Problem{plain(fmt.Sprintf("%s: %s", last, met.Action)), reason.Cause, reason.Fix}
		return true
	}
	if len(met.Steps) == 0 {
		h.Facts = append(h.Facts, fmt.Sprintf("no filter rule matches a TCP connection from port %d", clientPort))
	}
	return false
}

// runIn runs a command in the gateway of a side.
func runIn(sides []*sideReader) func(ctx context.Context, side string, argv []string) ([]byte, error) {
	return func(ctx context.Context, side string, argv []string) ([]byte, error) {
		s := sides[0]
		if side == access.Remote {
			s = sides[1]
		}
		return s.access.Output(ctx, s.gatewayPod(), gatewayProgram, argv)
	}
}
