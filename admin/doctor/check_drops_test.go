package doctor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/admin/drops"
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
		DropNoEndpoint: 1, DropNoSession: 1, DropUnconfirmed: 1, DropNoPeer: 1, DropFlushed: 1, DropUnknownSession: 1, DropRejected: 1, DropMalformed: 1, DropHandshakeLimit: 1,
	}
	var named []string
	for _, d := range r.Drops() {
		named = append(named, d.Reason)
		if _, explained := meaningOf(d.Reason); explained == slices.Contains(noise, d.Reason) {
			t.Errorf("%s is explained: %v; is noise: %v", d.Reason, explained, !explained)
		}
	}
	slices.Sort(named)
	if diff := cmp.Diff(named, slices.Sorted(slices.Values(drops.Reasons()))); diff != "" {
		t.Errorf("explained reasons (-exist +explained):\n%s", diff)
	}
	for _, name := range drops.Reasons() {
		if m, _ := drops.Explain(name); m.Cause == "" || m.Fix == "" {
			t.Errorf("%+v", m)
		}
	}
}

// TestPackets: one packet was dropped, two were.
func TestPackets(t *testing.T) {
	for n, want := range map[uint64]string{1: "1 packet was", 2: "2 packets were"} {
		if got := packets(n) + " " + wasOrWere(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
