package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func readingsOf(clusters ...*survey.Cluster) (out []reading) {
	for i, c := range clusters {
		out = append(out, reading{origin: fmt.Sprintf("context %d", i), survey: c})
	}
	return out
}

// lines are the peerings of a state in short: who with whom, ends, tone.
func lines(s *State) (out []string) {
	for _, p := range s.Peerings {
		out = append(out, fmt.Sprintf("%s %d %s", p.Key, len(p.Ends), p.Tone))
	}
	return out
}

func TestBuild(t *testing.T) {
	for _, tt := range []struct {
		name     string
		clusters func() []reading
		want     []string
		strange  []string // keys of clusters that nobody named
	}{
		{"both ends are one line", func() []reading {
			return readingsOf(clusterWith("rome", 2, 1, "milan"), clusterWith("milan", 2, 1, "rome"))
		}, []string{"0~1 2 up"}, nil},
		{"one end leads to a cluster that nobody named", func() []reading {
			return readingsOf(clusterWith("rome", 2, 1, "milan", "turin"))
		}, []string{"0~?milan 1 up", "0~?turin 1 up"}, []string{"?milan", "?turin"}},
		{"two clusters that know the same third", func() []reading {
			return readingsOf(clusterWith("rome", 1, 1, "turin"), clusterWith("milan", 1, 1, "turin"))
		}, []string{"0~?turin 1 up", "1~?turin 1 up"}, []string{"?turin"}},
		{"a cut tunnel", func() []reading {
			a, b := clusterWith("rome", 2, 1, "milan"), clusterWith("milan", 2, 1, "rome")
			cutTunnel(&a.Peers[0])
			return readingsOf(a, b)
		}, []string{"0~1 2 down"}, nil},
		{"one end knows nothing of the peering", func() []reading {
			return readingsOf(clusterWith("rome", 2, 1, "milan"), clusterWith("milan", 2, 1))
		}, []string{"0~1 1 up"}, nil},
		{"ends that contradict each other", func() []reading {
			a, b := clusterWith("rome", 2, 1, "milan"), clusterWith("milan", 2, 1, "rome")
			b.Peers[0].Configuration.Spec.Local = new(cidrs("10.1.0.0/16", "10.70.0.0/16"))
			return readingsOf(a, b)
		}, []string{"0~1 2 degraded"}, nil},
		{"a cluster that was never read", func() []reading {
			return append(readingsOf(clusterWith("rome", 2, 1, "milan")), reading{origin: "context 1", problem: "it does not answer"})
		}, []string{"0~?milan 1 up"}, []string{"?milan"}},
		{"one end cannot be read any more", func() []reading {
			out := readingsOf(clusterWith("rome", 2, 1, "milan"), clusterWith("milan", 2, 1, "rome"))
			cutTunnel(&out[0].survey.Peers[0])
			out[0].problem = "it does not answer"
			return out
		}, []string{"0~1 2 up"}, nil},
		{"no end can be read any more", func() []reading {
			out := readingsOf(clusterWith("rome", 2, 1, "milan"), clusterWith("milan", 2, 1, "rome"))
			out[0].problem, out[1].problem = "it does not answer", "nor this"
			return out
		}, []string{"0~1 2 unknown"}, nil},
		{"no gateway", func() []reading {
			a := clusterWith("rome", 2, 1, "milan")
			a.Peers[0].Gateway = nil
			return readingsOf(a)
		}, []string{"0~?milan 1 off"}, []string{"?milan"}},
		{"the same cluster twice", func() []reading {
			return readingsOf(clusterWith("rome", 2, 1, "milan"), clusterWith("rome", 2, 1, "milan"))
		}, []string{"0~?milan 1 up"}, []string{"?milan"}},
		{"a cluster that claims to be its own peer", func() []reading {
			return readingsOf(clusterWith("rome", 2, 1, "rome"))
		}, []string{"0~?rome 1 degraded"}, []string{"?rome"}},
		{"nothing installed", func() []reading { return readingsOf(&survey.Cluster{}) }, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := build(tt.clusters(), nil)
			if diff := cmp.Diff(tt.want, lines(s)); diff != "" {
				t.Errorf("peerings (-want +got):\n%s", diff)
			}
			var strange []string
			for _, c := range s.Clusters {
				if !c.Named {
					strange = append(strange, c.Key)
				}
			}
			if diff := cmp.Diff(tt.strange, strange); diff != "" {
				t.Errorf("clusters (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCalled: CIDRs as each side calls them.
func TestCalled(t *testing.T) {
	s := build(readingsOf(clusterWith("rome", 2, 1, "milan")), nil)
	want := []Called{{"pods", "10.243.0.0/16", "10.71.0.0/16"}, {"external", "10.70.0.0/16", "10.130.0.0/16"}}
	if diff := cmp.Diff(want, s.Peerings[0].Ends[0].CIDRs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c := clusterWith("rome", 2, 1, "milan")
	here, err := addressHere(&c.Peers[0], addr("10.243.2.20"))
	if err != nil || here != addr("10.71.2.20") {
		t.Errorf("10.243.2.20 is %v here, %v", here, err)
	}
	if _, err := addressHere(&c.Peers[0], addr("10.1.2.20")); err == nil {
		t.Error("an address of no CIDR is called something")
	}
}

// TestSilence: pings that get lost make a peering down where the doctor has found why.
func TestSilence(t *testing.T) {
	why := []doctor.Finding{{Check: "reachability", Status: doctor.Failed, Message: "UDP is blocked"}}
	for _, tt := range []struct {
		name string
		lost int
		d    *Diagnosis
		want Tone
	}{
		{"not examined yet", 2, nil, Up},
		{"the doctor found nothing", 2, &Diagnosis{}, Up},
		{"the doctor found why", 2, &Diagnosis{Findings: why, cut: true}, Down},
		{"one ping", 1, &Diagnosis{Findings: why, cut: true}, Up},
	} {
		a, b := clusterWith("rome", 2, 1, "milan"), clusterWith("milan", 2, 1, "rome")
		b.Peers[0].Gateway.Report.Sync.Peer.Lost = tt.lost
		p := build(readingsOf(a, b), map[string]*Diagnosis{"0~1": tt.d}).Peerings[0]
		if down := tt.want == Down; p.Tone != tt.want || (p.Why == "UDP is blocked") != down || (p.Diagnosis != nil) != down {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
	for check, want := range map[string]bool{"reachability": true, "network-policies": true, "nodes": false, "authentication": false} {
		if got := cutOff([]doctor.Finding{{Check: "ping", Status: doctor.Skipped}, {Check: check, Status: doctor.Failed}}); got != want {
			t.Errorf("%s failed: cut off %v", check, got)
		}
	}
}

// TestDiagnosisBelongsToWhatIsUnwell: what the doctor said of a peering is not shown once
// it is well.
func TestDiagnosisBelongsToWhatIsUnwell(t *testing.T) {
	d := map[string]*Diagnosis{"0~?milan": {Findings: []doctor.Finding{{Message: "UDP is blocked"}}}}
	a := clusterWith("rome", 2, 1, "milan")
	if s := build(readingsOf(a), d); s.Peerings[0].Diagnosis != nil {
		t.Error("a peering that is well has a diagnosis")
	}
	cutTunnel(&a.Peers[0])
	s := build(readingsOf(a), d)
	if s.Peerings[0].Diagnosis == nil || s.Peerings[0].Why != "UDP is blocked" {
		t.Errorf("%+v", s.Peerings[0])
	}
	if s := build(readingsOf(a), nil); !strings.Contains(s.Peerings[0].Why, "no handshake for 3m0s") {
		t.Errorf("not examined yet: %+v", s.Peerings[0])
	}
}

// TestHostileClusterIsBounded: whatever a cluster holds, an answer is of a size that a
// page can show, and holds no characters that change how others look.
func TestHostileClusterIsBounded(t *testing.T) {
	const huge = 1 << 20 // what an object may hold
	message, annotation := strings.Repeat("\u202e<script>\x1b[31m", huge/16), strings.Repeat("a", huge)
	c := clusterWith("rome", 50_000, 1)
	for i := range 600 {
		p := peerOf("rome", fmt.Sprintf("<img src=x onerror=alert(1)>%d", i), i%50, time.Now(), 1)
		p.Configuration.Annotations = map[string]string{"a": annotation}
		p.Connection.Status.Conditions = make([]metav1.Condition, 3000)
		for k := range p.Connection.Status.Conditions {
			p.Connection.Status.Conditions[k] = metav1.Condition{Type: fmt.Sprint(k), Status: "False", Reason: annotation, Message: message}
		}
		p.Gateway.Report.DataPlane.Egress.Verdicts = map[string]uint64{}
		for k := range 200 {
			p.Gateway.Report.DataPlane.Egress.Verdicts[fmt.Sprintf("Drop%d", k)] = 1
		}
		c.Peers = append(c.Peers, p)
	}
	c.Gaps = []survey.Gap{{What: "x", Err: errors.New(annotation)}}
	s := build(readingsOf(c), nil)
	out, err := bounded(s, maxStateText, maxState)
	if err != nil || len(out) > maxState {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
	if len(s.Peerings) != maxPeerings || s.Omitted != 600-maxPeerings || len(s.Clusters[0].Nodes) != maxNodes || s.Clusters[0].AllNodes != 50_000 {
		t.Errorf("%d peerings, %d left out, %d nodes of %d", len(s.Peerings), s.Omitted, len(s.Clusters[0].Nodes), s.Clusters[0].AllNodes)
	}
	var shown any
	if err := json.Unmarshal(out, &shown); err != nil {
		t.Fatal(err)
	}
	eachText(shown, func(text string) {
		if len(text) > maxText+1000 || strings.ContainsAny(text, "\u202e\x1b") {
			t.Errorf("%d bytes: %.100q", len(text), text)
		}
	})
}

func eachText(v any, do func(string)) {
	switch v := v.(type) {
	case string:
		do(v)
	case []any:
		for _, e := range v {
			eachText(e, do)
		}
	case map[string]any:
		for k, e := range v {
			do(k)
			eachText(e, do)
		}
	}
}

// TestObjectText: an object as large as an API server takes it becomes a text that a page can show, and hides nothing.
func TestObjectText(t *testing.T) {
	const huge = 1 << 20
	o := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "milan", Annotations: map[string]string{
		"a": strings.Repeat("a", huge), "b": "</pre><script>\u202e\x1b[31m",
	}}}
	for i := range 100_000 {
		o.Spec.Remote.CIDR.Pod.List = append(o.Spec.Remote.CIDR.Pod.List, networkingv1beta1.CIDR(fmt.Sprintf("10.0.%d.0/24", i)))
	}
	out, err := objectText(o)
	if err != nil || len(out) > maxYAML+100 || strings.ContainsAny(out, "\u202e\x1b") || !strings.Contains(out, "</pre><script>") || !strings.Contains(out, "milan") {
		t.Errorf("%d bytes, %v:\n%.500s", len(out), err, out)
	}
}

func TestBounded(t *testing.T) {
	deep := any("x")
	for range 100 {
		deep = []any{deep}
	}
	for _, tt := range []struct {
		name  string
		value any
		want  string
	}{
		{"as it is", map[string]any{"a": []any{1, "b", nil, true}}, `{"a":[1,"b",null,true]}`},
		{"long", strings.Repeat("x", 20), `"xxxxxxx..."`},
		{"control characters", "a\x1b\u202eb\nc", "\"a\ufffd\ufffdb\\nc\""},
		{"a number that a float would change", json.Number("18446744073709551615"), "18446744073709551615"},
	} {
		got, err := bounded(tt.value, 10, maxAnswer)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
	if out, err := bounded(deep, 10, maxAnswer); err != nil || strings.Count(string(out), "[") > maxDepth {
		t.Errorf("deep: %s, %v", out, err)
	}
	many := make([]string, maxList)
	for i := range many {
		many[i] = strings.Repeat("x", 2*maxState/maxList)
	}
	if out, err := bounded(many, maxAnswer, maxState); err != nil || len(out) > maxState || len(out) < maxState/4 {
		t.Errorf("texts that are too much together: %d bytes, %v", len(out), err)
	}
	short := slices.Repeat([]string{strings.Repeat("x", minText)}, maxList)
	if _, err := bounded(slices.Repeat([]any{short}, 2*maxAnswer/minText/maxList), minText, maxState); err == nil {
		t.Error("an answer of more than can be shown is sent")
	}
}
