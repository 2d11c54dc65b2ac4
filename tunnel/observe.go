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
	t.egress.observer.Store(observe)
	t.bind.observer.Store(observe)
	for _, further := range t.runningFurther(true) {
		further.Observe(f)
	}
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

// showTaken shows packets that are sealed next, or when there is a session.
func showTaken(observe *func(Observation), bufs [][]byte, sizes []int) {
	s := Observation{Time: time.Now(), Egress: true}
	for i, size := range sizes {
		if size > 0 {
			s.Bytes = bufs[i][sealFront : sealFront+size]
			(*observe)(s)
		}
	}
}

// DropReasons are all that Observation.Drop may be, and those that are only counted.
var DropReasons = dropNames

// dropReason is why a packet or a datagram goes no further.
type dropReason uint8

const (
	dropNoEndpoint     dropReason = iota // the peer's key or address is not known yet
	dropNoSession                        // waited for a session, and others came after it
	dropUnconfirmed                      // perhaps another gateway leads, which has the session
	dropNoPeer                           // in no allowed IPs
	dropFlushed                          // waited for a session in vain
	dropUnknownSession                   // for no session of ours, or an expired one
	dropRejected                         // not genuine, a replay, or of a source that is not allowed
	dropMalformed                        // no WireGuard message
	dropHandshakeLimit                   // a handshake message, of more than are looked at
	dropReasons
)

var dropNames = [dropReasons]string{
	dropNoEndpoint:     "DropTunnelNoEndpoint",
	dropNoSession:      "DropTunnelNoSession",
	dropUnconfirmed:    "DropTunnelUnconfirmed",
	dropNoPeer:         "DropTunnelNoPeer",
	dropFlushed:        "DropTunnelFlushed",
	dropUnknownSession: "DropTunnelUnknownSession",
	dropRejected:       "DropTunnelRejected",
	dropMalformed:      "DropTunnelMalformed",
	dropHandshakeLimit: "DropTunnelHandshakeLimit",
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
			s.Drop = dropNames[dropMalformed]
		}
		(*observe)(s)
	}
}
