package fabric

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
)

func TestHints(t *testing.T) {
	const (
		v4     = "this node: net.ipv4.ip_forward is 0: packets of pods do not get into the tunnels; set it to 1 (sysctl -w net.ipv4.ip_forward=1)"
		v6     = "this node: net.ipv6.conf.all.forwarding is 0: packets of pods do not get into the tunnels; set it to 1 (sysctl -w net.ipv6.conf.all.forwarding=1)"
		answer = "link liqo.a: the gateway 10.0.0.1 (10.80.0.1) does not answer: does it run, and does it have a tunnel with VNI 7 to this node?"
	)
	for _, tt := range []struct {
		name      string
		routes    []netip.Prefix
		closed    bool
		neighbor  string
		wasSilent bool
		want      []string
	}{
		{"all is well", []netip.Prefix{prefix("10.90.0.0/16")}, false, "reachable", false, nil},
		{"no forwarding", []netip.Prefix{prefix("10.90.0.0/16")}, true, "", false, []string{v4}},
		{"no forwarding of either family", []netip.Prefix{prefix("10.90.0.0/16"), prefix("fd90::/64")}, true, "", false, []string{v4, v6}},
		{"nothing to forward", nil, true, "stale", false, nil},
		{"no answer", nil, false, "failed", false, []string{answer}},
		{"asked for the first time", nil, false, "incomplete", false, nil},
		{"asked again", nil, false, "incomplete", true, []string{answer}},
		{"answered at last", nil, false, "reachable", true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a hostnet.Actual
			a.NoForwarding.IPv4, a.NoForwarding.IPv6 = tt.closed, tt.closed
			for _, name := range []string{"liqo.a", "liqo.surplus"} {
				a.Links = append(a.Links, hostnet.ActualLink{Name: name, VNI: 7, Gateway: addr("10.0.0.1"), Neighbor: hostnet.Neighbor{Addr: addr("10.80.0.1"), State: tt.neighbor}})
			}
			var got []string
			ps, silent := hints([]hostnet.Link{{Name: "liqo.a", Routes: tt.routes}}, a, map[string]bool{"liqo.a": tt.wasSilent})
			for _, p := range ps {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := len(tt.want) > 0 && tt.want[0] == answer; silent["liqo.a"] != want || silent["liqo.surplus"] {
				t.Errorf("silent: %v", silent)
			}
		})
	}
}

func TestRunnerHints(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := start(t, func(x *running) { x.kernel.noForwarding = true }, Options{})
		x.pass(time.Hour)
		reason, message := x.condition(networkingv1beta1.ConditionTunnelsReady)
		if s := x.State(); reason != "TunnelsReady" || !strings.HasPrefix(message, "Tunnels in place: 2; packets do not pass: this node: net.ipv4.ip_forward is 0") || len(s.Warnings) != 1 {
			t.Errorf("%s: %s, %v", reason, message, s.Warnings)
		}
		x.says("packets do not pass", 1)
		x.kernel.mu.Lock()
		x.kernel.noForwarding = false
		x.kernel.mu.Unlock()
		x.pass(time.Minute)
		if s := x.State(); len(s.Warnings) > 0 {
			t.Errorf("%v", s.Warnings)
		}
		x.says("nothing is known any more", 1)
	})
}
