package dataplane

import (
	"hash/maphash"
	"net/netip"
	"sync"
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
func (f *egressLoop) refuse(s *snapshot, t *nodeTunnel, p *packet.Packet, why refusal) {
	src := s.icmpSource(p.Version == 6, false)
	if !src.IsValid() || !f.egressErrors.allow(p.Src(), why.kind(), f.clock()) {
		return
	}
	p.CompleteChecksum() // the quotation should be what a wire would have carried
	b := f.replies.space(maxErrorLen)
	if n := appendError(b, src, p, why, s.pathMTU); n > 0 {
		f.replies.send(t, b[:n], isIPv6(p))
	}
}

// refusePeer answers a packet from the peer by an ICMP error, if the rate allows.
func (f *Forwarder) refusePeer(s *snapshot, p *packet.Packet, why refusal) {
	src := s.icmpSource(p.Version == 6, true)
	if !src.IsValid() || !f.ingressErrors.allow(p.Src(), why.kind(), f.clock()) {
		return
	}
	b := make([]byte, maxErrorLen)
	if n := appendError(b, src, p, why, s.cfg.MTU); n > 0 {
		f.send(f.errors, b[:n])
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

// How many ICMP errors of one kind are sent to one source in a second and in a burst,
// and to all sources together (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
// Of the latter a source alone cannot have more than a fiftieth.
const (
	sourceErrors = 20
	allErrors    = 1000
)

// errorSlots is how many sources are told apart at a time: those that share a slot
// share its budget.
const errorSlots = 1024

// errorKind is what has budgets of its own: a sender whose packets are too big depends
// on being told (RFC 1191), nobody does on the others.
type errorKind uint8

const (
	aboutSize errorKind = iota
	aboutAnythingElse
	errorKinds
)

func (r refusal) kind() errorKind {
	if r == tooBig {
		return aboutSize
	}
	return aboutAnythingElse
}

// errorBudget limits the ICMP errors of one direction. It is one for all loops: whoever
// spreads his packets over them gets no more. It is safe for concurrent use.
type errorBudget struct {
	seed maphash.Seed

	mu      sync.Mutex
	all     [errorKinds]bucket
	sources [errorSlots][errorKinds]bucket
}

func newErrorBudget() *errorBudget { return &errorBudget{seed: maphash.MakeSeed()} }

// allow tells whether src may be sent one more error of that kind.
func (e *errorBudget) allow(src netip.Addr, k errorKind, now int64) bool {
	a := src.As16()
	source := &e.sources[maphash.Bytes(e.seed, a[:])%errorSlots][k]
	e.mu.Lock()
	defer e.mu.Unlock()
	// What one source has too much of is not taken from the others.
	if !source.has(sourceErrors, now) || !e.all[k].has(allErrors, now) {
		return false
	}
	source.take(sourceErrors)
	e.all[k].take(allErrors)
	return true
}

// bucket is a token bucket. The zero bucket is full.
type bucket struct {
	spent int64 // in nanoseconds of refill
	last  int64 // on the forwarder's clock
}

// has tells whether there is a token, of rate in a second and in a burst.
func (b *bucket) has(rate, now int64) bool {
	b.spent = max(0, b.spent-(now-b.last))
	b.last = now
	return b.spent <= int64(time.Second)-int64(time.Second)/rate
}

// take takes a token that there is.
func (b *bucket) take(rate int64) { b.spent += int64(time.Second) / rate }
