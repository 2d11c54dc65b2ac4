package dataplane

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/nat/packet"
)

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
