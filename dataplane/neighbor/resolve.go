package neighbor

import (
	"net/netip"
	"time"
)

// Answer is the reply of a station to a request for its address.
func (a ARP) Answer(mac MAC) ARP {
	return ARP{Op: ARPReply, SenderMAC: mac, SenderIP: a.TargetIP, TargetMAC: a.SenderMAC, TargetIP: a.SenderIP}
}

// Answer is the advertisement of a router to a solicitation for its address, and the
// station that it is sent to: the asker, or all nodes where that detects duplicate
// addresses (RFC 4861 section 7.2.4).
func (s Solicitation) Answer(mac, asker MAC) (dst MAC, na Advertisement) {
	na = Advertisement{
		Src: s.Target, Dst: s.Src, Target: s.Target, TargetMAC: mac,
		Router: true, Solicited: true, Override: true,
	}
	if s.Src.IsUnspecified() {
		asker, na.Dst, na.Solicited = MulticastMAC(netip.IPv6LinkLocalAllNodes()), netip.IPv6LinkLocalAllNodes(), false
	}
	return asker, na
}

// Request asks all stations for the link-layer address of Target: by ARP for IPv4, by
// a neighbor solicitation for IPv6.
type Request struct {
	Src, Target netip.Addr // of one family
	MAC         MAC        // of the sender
}

// Frame returns where the request is sent to, as what, and its length.
func (r Request) Frame() (dst MAC, etherType uint16, length int) {
	if r.Target.Is4() {
		return Broadcast, EtherTypeARP, ARPLen
	}
	return MulticastMAC(SolicitedNode(r.Target)), EtherTypeIPv6, SolicitationLen
}

// Append appends the payload of the frame to b.
func (r Request) Append(b []byte) []byte {
	if r.Target.Is4() {
		return AppendARP(b, ARP{Op: ARPRequest, SenderMAC: r.MAC, SenderIP: r.Src, TargetIP: r.Target})
	}
	return AppendSolicitation(b, Solicitation{Src: r.Src, Dst: SolicitedNode(r.Target), Target: r.Target, SourceMAC: r.MAC})
}

const (
	// ProbeInterval is how often neighbors are probed at most.
	ProbeInterval = time.Second
	// maxProbeInterval is how far apart the probes of a neighbor get that does not
	// answer: thousands may be down.
	maxProbeInterval = 32 * time.Second
	// StaleAfter is how long a neighbor's address is used without a sign of life: its
	// device may have been made anew, with another address, and a neighbor that only
	// receives would never tell (RFC 1122 section 2.3.2.1).
	StaleAfter = 30 * time.Second
)

// Backoff says when a neighbor is probed again that has not answered: after
// ProbeInterval, and then after twice as long each time. The zero value is for one
// that was not probed yet. Times are in nanoseconds of any one clock.
type Backoff struct {
	interval time.Duration
	next     int64
}

// Due tells whether it is time.
func (b *Backoff) Due(now int64) bool { return now >= b.next }

// Probed notes a probe.
func (b *Backoff) Probed(now int64) {
	b.interval = min(max(2*b.interval, ProbeInterval), maxProbeInterval)
	b.next = now + int64(b.interval)
}
