package tunnel

import (
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// Stats is what the tunnel has done so far. Bytes count whole WireGuard messages,
// handshakes included, and start again with each peer; packets and drops count
// what they carried, since New.
type Stats struct {
	// Self is this gateway's own key.
	Self PublicKey `json:"self"`
	// Peer is the peer's key, zero while there is none.
	Peer PublicKey `json:"peer"`
	// FormerPeer is the key that the peer had, as long as it is honoured besides;
	// zero: it is not.
	FormerPeer PublicKey `json:"formerPeer,omitzero"`
	// Endpoint is where messages to the peer go: where it was last heard from, or
	// as configured. It is not valid while no address is known.
	Endpoint netip.AddrPort `json:"endpoint"`
	// LookupError is why no address was found for the name that is configured as
	// endpoint when it was looked up last; empty: one was, or none was needed.
	LookupError string `json:"lookupError,omitempty"`
	// ListenPort is the UDP port in use, 0 for none.
	ListenPort uint16 `json:"listenPort"`
	// LastHandshake is the time of the last completed handshake, zero for none.
	LastHandshake time.Time `json:"lastHandshake"`
	RxBytes       uint64    `json:"rxBytes"`
	TxBytes       uint64    `json:"txBytes"`
	RxPackets     uint64    `json:"rxPackets"`
	TxPackets     uint64    `json:"txPackets"`
	// Waiting is how many packets to the peer wait for a session, up to 64.
	Waiting int `json:"waiting"`

	// Unconfirmed says that neither the election nor the peer tells that this gateway
	// leads: it sends pings only.
	Unconfirmed bool `json:"unconfirmed,omitzero"`
	// LastReplaced is when something came in a session that the peer had before the one
	// that it uses: of another gateway with its key; zero: never.
	LastReplaced time.Time `json:"lastReplaced,omitzero"`

	// DropNoEndpoint counts egress packets dropped because the peer's key or
	// address is not known yet.
	DropNoEndpoint uint64 `json:"dropNoEndpoint"`
	// DropNoSession counts egress packets dropped because there is no session, and more
	// than 64 would wait for one.
	DropNoSession uint64 `json:"dropNoSession"`
	// DropUnconfirmed counts egress packets dropped because perhaps another gateway
	// leads, and has the session.
	DropUnconfirmed uint64 `json:"dropUnconfirmed"`
	// DropNoPeer counts egress packets whose destination is in no allowed IPs.
	DropNoPeer uint64 `json:"dropNoPeer"`
	// DropFlushed counts egress packets that waited for a session in vain: for 90 s, or
	// until the peer was removed.
	DropFlushed uint64 `json:"dropFlushed"`
	// DropUnknownSession counts received transport messages of no session that is
	// known, or of an expired one.
	DropUnknownSession uint64 `json:"dropUnknownSession"`
	// DropRejected counts received transport messages that failed authentication,
	// were replays, or held no packet with an allowed source.
	DropRejected uint64 `json:"dropRejected"`
	// DropMalformed counts received datagrams that are no WireGuard message.
	DropMalformed uint64 `json:"dropMalformed"`
	// DropHandshakeLimit counts received handshake messages that are dropped unseen:
	// initiations above 20 000 per second, and what comes faster than it is looked at.
	DropHandshakeLimit uint64 `json:"dropHandshakeLimit"`
	// RxHandshakes counts received datagrams with type and length of a handshake
	// message, valid or not, but for those of DropHandshakeLimit.
	RxHandshakes uint64 `json:"rxHandshakes"`
	// RxInitiations and RxResponses are those of them that begin and that answer a
	// handshake, TxInitiations and TxResponses what was sent. Of both ends they
	// tell which direction a network in between blocks: a response is sent only to
	// an initiation of the expected key.
	RxInitiations uint64 `json:"rxInitiations"`
	RxResponses   uint64 `json:"rxResponses"`
	TxInitiations uint64 `json:"txInitiations"`
	TxResponses   uint64 `json:"txResponses"`
	// LastInitiation is when the last initiation came in, LastResponse when the last
	// response was sent; zero: never. An initiation without a response after it is of
	// another key than is expected, or for another than ours.
	LastInitiation time.Time `json:"lastInitiation"`
	LastResponse   time.Time `json:"lastResponse"`
	// ReceiveErrors counts errors of the socket.
	ReceiveErrors uint64 `json:"receiveErrors"`

	// LeftOut says that packets go by other tunnels to the peer than this one, by what
	// SetUsable says.
	LeftOut bool `json:"leftOut,omitzero"`
	// Problem is why a further tunnel does not work; empty: it does.
	Problem string `json:"problem,omitempty"`
	// Further are the further tunnels, in the order of Config.Further.
	Further []Stats `json:"further,omitempty"`
}

// Total is s with the bytes, packets, drops and errors of all tunnels to the peer. What is
// not a sum is that of the first one.
func (s Stats) Total() Stats {
	for _, f := range s.Further {
		for _, c := range []struct{ sum, n *uint64 }{
			{&s.RxBytes, &f.RxBytes}, {&s.TxBytes, &f.TxBytes}, {&s.RxPackets, &f.RxPackets}, {&s.TxPackets, &f.TxPackets},
			{&s.DropNoEndpoint, &f.DropNoEndpoint}, {&s.DropNoSession, &f.DropNoSession}, {&s.DropUnconfirmed, &f.DropUnconfirmed},
			{&s.DropNoPeer, &f.DropNoPeer}, {&s.DropFlushed, &f.DropFlushed}, {&s.DropUnknownSession, &f.DropUnknownSession},
			{&s.DropRejected, &f.DropRejected}, {&s.DropMalformed, &f.DropMalformed}, {&s.DropHandshakeLimit, &f.DropHandshakeLimit},
			{&s.RxHandshakes, &f.RxHandshakes}, {&s.RxInitiations, &f.RxInitiations}, {&s.RxResponses, &f.RxResponses},
			{&s.TxInitiations, &f.TxInitiations}, {&s.TxResponses, &f.TxResponses}, {&s.ReceiveErrors, &f.ReceiveErrors},
		} {
			*c.sum += *c.n
		}
		s.Waiting += f.Waiting
	}
	return s
}

// peerStats is what wireguard-go says about the peer.
type peerStats struct {
	Endpoint         netip.AddrPort
	LastHandshake    time.Time
	RxBytes, TxBytes uint64
}

// readPeerStats asks the device about a peer. A nil device has none, and a peer that it does not have gives the zero value.
func readPeerStats(dev *device.Device, key PublicKey) (s peerStats) {
	if dev == nil || key.IsZero() {
		return s
	}
	peer, state := dev.PeerState(device.NoisePublicKey(key))
	if peer == nil {
		return s
	}
	if e, ok := state.Endpoint.(*endpoint); ok { // nil: not known
		s.Endpoint = e.addr
	}
	s.RxBytes, s.TxBytes = state.RxBytes, state.TxBytes
	s.LastHandshake = handshakeTime(state.LastHandshake, peer.Established(), time.Now())
	return s
}

// handshakeTime is when the last handshake was, given the time of the clock then, as the device tells it, and when the
// session in use was made. The clock may have been set since: a session must not count as dead for that, nor one that is
// dead as alive until the clock has caught up.
func handshakeTime(told, established, now time.Time) time.Time {
	switch {
	case told.IsZero() || established.IsZero() && now.Sub(told) >= sessionLife:
		return told
	case established.IsZero():
		return now.Add(-sessionLife) // at least: the keys are gone
	}
	return established
}

// addTo puts the account's counters into s.
func (a *egressAccount) addTo(s *Stats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.TxPackets = a.sent.Load()
	s.DropNoEndpoint = a.drops[dropNoEndpoint]
	s.DropNoSession = a.drops[dropNoSession]
	s.DropUnconfirmed = a.drops[dropUnconfirmed]
	s.DropNoPeer = a.drops[dropNoPeer]
	s.DropFlushed = a.drops[dropFlushed]
	s.Unconfirmed = a.permitLocked() != permitAll
	s.TxInitiations, s.TxResponses = a.handshakes.initiations, a.handshakes.responses
	s.LastResponse = a.handshakes.lastResponse
}

// addTo puts the account's counters into s.
func (a *ingressAccount) addTo(s *Stats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.RxPackets = a.packets
	s.DropUnknownSession = a.drops[dropUnknownSession]
	s.DropRejected = a.drops[dropRejected]
	s.DropMalformed = a.drops[dropMalformed]
	s.DropHandshakeLimit = a.drops[dropHandshakeLimit]
	s.RxHandshakes, s.RxInitiations, s.RxResponses = a.handshakes.all, a.handshakes.initiations, a.handshakes.responses
	s.LastInitiation, s.LastReplaced = a.handshakes.lastInitiation, a.lastReplaced
	s.ReceiveErrors = a.errors
}
