package dataplane

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
)

// tunnelKey is what makes a datagram belong to a node tunnel. Geneve carries no
// authentication, so both halves must match (RFC 8926 section 6).
type tunnelKey struct {
	underlay netip.Addr
	vni      geneve.VNI
}

// nodeTunnel is one node tunnel in a snapshot. Everything in it is immutable
// except what state points to, which is shared by successive snapshots.
type nodeTunnel struct {
	name     string
	vni      geneve.VNI
	mac      neighbor.MAC // the gateway's own address on this tunnel
	internal []netip.Addr // the node's addresses inside the tunnel
	remotes  []netip.AddrPort
	state    *nodeState
}

// nodeState is what the gateway learns about a node from its packets. It is
// kept over changes of the configuration, so that none of them costs a packet.
type nodeState struct {
	mac           atomic.Uint64 // neighbor.MAC in the low 48 bits; zero: unknown
	encapsulation atomic.Uint32 // geneve.Encapsulation the node speaks
	// remote is where the node was last heard from; nil: never. Not an index
	// into remotes: the next configuration may order them differently.
	remote atomic.Pointer[netip.AddrPort]
	// local is our address that the node sent to: what answers come from. Nil: the
	// routes say.
	local atomic.Pointer[netip.Addr]

	backoff neighbor.Backoff // of a silent node; owned by upkeep

	// received is what each egress loop has received, and sent what each ingress loop has sent.
	received []received
	sent     []sent
}

// received is written by one egress loop, and fills a cache line, which no other loop writes.
type received struct {
	traffic
	last atomic.Int64 // when it was accepted, on the forwarder's clock; zero: never
	_    [64 - 3*8]byte
}

// sent is written by one ingress loop, likewise, and for what is rare by others.
type sent struct {
	traffic
	_ [64 - 2*8]byte
}

type traffic struct{ packets, bytes atomic.Uint64 }

// burst is what passes, one after another, of one node: it is counted once.
type burst struct {
	of             *traffic
	packets, bytes uint64
}

func (b *burst) add(of *traffic, bytes int) {
	if of != b.of {
		b.end()
		b.of = of
	}
	b.packets++
	b.bytes += uint64(bytes)
}

// end counts it.
func (b *burst) end() {
	if b.packets > 0 {
		b.of.packets.Add(b.packets)
		b.of.bytes.Add(b.bytes)
		b.packets, b.bytes = 0, 0
	}
}

func newNodeState(loops int) *nodeState {
	st := &nodeState{received: make([]received, loops), sent: make([]sent, loops)}
	st.encapsulation.Store(uint32(geneve.Geneve))
	return st
}

// lastSeen is when something of the node was last accepted, on the forwarder's clock; zero:
// never.
func (t *nodeTunnel) lastSeen() (last int64) {
	for i := range t.state.received {
		last = max(last, t.state.received[i].last.Load())
	}
	return last
}

// learn notes how the node is reached: where from, in what encapsulation and
// with what link-layer address (none in GeneveIP) it sent something that was
// accepted. What is dropped teaches nothing, or anybody who can forge a
// datagram could cut the node off. Stores are made only on change: the cache
// lines are shared with the other direction and the other loops.
func (t *nodeTunnel) learn(loop int, from origin, now int64) {
	st := t.state
	if uint32(from.encapsulation) != st.encapsulation.Load() {
		st.encapsulation.Store(uint32(from.encapsulation))
	}
	if r := st.remote.Load(); r == nil || r.Addr() != from.underlay {
		for i := range t.remotes {
			if t.remotes[i].Addr() == from.underlay {
				st.remote.Store(&t.remotes[i])
			}
		}
	}
	// Each loop has a copy of the address.
	if l := st.local.Load(); from.local != nil && from.local != l && (l == nil || *from.local != *l) {
		st.local.Store(from.local)
	}
	if m := macBits(from.mac); m != 0 && m != st.mac.Load() {
		st.mac.Store(m)
	}
	if last := &st.received[loop].last; last.Load() != now { // as it is for most of a batch
		last.Store(now)
	}
}

// origin is how a datagram came.
type origin struct {
	underlay      netip.Addr
	local         *netip.Addr // ours; nil: the only one
	encapsulation geneve.Encapsulation
	mac           neighbor.MAC
}

// remote returns where the node's packets are sent to.
func (t *nodeTunnel) remote() netip.AddrPort {
	if r := t.state.remote.Load(); r != nil && t.isUnderlay(r.Addr()) {
		return *r
	}
	return t.remotes[0]
}

// local returns the address that the node's packets are sent from, not valid for the
// one that the routes prefer.
func (t *nodeTunnel) local() netip.Addr {
	if l := t.state.local.Load(); l != nil {
		return *l
	}
	return netip.Addr{}
}

// encapsulation is what the node speaks; Geneve until it was heard.
func (t *nodeTunnel) encapsulation() geneve.Encapsulation {
	return geneve.Encapsulation(t.state.encapsulation.Load())
}

// resolved tells whether a frame can be addressed to the node.
func (t *nodeTunnel) resolved() bool {
	return t.state.mac.Load() != 0 || t.encapsulation() == geneve.GeneveIP
}

func (t *nodeTunnel) isInternal(a netip.Addr) bool {
	for _, i := range t.internal {
		if i == a {
			return true
		}
	}
	return false
}

func (t *nodeTunnel) isUnderlay(a netip.Addr) bool {
	for _, r := range t.remotes {
		if r.Addr() == a {
			return true
		}
	}
	return false
}

func (t *nodeTunnel) status(start time.Time) NodeStatus {
	st := t.state
	n := NodeStatus{
		Name: t.name, VNI: t.vni, Underlay: t.remote().Addr(), Internal: t.internal,
		Encapsulation: t.encapsulation(),
	}
	for i := range st.sent {
		n.TxPackets += st.sent[i].packets.Load()
		n.TxBytes += st.sent[i].bytes.Load()
	}
	for i := range st.received {
		n.RxPackets += st.received[i].packets.Load()
		n.RxBytes += st.received[i].bytes.Load()
	}
	if m := st.mac.Load(); m != 0 {
		n.MAC = macOf(m).String()
	}
	if ns := t.lastSeen(); ns != 0 {
		n.LastSeen = start.Add(time.Duration(ns))
	}
	return n
}

func macBits(m neighbor.MAC) uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

func macOf(b uint64) neighbor.MAC {
	return neighbor.MAC{byte(b >> 40), byte(b >> 32), byte(b >> 24), byte(b >> 16), byte(b >> 8), byte(b)}
}
