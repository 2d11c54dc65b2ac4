package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
	"github.com/sluice-net/sluice/test/golden"
)

// romeStatus is a table of romeSurvey, with what the gateway to milan counted.
func romeStatus() statusTable { return statusOf(romeSurvey()) }

func statusOf(s *survey.Cluster) statusTable {
	before := &survey.GatewayReport{Version: "v0.5.0", Started: someTime.Add(-time.Hour), Time: someTime.Add(-2 * time.Second)}
	before.DataPlane.MTU, before.DataPlane.Tunnel.LastHandshake = 1340, someTime.Add(-100*time.Second)
	before.Sync.Peer.LatencyText = "850μs"
	before.DataPlane.Nodes = []survey.NodeTunnel{{Name: "worker-1", LastSeen: someTime}, {Name: "worker-2"}}
	after := *before
	after.Time = someTime
	after.DataPlane.Egress = survey.Direction{Bytes: 123_456_789, Packets: 100_000, Verdicts: map[string]uint64{"Forwarded": 100_000, "DropNoMapping": 12}}
	after.DataPlane.Ingress = survey.Direction{Bytes: 1000, Packets: 10, Verdicts: map[string]uint64{"DropNoNode": 3}}
	after.DataPlane.Tunnel.DropNoSession = 2
	s.Peer("milan").Gateway.Report = &after
	t := statusTable{Time: someTime}
	t.addProblems(s)
	for i := range s.Peers {
		if p := &s.Peers[i]; p.Peered() {
			t.Peerings = append(t.Peerings, s.Status(p, before))
		}
	}
	return t
}

// nodeCutOff is romeSurvey with a rule of another program on one of two nodes: the peering
// with milan works for the other one.
func nodeCutOff() *survey.Cluster {
	s := romeSurvey()
	s.Nodes[1].Internal.Status.Conditions = []metav1.Condition{{
		Type: string(networkingv1beta1.ConditionTunnelsReady), Status: metav1.ConditionFalse, Reason: string(networkingv1beta1.ReasonTrafficDiverted),
		Message: `the rule "500: from all to 10.71.0.0/16 unreachable" comes first: give it a priority above 600`,
	}}
	return s
}

// keyDeleted is romeSurvey with a gateway whose Secret is gone: it goes on with the keys that
// it has.
func keyDeleted() *survey.Cluster {
	s := romeSurvey()
	g := s.Peer("milan").Gateway
	g.Conditions = append(g.Conditions, metav1.Condition{
		Type: string(networkingv1beta1.ConditionKeysReady), Status: metav1.ConditionFalse, Reason: string(networkingv1beta1.ReasonSecretDeleted),
		Message: "Secret gw-milan was deleted; the pod keeps using the keys that were in it",
	})
	return s
}

// podsUnread is romeSurvey as somebody sees it who may not read pods.
func podsUnread() *survey.Cluster {
	s := romeSurvey()
	for i := range s.Peers {
		if g := s.Peers[i].Gateway; g != nil {
			g.Pods = nil
		}
	}
	s.Gaps = []survey.Gap{{What: "Pods", Kind: "Pod"}}
	return s
}

// bothEnds adds the remote end of one of the peerings.
func bothEnds(t statusTable) statusTable {
	other := t.Peerings[0]
	other.Self, other.Peer, other.Cluster = "milan", "rome", "remote"
	other.Alerts = []survey.StatusAlert{{Severity: "error", Object: "GatewayServer a/b", Reason: "X", Message: "it waits"}}
	t.both = true
	t.Peerings = append([]survey.Status{t.Peerings[0], other}, t.Peerings[1:]...)
	return t
}

func TestNetworkStatusLooks(t *testing.T) {
	table := romeStatus()
	for name, tt := range map[string]struct {
		table statusTable
		look  statusLook
	}{
		"plain":         {table, statusLook{rates: true}},
		"no-rates":      {table, statusLook{}},
		"wide":          {table, statusLook{rates: true, wide: true}},
		"both":          {bothEnds(table), statusLook{rates: true}},
		"authenticated": {statusOf(authenticated()), statusLook{rates: true}},
		"node-cut-off":  {statusOf(nodeCutOff()), statusLook{rates: true}},
		"no-controller": {statusOf(scaledToZero()), statusLook{rates: true}},
		"no-agents":     {statusOf(withoutAgents()), statusLook{rates: true}},
		"key-deleted":   {statusOf(keyDeleted()), statusLook{rates: true}},
		"nothing":       {statusTable{none: noPeersIn(nil, &survey.Cluster{})}, statusLook{rates: true}},
		"no-pods":       {statusOf(podsUnread()), statusLook{wide: true}},
		"columns-100":   {table, statusLook{rates: true, columns: 100}},
		"columns-80":    {table, statusLook{rates: true, columns: 80}},
		"columns-40":    {table, statusLook{rates: true, columns: 40}},
		"columns-10":    {table, statusLook{rates: true, columns: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			got := shown(func(p *console.Page) { tt.table.draw(p, tt.look) })
			golden.Compare(t, "testdata/status/"+name+".txt", got)
			lines := strings.Split(got, "\n")
			for _, line := range lines[:min(len(lines), len(tt.table.Peerings)+1)] {
				if n := len([]rune(line)); tt.look.columns >= 40 && n > tt.look.columns {
					t.Errorf("%d columns: %q", n, line)
				}
			}
		})
	}
	golden.Compare(t, "testdata/status/authenticated.json", printed(t, formatJSON, statusOf(authenticated())))
	golden.Compare(t, "testdata/status/status.json", printed(t, formatJSON, table))
	golden.Compare(t, "testdata/status/status.yaml", printed(t, formatYAML, table))
}

