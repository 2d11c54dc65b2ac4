package survey

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Rates is what a gateway forwarded and dropped in a second, between two
// readings of its counters.
type Rates struct {
	Window          time.Duration
	Egress, Ingress Rate
}

// Rate is what happened in one direction.
type Rate struct {
	Bytes   float64 `json:"bytesPerSecond"`
	Packets float64 `json:"packetsPerSecond"`
	Drops   float64 `json:"dropsPerSecond"`
}

// RatesOf computes the rates between two reports of one gateway. It returns false
// where they do not tell: one is missing, they are of different processes, or no
// time passed in between.
func RatesOf(before, after *GatewayReport) (Rates, bool) {
	if before == nil || after == nil || !before.Started.Equal(after.Started) {
		return Rates{}, false
	}
	// Both times are of the gateway's clock.
	window := after.Time.Sub(before.Time)
	if window <= 0 {
		return Rates{}, false
	}
	r := Rates{Window: window}
	b, a := before.dropsByDirection(), after.dropsByDirection()
	ok := r.Egress.set(before.DataPlane.Egress, after.DataPlane.Egress, b[Egress], a[Egress], window) &&
		r.Ingress.set(before.DataPlane.Ingress, after.DataPlane.Ingress, b[Ingress], a[Ingress], window)
	if !ok {
		return Rates{}, false
	}
	return r, true
}

// set returns false when a counter went back: the process is another one, in
// spite of its start.
func (r *Rate) set(before, after Direction, dropsBefore, dropsAfter uint64, window time.Duration) bool {
	per := func(b, a uint64) float64 { return float64(a-b) / window.Seconds() }
	if after.Bytes < before.Bytes || after.Packets < before.Packets || dropsAfter < dropsBefore {
		return false
	}
	*r = Rate{Bytes: per(before.Bytes, after.Bytes), Packets: per(before.Packets, after.Packets), Drops: per(dropsBefore, dropsAfter)}
	return true
}

// Names of the directions: from this cluster to the peer, and back.
const (
	Egress  = "egress"
	Ingress = "ingress"
)

// Drop counts packets that were dropped for one reason. The reasons are explained
// in dataplane/verdict.go and, those that begin with DropTunnel, in
// tunnel/stats.go.
type Drop struct {
	Direction string `json:"direction"`
	Reason    string `json:"reason"`
	Count     uint64 `json:"packets"`
}

// Drops are all drops since the gateway started, the most frequent first.
func (r *GatewayReport) Drops() (out []Drop) {
	add := func(direction, reason string, n uint64) {
		if n > 0 {
			out = append(out, Drop{direction, reason, n})
		}
	}
	for direction, d := range map[string]Direction{Egress: r.DataPlane.Egress, Ingress: r.DataPlane.Ingress} {
		for _, reason := range slices.Sorted(maps.Keys(d.Verdicts)) {
			if strings.HasPrefix(reason, "Drop") {
				add(direction, reason, d.Verdicts[reason])
			}
		}
	}
	// The names are those of the metric sluice_drops_total.
	t := r.DataPlane.Tunnel
	add(Egress, "DropTunnelNoEndpoint", t.DropNoEndpoint)
	add(Egress, "DropTunnelNoSession", t.DropNoSession)
	add(Egress, "DropTunnelUnconfirmed", t.DropUnconfirmed)
	add(Egress, "DropTunnelNoPeer", t.DropNoPeer)
	add(Egress, "DropTunnelFlushed", t.DropFlushed)
	add(Ingress, "DropTunnelUnknownSession", t.DropUnknownSession)
	add(Ingress, "DropTunnelRejected", t.DropRejected)
	add(Ingress, "DropTunnelMalformed", t.DropMalformed)
	add(Ingress, "DropTunnelHandshakeLimit", t.DropHandshakeLimit)
	slices.SortFunc(out, func(a, b Drop) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Direction, b.Direction), strings.Compare(a.Reason, b.Reason))
	})
	return out
}

// dropsByDirection sums Drops.
func (r *GatewayReport) dropsByDirection() map[string]uint64 {
	sums := make(map[string]uint64, 2)
	for _, d := range r.Drops() {
		sums[d.Direction] += d.Count
	}
	return sums
}
