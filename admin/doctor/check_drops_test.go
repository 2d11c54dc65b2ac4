package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/dataplane"
)

// noise are drops that nobody need do anything about.
var noise = []string{"DropMulticast", "DropFrame", "DropControl", "DropNoConfiguration", "DropOwnAddress"}

// Every drop means something to a user, or nothing to anybody.
func TestMeaningsOfDrops(t *testing.T) {
	r := &survey.GatewayReport{}
	r.DataPlane.Egress.Verdicts = make(map[string]uint64)
	for _, v := range dataplane.Drops() {
		r.DataPlane.Egress.Verdicts[v.String()] = 1
	}
	r.DataPlane.Tunnel = survey.TunnelStats{
		DropNoEndpoint: 1, DropNoSession: 1, DropInFlight: 1, DropNoPeer: 1, DropFlushed: 1, DropUnknownSession: 1, DropRejected: 1, DropMalformed: 1,
	}
	known := make(map[string]bool)
	for _, d := range r.Drops() {
		known[d.Reason] = true
		if _, explained := meanings[d.Reason]; explained == slices.Contains(noise, d.Reason) {
			t.Errorf("%s is explained: %v; is noise: %v", d.Reason, explained, !explained)
		}
	}
	for reason, m := range meanings {
		if !known[reason] {
			t.Errorf("there is no %s", reason)
		}
		if m.cause == "" || m.fix == "" {
			t.Errorf("%s: %+v", reason, m)
		}
	}
}

// Where the peer is gone, nobody is told to give the gateway more CPU.
func TestDropsWithoutPeer(t *testing.T) {
	for connected, want := range map[bool]string{true: "more CPU", false: "checks of UDP and keys"} {
		if m, known := meaningOf("DropTunnelInFlight", connected); !known || !strings.Contains(m.fix, want) {
			t.Errorf("connected %v: %+v, want %q", connected, m, want)
		}
	}
}
