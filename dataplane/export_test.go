package dataplane

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/tunnel"
)

// MaxPathMTUs bounds what PathMTUs returns.
const MaxPathMTUs = maxPathMTUs

// PathMTUs returns how many paths with a smaller MTU are remembered.
func (f *Forwarder) PathMTUs() int { return int(f.pathMTUs.count.Load()) }

// CloseStack makes the gateway's own stack refuse every change.
func (f *Forwarder) CloseStack() { f.stack.Close() }

// OwnAddresses are those of the gateway's own stack.
func (f *Forwarder) OwnAddresses() []netip.Addr { return f.stack.Addresses() }

// States returns about how many nodes something is known.
func (f *Forwarder) States() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.states)
}

// UpkeepAt does one round of upkeep as if now had passed since New.
func (f *Forwarder) UpkeepAt(now time.Duration) { f.upkeepAt(int64(now)) }

// StopClock makes the time stand still. It is called before anything runs.
func (f *Forwarder) StopClock() { now := f.clock(); f.clock = func() int64 { return now } }

// SendOwn sends b to the peer as the gateway's own stack does.
func (f *Forwarder) SendOwn(b []byte) { f.send(f.own, b) }

// HurryClock has a second pass whenever somebody looks at the clock. It is called
// before anything runs.
func (f *Forwarder) HurryClock() {
	var now atomic.Int64
	now.Store(f.clock())
	f.clock = func() int64 { return now.Add(int64(time.Second)) }
}

// Readers are the loops of egress.
func (f *Forwarder) Readers() (out []tunnel.Reader) {
	for _, l := range f.loops {
		out = append(out, l)
	}
	return out
}

// LoopPackets is how many packets each loop has carried.
func (f *Forwarder) LoopPackets() (out []uint64) {
	for _, l := range f.loops {
		out = append(out, l.count.packets.Load())
	}
	return out
}

// Counts are the sums of what Status tells of a direction, in far less time.
type Counts struct{ Verdicts, Packets, Bytes uint64 }

// EgressCounts are those of packets to the peer.
func (f *Forwarder) EgressCounts() (s Counts) {
	for _, l := range f.loops {
		n := l.count.sums()
		s.Verdicts, s.Packets, s.Bytes = s.Verdicts+n.Verdicts, s.Packets+n.Packets, s.Bytes+n.Bytes
	}
	return s
}

// IngressCounts are those of packets from the peer.
func (f *Forwarder) IngressCounts() (s Counts) {
	for _, l := range f.ingressLoops {
		n := l.count.sums()
		s.Verdicts, s.Packets, s.Bytes = s.Verdicts+n.Verdicts, s.Packets+n.Packets, s.Bytes+n.Bytes
	}
	return s
}

func (c *counters) sums() Counts {
	s := Counts{Packets: c.packets.Load(), Bytes: c.bytes.Load()}
	for v := range c.verdicts {
		s.Verdicts += c.verdicts[v].Load()
	}
	return s
}

// Writers are the loops of ingress.
func (f *Forwarder) Writers() (out []tunnel.Writer) {
	for _, l := range f.ingressLoops {
		out = append(out, l)
	}
	return out
}

// FurtherIngress is where the packets of a further tunnel go.
func (f *Forwarder) FurtherIngress(number int) tunnel.Writer { return f.ingressOf(number) }
