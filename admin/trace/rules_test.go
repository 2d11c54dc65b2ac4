package trace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
)

// TestRules asks the gateways of both clusters, of which each has a chain, about the packet
// and its answer.
func TestRules(t *testing.T) {
	const (
		accepted = `{"action":"accept","steps":[{"table":"a","chain":"b","rule":"web","action":"accept"}]}`
		dropped  = `{"action":"drop","steps":[{"table":"a","chain":"b","rule":"no-web\u001b[2J","action":"drop"}]}`
		policy   = `{"action":"drop","steps":[{"table":"a","chain":"b","action":"drop"}]}`
		there    = "gateway filter -o json --node rome-1 --from 10.243.1.5:40000 --to 10.71.2.20:443 --then-from 10.243.1.5 --then-to 10.243.2.20"
		arrives  = "gateway filter -o json --ingress --node milan-1 --from 10.243.1.5:40000 --to 10.243.2.20:443 --then-from 10.81.1.5 --then-to 10.243.2.20"
		back     = "gateway filter -o json --answer --node milan-1 --from 10.243.2.20:443 --to 10.81.1.5:40000 --then-from 10.243.2.20 --then-to 10.243.1.5"
		returns  = "gateway filter -o json --ingress --answer --node rome-1 --from 10.243.2.20:443 --to 10.243.1.5:40000 --then-from 10.71.2.20 --then-to 10.243.1.5"
	)
	for _, tt := range []struct {
		name   string
		say    map[string]string // by command; else accepted
		err    error
		stop   string // the cluster and the problem
		facts  string // of the first gateway
		unsure bool
	}{
		{name: "accepted", facts: "filter rule a/b/web: accept"},
		{name: "dropped at the first", say: map[string]string{there: dropped}, stop: "local filter rule a/b/no-web [2J: drop", facts: "filter rule a/b/no-web [2J: drop"},
		{name: "dropped at the second", say: map[string]string{arrives: policy}, stop: "remote policy of filter chain a/b: drop", facts: "filter rule a/b/web: accept"},
		{name: "the answer is dropped", say: map[string]string{back: dropped}, stop: "remote filter rule a/b/no-web [2J: drop", facts: "filter rule a/b/web: accept"},
		{name: "nothing matches", say: map[string]string{there: `{"action":"accept"}`}, facts: "no filter rule matches a TCP connection from port 40000"},
		{name: "no answer", err: errors.New("gone"), facts: "filter chain a/b: 0 rules, policy accept", unsure: true},
		{name: "an older gateway", err: errors.New(`gateway: unknown command "filter"`), facts: "filter chain a/b: 0 rules, policy accept"},
	} {
		f := world()
		for _, s := range []*Side{&f.Local, f.Remote} {
			s.report().DataPlane.Filter = []survey.FilterChain{{Table: "a", Chain: "b", Policy: "accept"}}
		}
		way := Trace(f)
		var mu sync.Mutex
		var asked []string
		f.askRules(t.Context(), way, func(_ context.Context, side string, argv []string) ([]byte, error) {
			text := strings.Join(argv, " ")
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, side+" "+text)
			if tt.say[text] != "" {
				return []byte(tt.say[text]), tt.err
			}
			return []byte(accepted), tt.err
		})
		slices.Sort(asked)
		if diff := cmp.Diff([]string{"local " + returns, "local " + there, "remote " + back, "remote " + arrives}, asked); diff != "" {
			t.Errorf("%s: asked (-want +got)\n%s", tt.name, diff)
		}
		stop := ""
		if s := way.Stop(); s != nil {
			stop = s.Cluster + " " + s.Problem.Message
			if hops := way.There; len(way.Back) == 0 && &hops[len(hops)-1] != s || len(way.Back) > 0 && &way.Back[len(way.Back)-1] != s {
				t.Errorf("%s: the way goes on after %s", tt.name, s.Name)
			}
		}
		first := way.There[slices.IndexFunc(way.There, func(h Hop) bool { return h.Kind == "gateway" })]
		if stop != tt.stop || first.Facts[len(first.Facts)-1] != tt.facts || (first.Unknown != "") != tt.unsure {
			t.Errorf("%s: stops at %q, want %q; %+v", tt.name, stop, tt.stop, first)
		}
	}

	// What was dropped just now stops the packet, be it by which rule it may: that is asked.
	for answer, want := range map[string]string{dropped: "filter rule a/b/no-web [2J: drop", accepted: "the gateway dropped a matching packet 0s ago: DropFilter"} {
		f := world()
		f.Local.report().DataPlane.Filter = []survey.FilterChain{{Table: "a", Chain: "b", Policy: "accept"}}
		f.Local.Drops = []drops.Drop{{Direction: "egress", Reason: "DropFilter", Source: addr("10.243.1.5"), Destination: addr("10.71.2.20"), DestinationPort: 443, Time: now}}
		way := Trace(f)
		f.askRules(t.Context(), way, func(context.Context, string, []string) ([]byte, error) { return []byte(answer), nil })
		if stop := way.Stop(); stop == nil || stop.Problem.Message != want {
			t.Errorf("after a drop: %+v, want %s", stop, want)
		}
	}

	f := world()
	f.Port = 0
	f.Local.report().DataPlane.Filter = []survey.FilterChain{{Table: "a", Chain: "b", Policy: "accept"}}
	way := Trace(f)
	f.askRules(t.Context(), way, nil)
	if text := way.There[2].Facts; text[len(text)-1] != "give a port to see which filter rule decides" {
		t.Errorf("without a port: %q", text)
	}
}
