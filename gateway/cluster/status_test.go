package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/objects/manifests"
)

// connected is the report of a gateway that is well.
func connected() control.Report {
	return control.Report{
		Time: noon, Generation: 3,
		Peer: control.Peer{Value: networkingv1beta1.Connected, LatencyText: "12ms", Timestamp: noon.Add(-time.Second), MTU: 1340},
	}
}

func TestStatusOf(t *testing.T) {
	const answers = "PeerAnswers True PeerAnswers: the peer's gateway answers"
	tests := []struct {
		name   string
		change func(*control.Report)
		want   []string
	}{
		{"well", func(*control.Report) {}, []string{
			"ConfigurationApplied True Applied: the newest objects are in force", answers, "MTUMatches True MTUMatches: both gateways have an MTU of 1340"}},
		{"the peer does not tell its MTU", func(r *control.Report) { r.Peer.MTU = 0 }, []string{
			"ConfigurationApplied True Applied: the newest objects are in force", answers}},
		{"another MTU", func(r *control.Report) { r.Peer.MTUMismatch = "the peer's MTU is 1300" }, []string{
			"ConfigurationApplied True Applied: the newest objects are in force", answers, "MTUMatches False MTUMismatch: the peer's MTU is 1300"}},
		{"refused", func(r *control.Report) {
			r.Refused = manifests.Problems{{Object: "Configuration t/p", Reason: "overlaps"}}
		}, []string{
			"ConfigurationApplied False Refused: what was in force stays: Configuration t/p: overlaps", answers, "MTUMatches True MTUMatches: both gateways have an MTU of 1340"}},
		{"refused from the start", func(r *control.Report) {
			r.Generation, r.Peer.MTU, r.Refused = 0, 0, manifests.Problems{{Reason: "bad key"}}
		}, []string{"ConfigurationApplied False Refused: nothing is in force: bad key", answers}},
		{"waiting from the start", func(r *control.Report) { r.Generation, r.Peer.MTU = 0, 0 }, []string{
			"ConfigurationApplied False WaitingForObjects: waiting for the objects of the peering", answers}},
		{"without the peer's key", func(r *control.Report) {
			r.Peer.MTU, r.Missing = 0, manifests.Problems{{Object: "GatewayServer t/g", Reason: "there is no PublicKey"}}
		}, []string{"ConfigurationApplied False WaitingForObjects: in force, but: GatewayServer t/g: there is no PublicKey", answers}},
		{"without a bad object", func(r *control.Report) {
			r.Peer.MTU, r.Ignored = 0, manifests.Problems{{Object: "IP a/b", Reason: "is another's"}}
		}, []string{"ConfigurationApplied False Refused: in force but for: IP a/b: is another's", answers}},
		{"a peer that is silent", func(r *control.Report) {
			r.Peer = control.Peer{Value: networkingv1beta1.ConnectionError, LatencyText: "N/A", Silence: control.Silence{Reason: networkingv1beta1.ReasonNoHandshake, Message: "check that"}}
		}, []string{"ConfigurationApplied True Applied: the newest objects are in force", "PeerAnswers False NoHandshake: check that"}},
		{"a peer that has not been asked for long", func(r *control.Report) {
			r.Peer = control.Peer{Value: networkingv1beta1.Connecting, LatencyText: "N/A"}
		}, []string{"ConfigurationApplied True Applied: the newest objects are in force"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report := connected()
			tt.change(&report)
			live := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			s := statusOf(report, live)
			var got []string
			for _, c := range s.Conditions {
				if c.ObservedGeneration != 2 {
					t.Errorf("%s: observed generation %d", c.Type, c.ObservedGeneration)
				}
				got = append(got, c.Type+" "+string(c.Status)+" "+c.Reason+": "+c.Message)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			// What was written is what is wanted the next time.
			live.Status = s
			report.Time = noon.Add(time.Second)
			if due(live.Status, statusOf(report, live), time.Second, 10*time.Second) {
				t.Error("would be written again")
			}
		})
	}
}

func TestStatusIsBounded(t *testing.T) {
	report := connected()
	for range 1000 {
		report.Ignored = append(report.Ignored, manifests.Problem{Object: "IP a/b", Reason: "is another's"})
	}
	if _, message := appliedOf(report); len(message) > maxMessage+10 || !strings.HasSuffix(message, "...") {
		t.Errorf("a message of %d bytes", len(message))
	}
}

func TestDue(t *testing.T) {
	at := func(change func(*control.Report)) networkingv1beta1.ConnectionStatus {
		report := connected()
		change(&report)
		return statusOf(report, new(networkingv1beta1.Connection))
	}
	same := func(*control.Report) {}
	similar := func(r *control.Report) { r.Peer.LatencyText, r.Peer.Timestamp = "13ms", noon }
	slower := func(r *control.Report) { r.Peer.LatencyText, r.Peer.Timestamp = "19ms", noon }
	tests := []struct {
		name       string
		live, want networkingv1beta1.ConnectionStatus
		since      time.Duration
		due        bool
	}{
		{"a new Connection", networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected}, at(same), 0, true},
		{"nothing new", at(same), at(same), time.Hour, false},
		{"another value", at(same), at(func(r *control.Report) { r.Peer.Value = networkingv1beta1.ConnectionError }), 0, true},
		{"the first latency", at(func(r *control.Report) { r.Peer.LatencyText = "N/A" }), at(same), 0, true},
		{"another latency, not yet", at(same), at(slower), 9 * time.Second, false},
		{"another latency, in time", at(same), at(slower), 10 * time.Second, true},
		{"about the same latency, not yet", at(same), at(similar), 99 * time.Second, false},
		{"about the same latency, in time", at(same), at(similar), 100 * time.Second, true},
		{"another condition", at(same), at(func(r *control.Report) { r.Refused = manifests.Problems{{Reason: "x"}} }), 0, true},
		{"somebody has edited it", networkingv1beta1.ConnectionStatus{Value: "Fine"}, at(same), 0, true},
	}
	for _, tt := range tests {
		if got := due(tt.live, tt.want, tt.since, 10*time.Second); got != tt.due {
			t.Errorf("%s: due is %v", tt.name, got)
		}
	}
}

