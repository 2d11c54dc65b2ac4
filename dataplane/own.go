package dataplane

import (
	"github.com/sluice-net/sluice/nat/packet"
)

// ownQueueLen bounds what the gateway itself has to say to the peer and has not
// said yet: pings, and as many rate-limited ICMP errors.
const ownQueueLen = 64

// deliver hands a packet for the gateway's own addresses to its stack.
func (f *Forwarder) deliver(p *packet.Packet) Verdict {
	p.CompleteChecksum()
	if !f.stack.Inject(p.Bytes) {
		return DropOwnAddress
	}
	return Delivered
}

// fromStack takes a packet that the gateway's own stack sends. The bytes are
// the stack's again when it returns. It runs on the stack's goroutine.
func (f *Forwarder) fromStack(b []byte) {
	s := f.snap.Load()
	p, ok := packet.Parse(b)
	if !ok {
		return
	}
	if s.isPeerEnd(p.Dst()) {
		f.send(f.own, append([]byte(nil), b...))
		return
	}
	t := s.byAddress[p.Dst()]
	if t == nil && containsAddr(s.cfg.LocalPods, p.Dst()) {
		t, _ = s.route(p.Dst())
	}
	if t == nil {
		return
	}
	f.fromOwn.send(t, p.Bytes, isIPv6(&p))
	f.fromOwn.flush()
}

// send queues a packet of the gateway itself for the tunnel, and takes b.
//
// f.own is sent to by the stack's goroutine and f.errors by the tunnel's receivers: the
// peer decides how many errors there are, and must not keep the pings from going out.
// Both are received by the first loop and never closed; when one is full the
// packet is dropped, as every sender of such packets expects and repeats.
func (f *Forwarder) send(queue chan<- []byte, b []byte) {
	select {
	case queue <- b:
		// The loop sleeps in the socket, not on the queue.
		f.underlay.Wake()
	default:
	}
}

// takeOwn moves what is queued into the batch of the first loop, and returns how many packets
// of the gateway itself that has.
func (f *egressLoop) takeOwn(out *tunnelBatch) int {
	if f.index > 0 {
		return 0
	}
	for _, queue := range []<-chan []byte{f.own, f.errors} {
		for !out.full() {
			select {
			case b := <-queue:
				out.add(copy(out.slot(), b))
				continue
			default:
			}
			break
		}
	}
	return out.n
}
