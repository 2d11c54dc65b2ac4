package dataplane

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/nat/packet"
)

// ownQueueLen bounds what the gateway itself has to say to the peer and has not
// said yet: pings and rate-limited ICMP errors.
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
	if p.Dst() == s.cfg.PeerTunnelAddr {
		f.sendOwn(append([]byte(nil), b...))
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

// sendOwn queues a packet of the gateway itself for the tunnel, and takes b.
//
// Sent by the stack's goroutine and the tunnel's receiver, received by the
// tunnel's reader, never closed; when full the packet is dropped, as every
// sender of such packets expects and repeats.
func (f *Forwarder) sendOwn(b []byte) {
	select {
	case f.own <- b:
		// The reader sleeps in the socket, not on the queue.
		f.underlay.Wake()
	default:
	}
}

// takeOwn moves what is queued into the tunnel's batch.
func (f *Forwarder) takeOwn(out *tunnelBatch) {
	for !out.full() {
		select {
		case b := <-f.own:
			out.add(copy(out.slot(), b))
		default:
			return
		}
	}
}

// refusal is a reason to send an ICMP error.
type refusal uint8

const (
	timeExceeded refusal = iota
	tooBig
	rejected // what nftables' reject answers unless told otherwise
)

// maxErrorLen is the size of the largest ICMP error (RFC 4443 section 2.4 (c)).
const maxErrorLen = MinMTUIPv6

// refuse answers a packet from a node by an ICMP error, if the rate allows.
func (f *Forwarder) refuse(s *snapshot, t *nodeTunnel, p *packet.Packet, why refusal) {
	src := s.icmpSource(p.Version == 6, false)
	if !src.IsValid() || !f.egressErrors.allow(f.clock()) {
		return
	}
	p.CompleteChecksum() // the quotation should be what a wire would have carried
	b := f.replies.space(maxErrorLen)
	if n := appendError(b, src, p, why, s.cfg.MTU); n > 0 {
		f.replies.send(t, b[:n], isIPv6(p))
	}
}

// refusePeer answers a packet from the peer by an ICMP error, if the rate allows.
func (f *Forwarder) refusePeer(s *snapshot, p *packet.Packet, why refusal) {
	src := s.icmpSource(p.Version == 6, true)
	if !src.IsValid() || !f.ingressErrors.allow(f.clock()) {
		return
	}
	b := make([]byte, maxErrorLen)
	if n := appendError(b, src, p, why, s.cfg.MTU); n > 0 {
		f.sendOwn(b[:n])
	}
}

// appendError writes the ICMP error about p into b and returns its length, zero
// when none may be sent.
func appendError(b []byte, src netip.Addr, p *packet.Packet, why refusal, mtu int) int {
	switch why {
	case timeExceeded:
		return packet.TimeExceeded(b, src, *p)
	case rejected:
		return packet.DestinationUnreachable(b, src, *p, packet.PortUnreachable)
	default:
		return packet.PacketTooBig(b, src, *p, mtu)
	}
}

// errorRate is how many ICMP errors are sent in one second and in one burst
// (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
const errorRate = 100

// errorCost is one error's share of the time.
const errorCost = int64(time.Second) / errorRate

// rateLimit is a token bucket of ICMP errors. It belongs to one goroutine.
type rateLimit struct {
	tokens int64 // in nanoseconds of refill
	last   int64 // on the forwarder's clock
}

// newRateLimit returns a full bucket.
func newRateLimit() rateLimit { return rateLimit{tokens: errorRate * errorCost} }

func (r *rateLimit) allow(now int64) bool {
	r.tokens = min(r.tokens+now-r.last, errorRate*errorCost)
	r.last = now
	if r.tokens < errorCost {
		return false
	}
	r.tokens -= errorCost
	return true
}