func TestHostCondition(t *testing.T) {
	table := func(generation int64, have ...networkingv1beta1.HostCondition) *networkingv1beta1.FirewallConfiguration {
		f := &networkingv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "f", Generation: generation}}
		f.Status.Conditions = have
		return f
	}
	old := metav1.NewTime(noon.Add(-time.Hour))
	applied := networkingv1beta1.HostCondition{
		Host: "gw", Type: networkingv1beta1.HostConditionApplied, Status: metav1.ConditionTrue, ObservedGeneration: 2, Reason: "Applied",
		Message: "every rule is in force", LastTransitionTime: old,
	}
	report := connected()
	report.Firewall = []control.FirewallReport{
		{Namespace: "t", Name: "f", Generation: 2, Applied: true, Reason: control.FirewallApplied, Message: "every rule is in force"},
	}
	tests := []struct {
		name   string
		report control.Report
		live   *networkingv1beta1.FirewallConfiguration
		want   []networkingv1beta1.HostCondition
		write  bool
	}{
		{"not said yet", report, table(2), []networkingv1beta1.HostCondition{func() networkingv1beta1.HostCondition {
			c := applied
			c.LastTransitionTime = metav1.NewTime(noon)
			return c
		}()}, true},
		{"said", report, table(2, applied), nil, false},
		{"said of the spec before", report, table(2, func() networkingv1beta1.HostCondition {
			c := applied
			c.ObservedGeneration = 1
			return c
		}()), []networkingv1beta1.HostCondition{applied}, true},
		{"changed since it was judged", report, table(3, applied), nil, false},
		{"not ours any more", connected(), table(2, applied), nil, true},
		{"never ours", connected(), table(2), nil, false},
	}
	for _, tt := range tests {
		got, write := hostCondition(tt.report, "gw", tt.live, false)
		if diff := cmp.Diff(tt.want, got); diff != "" || write != tt.write {
			t.Errorf("%s: write is %v, conditions (-want +got):\n%s", tt.name, write, diff)
		}
	}
}

func TestFieldManager(t *testing.T) {
	if got := fieldManager(Options{Namespace: "tenant", Name: "gw"}); got != "sluice-gateway/tenant/gw" {
		t.Error(got)
	}
	long := Options{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("g", 253)}
	other := long
	other.Name += "x"
	if a, b := fieldManager(long), fieldManager(other); len(a) > maxFieldManager || a == b {
		t.Errorf("%s, %s", a, b)
	}
}

func TestOtherLatency(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"12ms", "12ms", false},
		{"12ms", "18ms", false},
		{"12ms", "18.1ms", true},
		{"18.1ms", "12ms", true},
		{"300µs", "2ms", false}, // nobody notices
		{"300µs", "2.5ms", true},
		{"N/A", "12ms", true},
		{"N/A", "N/A", false},
	} {
		if got := otherLatency(tt.a, tt.b); got != tt.want {
			t.Errorf("%s and %s: %v", tt.a, tt.b, got)
		}
	}
}
