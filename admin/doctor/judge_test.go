package doctor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/golden"
)

// of are the findings of one check.
func of(check string, all []Finding) (out []Finding) {
	for _, f := range all {
		if f.Check == check {
			out = append(out, f)
		}
	}
	return out
}

func textOf(f Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", f.Status, f.Check)
	if f.Cluster != "" {
		fmt.Fprintf(&b, " (%s)", f.Cluster)
	}
	if f.Object != "" {
		fmt.Fprintf(&b, " %s", f.Object)
	}
	fmt.Fprintf(&b, "\n  %s\n", f.Message)
	if f.Cause != "" {
		fmt.Fprintf(&b, "  cause: %s\n", f.Cause)
	}
	if f.Fix != "" {
		fmt.Fprintf(&b, "  fix:   %s\n", f.Fix)
	}
	return b.String()
}

func TestHealthyClusters(t *testing.T) {
	var b strings.Builder
	for _, f := range judge(newWorld(t).facts) {
		if f.Status != OK {
			t.Errorf("%+v", f)
		}
		b.WriteString(textOf(f))
	}
	golden.Compare(t, "testdata/healthy.txt", b.String())
}

// Gateways that have found what the path carries send nothing larger: all is well.
func TestDiscoveredPathMTU(t *testing.T) {
	w := newWorld(t)
	for _, e := range []*end{w.client, w.server} {
		const mtu, carries = 8900, 1440
		e.gateway().MTU, e.before.DataPlane.MTU, e.after.DataPlane.MTU, e.peer.Fabric.Spec.MTU = mtu, mtu, mtu, mtu
		e.probe.MTU, e.probe.Largest, e.probe.Limit, e.probe.Pings[1].Size = carries, carries, 8940, carries
		e.probe.Path.MTU, e.probe.Path.Inner = 9000, 8940
	}
	texts := map[string]string{
		"path-mtu": "1440 passes; 1440 passes",
		"mss":      "TCP connections get an MSS of at most 1400 for IPv4, 1380 for IPv6",
	}
	for _, f := range judge(w.facts) {
		if f.Status != OK {
			t.Errorf("%+v", f)
		}
		if want, ok := texts[f.Check]; ok && f.Message != want {
			t.Errorf("%s: %q, want %q", f.Check, f.Message, want)
		}
	}
}

func TestOneSide(t *testing.T) {
	for name, side := range map[string]func(*world) *end{"client": func(w *world) *end { return w.client }, "server": func(w *world) *end { return w.server }} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.alone(side(w))
			var b strings.Builder
			for _, f := range judge(w.facts) {
				if f.Status != OK && f.Status != Skipped || f.Cluster != "" {
					t.Errorf("%+v", f)
				}
				if f.Status == Skipped || slices.Contains([]string{"configuration", "keys", "mtu"}, f.Check) {
					b.WriteString(textOf(f))
				}
			}
			golden.Compare(t, "testdata/one-side-"+name+".txt", b.String())
		})
	}
}

// Every case breaks one thing, and the check that it belongs to finds it. The
// words are in testdata/findings.txt.
func TestFindings(t *testing.T) {
	var b strings.Builder
	tested := make(map[string]bool)
	for _, tt := range cases {
		t.Run(tt.check+"/"+tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.breaks(w)
			findings := of(tt.check, judge(w.facts))
			fmt.Fprintf(&b, "## %s\n", tt.name)
			hit := false
			for _, f := range findings {
				if f.Status != OK {
					b.WriteString(textOf(f))
				}
				hit = hit || f.Status == tt.want && f.Cluster == tt.cluster
			}
			b.WriteString("\n")
			if !hit {
				t.Errorf("none is %s in %q: %+v", tt.want, tt.cluster, findings)
			}
			if tt.want == Failed || tt.want == Warning {
				tested[tt.check] = true
			}
		})
	}
	golden.Compare(t, "testdata/findings.txt", b.String())
	for _, c := range Checks() {
		if !tested[c] {
			t.Errorf("no case breaks what %s checks", c)
		}
	}
}

// What a check needs is there when it is asked, whatever else is not.
func TestChecksStandEveryWorld(t *testing.T) {
	// Some need what others take away.
	breaks := func(w *world, c testCase) {
		defer func() { _ = recover() }()
		c.breaks(w)
	}
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for i := range cases {
		for range 8 {
			j := r.IntN(len(cases))
			w := newWorld(t)
			for _, c := range w.clusters { // those that cases break
				c.wantedCRDs, c.crds.items = c.wantedCRDs[:4], c.crds.items[:4]
			}
			breaks(w, cases[i])
			breaks(w, cases[j])
			judge(w.facts)
			for _, e := range []*end{w.client, w.server} {
				w.alone(e)
				judge(w.facts)
			}
		}
	}
}

func TestFailuresHideWhatNeedsThem(t *testing.T) {
	skipped := func(all []Finding) (out []string) {
		for _, f := range all {
			if f.Status == Skipped {
				out = append(out, f.Check+"@"+f.Cluster+": "+f.Message)
			}
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		breaks func(w *world)
		want   []string
	}{
		{"one gateway's key", func(w *world) { w.client.peer.PublicKeys = nil }, []string{
			"reachability@: needs what failed before: keys",
			"handshake@: needs what failed before: keys",
			"ping@: needs what failed before: keys",
			"path-mtu@: needs what failed before: keys",
			"mss@: needs what failed before: keys",
		}},
		{"one gateway's pods", func(w *world) { w.server.pods.items = nil }, []string{
			"objects-applied@remote: needs what failed before: gateway pods",
			"service@remote: needs what failed before: gateway pods",
			"endpoint@: needs what failed before: gateway pods",
			"network-policies@remote: the gateway has no pod that policies could select",
			"reachability@: needs what failed before: gateway pods",
			"handshake@: needs what failed before: gateway pods",
			"ping@: needs what failed before: gateway pods",
			"path-mtu@: needs what failed before: gateway pods",
			"mss@: needs what failed before: gateway pods",
			"nodes@remote: needs what failed before: gateway pods",
			"drops@remote: needs what failed before: gateway pods",
			"services-exchange@remote: needs what failed before: gateway pods",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.breaks(w)
			if diff := cmp.Diff(tt.want, skipped(judge(w.facts))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestListOfChecks(t *testing.T) {
	var before []string
	for _, c := range checks {
		if c.title == "" || slices.Contains(before, c.name) {
			t.Errorf("%q has no title, or its name is another's", c.name)
		}
		set := 0
		for _, is := range []bool{c.ofClient != nil, c.ofCluster != nil, c.ofEnd != nil, c.ofPeering != nil} {
			if is {
				set++
			}
		}
		if set != 1 {
			t.Errorf("%s looks at %d kinds of things", c.name, set)
		}
		for _, need := range c.needs {
			if !slices.Contains(before, need) {
				t.Errorf("%s needs %s, which does not come before", c.name, need)
			}
		}
		before = append(before, c.name)
	}
	if Title("keys") != "keys" || Title("unknown") != "unknown" {
		t.Error("titles")
	}
}

func TestSum(t *testing.T) {
	r := Report{Findings: []Finding{pass("a"), pass("b"), warn("c"), skip("d"), fail("e")}}
	r.sum()
	if diff := cmp.Diff(Summary{OK: 2, Warnings: 1, Failed: 1, Skipped: 1}, r.Summary); diff != "" || r.Healthy() {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if Worse(Skipped, OK) != Skipped || Worse("", OK) != OK || Worse(Failed, Warning) != Failed || Worse(Warning, "") != Warning {
		t.Error("Worse")
	}
}
