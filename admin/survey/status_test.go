package survey

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/golden"
)

// later is a report of the same gateway, some time after, with more of everything.
func later(r *GatewayReport, d time.Duration) *GatewayReport {
	l := *r
	l.Time = l.Time.Add(d)
	l.DataPlane.Egress.Bytes += 1_000_000
	l.DataPlane.Egress.Packets += 1000
	l.DataPlane.Egress.Verdicts = map[string]uint64{"Forwarded": 1090, "DropNoMapping": 14, "DropSpoofedSource": 1}
	l.DataPlane.Ingress.Bytes += 500
	return &l
}

func TestRatesOf(t *testing.T) {
	before := gatewayReport(t)
	changed := func(change func(*GatewayReport)) *GatewayReport {
		l := later(before, 2*time.Second)
		change(l)
		return l
	}
	for _, tt := range []struct {
		name          string
		before, after *GatewayReport
		want          Rates
		ok            bool
	}{
		{"two readings", before, later(before, 2*time.Second),
			Rates{2 * time.Second, Rate{Bytes: 500_000, Packets: 500, Drops: 5}, Rate{Bytes: 250}}, true},
		{"nothing in between", before, before, Rates{}, false},
		{"one is missing", nil, before, Rates{}, false},
		{"the other is missing", before, nil, Rates{}, false},
		{"started again", before, changed(func(r *GatewayReport) { r.Started = r.Started.Add(time.Hour) }), Rates{}, false},
		{"a counter went back", before, changed(func(r *GatewayReport) { r.DataPlane.Ingress.Bytes = 0 }), Rates{}, false},
		{"drops went back", before, changed(func(r *GatewayReport) { r.DataPlane.Egress.Verdicts = nil }), Rates{}, false},
		{"the clock was set", before, changed(func(r *GatewayReport) { r.Time = r.Time.Add(-time.Hour) }), Rates{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := RatesOf(tt.before, tt.after)
			if ok != tt.ok {
				t.Errorf("ok %v, want %v", ok, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDrops(t *testing.T) {
	want := []Drop{
		{"egress", "DropTunnelNoSession", 9}, {"egress", "DropNoMapping", 4}, {"ingress", "DropNoNode", 2}, {"egress", "DropSpoofedSource", 1},
	}
	if diff := cmp.Diff(want, gatewayReport(t).Drops()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStatusNames fixes the names of -o json: scripts read them.
func TestStatusNames(t *testing.T) {
	s := peering().read()
	p := s.Peer("milan")
	before := gatewayReport(t)
	p.Gateway.Report = later(before, 2*time.Second)
	p.Gateway.Report.Cluster = nil
	p.Gateway.Report.DataPlane.PathMTU = 1280
	text, err := json.MarshalIndent(s.Status(p, before), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/status.json", string(text)+"\n")
}

func TestStatusWithoutReport(t *testing.T) {
	s := peering().read()
	got := s.Status(s.Peer("milan"), nil)
	want := Status{
		Self: "rome", Peer: "milan", Namespace: "liqo-tenant-milan", Health: Healthy, State: "Connected", Latency: "12ms",
		Gateway: &GatewayState{Kind: "GatewayServer", Name: "milan", Role: "Server", Endpoint: "172.19.0.8:32009", MTU: 1340, Version: "v0.5.0",
			Replicas: 2, Ready: 2, ActivePod: "gw-milan-a", ActiveNode: "worker-1", Restarts: 2},
		Keys:  &KeyState{Since: now.Add(-72 * time.Hour), PeerSince: now.Add(-27 * time.Minute)},
		Nodes: &NodeState{Known: 2, Joined: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusOfAPeeringWithoutGateway(t *testing.T) {
	f := peering()
	f.servers, f.connections = nil, nil
	s := f.read()
	want := Status{Self: "rome", Peer: "milan", Namespace: "liqo-tenant-milan", Health: Disabled}
	if diff := cmp.Diff(want, s.Status(s.Peer("milan"), nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
