package page

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
)

// keptFor is how long a history reaches back.
const keptFor = time.Hour

// maxEnds bounds the gateways that have a history.
const maxEnds = 2 * maxPeerings

// sample is one reading of a gateway. What is not known is nil.
type sample struct {
	at      time.Time
	numbers [len(plotted)]*float64
	drops   map[string]float64
	// handshakes are those since the sample before, which was made that much earlier; zero: not known.
	handshakes uint64
	since      time.Duration
}

// plotted are the names of numbers, in the order of sample.numbers.
var plotted = [...]string{"egressBytes", "ingressBytes", "egressPackets", "ingressPackets", "latency", "handshakes", "memory"}

// otherReasons sums up unknown reasons: the gateway of another cluster may report any
// number of reasons that do not exist.
const otherReasons = "other"

// sampleOf compares two reports of a gateway; before may be nil.
func sampleOf(at time.Time, before, after *survey.GatewayReport) sample {
	s := sample{at: at}
	if after == nil {
		return s // a gap in the plot
	}
	s.numbers[6] = new(float64(after.Memory.Resident))
	if l := after.Sync.Peer.Latency; l > 0 {
		s.numbers[4] = new(l.Seconds() * 1000)
	}
	rates, ok := survey.RatesOf(before, after)
	if !ok {
		return s
	}
	seconds := rates.Window.Seconds()
	s.numbers[0], s.numbers[1] = &rates.Egress.Bytes, &rates.Ingress.Bytes
	s.numbers[2], s.numbers[3] = &rates.Egress.Packets, &rates.Ingress.Packets
	if b, a := before.DataPlane.Tunnel.RxHandshakes, after.DataPlane.Tunnel.RxHandshakes; a >= b {
		s.handshakes, s.since = a-b, rates.Window
	}
	was := make(map[survey.Drop]uint64)
	for _, d := range before.Drops() {
		was[survey.Drop{Direction: d.Direction, Reason: d.Reason}] = d.Count
	}
	for _, d := range after.Drops() {
		b := was[survey.Drop{Direction: d.Direction, Reason: d.Reason}]
		if d.Count <= b {
			continue
		}
		reason := d.Reason
		if _, known := drops.Explain(reason); !known {
			reason = otherReasons
		}
		if s.drops == nil {
			s.drops = make(map[string]float64)
		}
		s.drops[reason] += float64(d.Count-b) / seconds
	}
	return s
}

// history is the last hour of a gateway, the oldest sample first.
type history []sample

func (h history) add(s sample) history {
	first := 0
	for first < len(h) && s.at.Sub(h[first].at) > keptFor {
		first++
	}
	h = append(h[first:], s)
	if s.since > 0 {
		h[len(h)-1].numbers[5] = new(h.handshakes())
	}
	return h
}

// handshakes are those per minute, on average over the last minutes: there is one in two, and each alone would be a spike.
func (h history) handshakes() float64 {
	last := h[len(h)-1].at
	n, covered := uint64(0), time.Duration(0)
	for _, s := range slices.Backward(h) {
		if last.Sub(s.at) >= minWindow {
			break
		}
		n, covered = n+s.handshakes, covered+s.since
	}
	return float64(n) / covered.Minutes()
}

// Series are columns: the times in milliseconds since 1970, and for each of them a
// number or null.
type Series struct {
	Times   []int64               `json:"times"`
	Numbers map[string][]*float64 `json:"numbers"`
	// Drops are packets in a second by reason.
	Drops map[string][]float64 `json:"drops"`
}

// since returns what is later than a time.
func (h history) since(t time.Time) Series {
	s := Series{Times: []int64{}, Numbers: make(map[string][]*float64), Drops: make(map[string][]float64)}
	for len(h) > 0 && !h[0].at.After(t) {
		h = h[1:]
	}
	h = h[max(0, len(h)-maxList):]
	for i, sample := range h {
		s.Times = append(s.Times, sample.at.UnixMilli())
		for k, name := range plotted {
			s.Numbers[name] = append(s.Numbers[name], sample.numbers[k])
		}
		for reason, rate := range sample.drops {
			if s.Drops[reason] == nil {
				s.Drops[reason] = make([]float64, len(h))
			}
			s.Drops[reason][i] = rate
		}
	}
	return s
}
