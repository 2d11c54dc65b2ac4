package tunnel

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/underlay"
)

// Observation is a packet or a datagram that an observer is shown.
type Observation struct {
	Time time.Time
	// Egress: to the peer. Otherwise from it.
	Egress bool
	// Outside: a WireGuard message on the socket, with its addresses. Otherwise a
	// packet inside the tunnel, without.
	Outside       bool
	Local, Remote netip.AddrPort
	// Bytes are the caller's: the observer must not change them, nor use them after it
	// has returned.
	Bytes []byte
	// Drop is why it goes no further: the name of the counter in Stats with Tunnel
	// in front, as in the metrics. Empty: it goes on.
	Drop string
}

// Observe shows what passes from now on to f: packets as they go into WireGuard and
// come out of it, messages as they go to the socket and come from it, and what is dropped
// before it gets there. Nil ends that, but for what is under way. Several
// goroutines call f at the same time; none of them should have to wait.
func (t *Tunnel) Observe(f func(Observation)) {
	var observe *func(Observation)
	if f != nil {
		observe = &f
	}
	t.tun.observer.Store(observe)
	t.bind.observer.Store(observe)
}

// observer is the function that Observe was given; nil: none.
type observer = atomic.Pointer[func(Observation)]

// showDecrypted shows packets from the peer.
func showDecrypted(observe *func(Observation), bufs [][]byte, offset int) {
	s := Observation{Time: time.Now()}
	for _, b := range bufs {
		s.Bytes = b[offset:]
		(*observe)(s)
	}
}

// showTaken shows packets that are sealed next.
func showTaken(observe *func(Observation), bufs [][]byte, sizes []int, offset int) {
	s := Observation{Time: time.Now(), Egress: true}
	for i, size := range sizes {
		if size > 0 {
			s.Bytes = bufs[i][offset : offset+size]
			(*observe)(s)
		}
	}
}

// takeSeen is egress.take in front of somebody who looks.
func (t *tunDevice) takeSeen(observe *func(Observation), g grant, bufs [][]byte, sizes []int, own, offset int) taken {
	var before [BatchSize]int // take gives size 0 to what it does not admit
	copy(before[:], sizes)
	taken := t.egress.take(g, bufs, sizes, own)
	s := Observation{Time: time.Now(), Egress: true}
	for i, b := range bufs {
		size := min(before[i], len(b)-offset)
		if size < 1 {
			continue
		}
		if s.Drop = ""; sizes[i] == 0 {
			s.Drop = dropNames[taken.why]
		}
		s.Bytes = b[offset : offset+size]
		(*observe)(s)
	}
	return taken
}

// DropReasons are all that Observation.Drop may be, and those that are only counted.
var DropReasons = [...]string{
	dropNames[dropNoEndpoint], dropNames[dropNoSession], dropNames[dropInFlight], dropNames[dropUnconfirmed], dropNoPeer, "DropTunnelFlushed",
	dropUnknownSession, "DropTunnelRejected", dropMalformed, dropHandshakeLimit,
}

// Names of drops that are not a dropReason.
const (
	dropNoPeer         = "DropTunnelNoPeer"
	dropUnknownSession = "DropTunnelUnknownSession"
	dropMalformed      = "DropTunnelMalformed"
	dropHandshakeLimit = "DropTunnelHandshakeLimit"
)

var dropNames = [dropReasons]string{
	dropNoEndpoint:  "DropTunnelNoEndpoint",
	dropNoSession:   "DropTunnelNoSession",
	dropInFlight:    "DropTunnelInFlight",
	dropUnconfirmed: "DropTunnelUnconfirmed",
}

// showSent shows messages that go to one address.
func showSent(observe *func(Observation), bufs [][]byte, local, to netip.AddrPort) {
	s := Observation{Time: time.Now(), Egress: true, Outside: true, Local: local, Remote: to}
	for _, b := range bufs {
		s.Bytes = b
		(*observe)(s)
	}
}

// showReceived shows datagrams that came in.
func showReceived(observe *func(Observation), bufs [][]byte, sizes []int, local netip.AddrPort, from []underlay.Origin) {
	s := Observation{Time: time.Now(), Outside: true, Local: local}
	for i, b := range bufs {
		s.Bytes, s.Remote = b[:sizes[i]], from[i].Addr
		if s.Drop = ""; classify(s.Bytes) == messageMalformed {
			s.Drop = dropMalformed
		}
		(*observe)(s)
	}
}