func TestNetworkStatusExitCode(t *testing.T) {
	if diff := cmp.Diff([]string{"naples"}, romeStatus().unwell()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"milan", "naples"}, statusOf(authenticated()).unwell()); diff != "" {
		t.Errorf("with a provider that is away (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"milan", "naples"}, statusOf(nodeCutOff()).unwell()); diff != "" {
		t.Errorf("with a node that is cut off (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"naples"}, statusOf(keyDeleted()).unwell()); diff != "" {
		t.Errorf("with a warning (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"naples"}, statusOf(withoutAgents()).unwell()); diff != "" {
		t.Errorf("without node agents (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"rome to naples"}, bothEnds(romeStatus()).unwell()); diff != "" {
		t.Errorf("both ends (-want +got):\n%s", diff)
	}
}

func TestBitRate(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 bit/s", 0.1: "0.8 bit/s", 1: "8 bit/s", 124.9: "999 bit/s", 125: "1 kbit/s", 1250: "10 kbit/s", 1437.5: "12 kbit/s", 155: "1.2 kbit/s",
		124_990: "1.0 Mbit/s", 5e8: "4 Gbit/s", 5e12: "40000 Gbit/s",
	} {
		if got := bitRate(bytes); got != want {
			t.Errorf("%v bytes/s: %q, want %q", bytes, got, want)
		}
	}
}

func TestDropsCell(t *testing.T) {
	status := func(dropped uint64, rate float64) *survey.Status {
		return &survey.Status{Traffic: &survey.Traffic{
			Egress: survey.Counted{Dropped: dropped, Rate: &survey.Rate{Drops: rate}}, Ingress: survey.Counted{Rate: &survey.Rate{}},
			Drops: []survey.Drop{{Direction: "egress", Reason: "DropNoMapping", Count: dropped}},
		}}
	}
	for _, tt := range []struct {
		of   *survey.Status
		wide bool
		want string
	}{
		{&survey.Status{}, false, "-"},
		{status(7, 0), false, "7"},
		{status(7, 12.3), false, "7 (+12/s)"},
		{status(7, 0.01), false, "7 (+0.1/s)"},
		{status(7, 0), true, "7\negress DropNoMapping 7"},
	} {
		if got := dropsCell(tt.of, tt.wide); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestMTUCell(t *testing.T) {
	for want, g := range map[string]*survey.GatewayState{
		"-":                          nil,
		"1340":                       {MTU: 1340, PeerMTU: 1340},
		"1340, peer 1400":            {MTU: 1340, PeerMTU: 1400},
		"1400, path 1340":            {MTU: 1400, PathMTU: 1340, PeerMTU: 1400},
		"1400, path 1340, peer 1500": {MTU: 1400, PathMTU: 1340, PeerMTU: 1500},
	} {
		if got := mtuCell(&survey.Status{Gateway: g}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStateCell(t *testing.T) {
	const idle survey.Health = "nothing is forwarded"
	for _, tt := range []struct {
		state  string
		health survey.Health
		want   string
	}{
		{"Connected", survey.Healthy, "Connected"},
		{"Connected", survey.Unhealthy, "Connected (!)"},
		{"Connected", idle, "No traffic (!)"},
		{"Connecting", survey.Unhealthy, "Connecting"},
		{"Error", survey.Unhealthy, "Error"},
		{"", survey.Disabled, "Disconnected"},
		{"", survey.Unknown, "Unknown"},
		{"", survey.Unhealthy, "Unknown"},
	} {
		s := &survey.Status{State: tt.state, Health: tt.health}
		if tt.health == idle {
			s.Health, s.Alerts = survey.Unhealthy, []survey.StatusAlert{{Severity: "error", Reason: survey.ReasonNoPod, Idle: true}}
		}
		if got := stateCell(s); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
	warned := &survey.Status{State: "Connected", Health: survey.Healthy, Alerts: []survey.StatusAlert{{Severity: "warning", Reason: survey.ReasonStale}}}
	if got := stateCell(warned); got != "Connected (!)" {
		t.Errorf("with a warning: %q", got)
	}
}

// TestNetworkStatusMistakes are those that are told before a cluster is asked.
func TestNetworkStatusMistakes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-w", "--interval", "0"}, "--interval 0s is too short for -w: use at least 500ms"},
		{[]string{"--interval", "soon"}, `--interval "soon": must be a time, such as 30s`},
		{[]string{"-o", "xml"}, `"xml" is not one of json, yaml, wide`},
	} {
		got := liqoctl(t.Context(), append([]string{"network", "status"}, tt.args...)...)
		if got.code != 1 || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("%v: %s", tt.args, fmt.Sprintf("%+v", got))
		}
	}
}
