package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/nat/packet"
)

// Idle time-outs of flows.
const (
	timeoutTCP           = 2*time.Hour + 4*time.Minute // RFC 5382 REQ-5
	timeoutTCPTransitory = 4 * time.Minute             // RFC 5382 REQ-5: opening and closing connections
	timeoutUDP           = 5 * time.Minute             // RFC 4787 REQ-5
	timeoutICMP          = 60 * time.Second            // RFC 5508 REQ-2
	timeoutOther         = 5 * time.Minute             // as UDP: nothing is known about the protocol
	timeoutFragment      = 30 * time.Second            // RFC 791 section 3.2 and net.ipv4.ipfrag_time: later fragments arrive at once or never
)

// DefaultMaxFlows bounds each of the two flow tables: 260 bytes for each flow, and 250
// more where every one has a remote address of its own, so 33 MB at worst.
const DefaultMaxFlows = 65536

const flowShards = 16

// What one holder may have of a table, as a divisor of its limit: no remote address
// and no use may keep out the others. A use is the IP object that flows come in
// through, or the node address that they come from.
const (
	remoteShare = 4
	useShare    = 2
)

// freshShare is what new flows have of a holder's share before they push out those
// that were answered: enough to wait for an answer, and no more.
const freshShare = 4

// flowMoves is how exactly flows are ordered by their last packet: those of a busy
// flow need not be noted one by one.
const flowMoves = int64(time.Second)

// flowKey identifies a flow by the addresses that it has in the tunnel, seen
// from this cluster. Fragments that carry no ports are found by the
// identification of their datagram instead (RFC 791 section 3.2).
type flowKey struct {
	local, remote         [16]byte
	localPort, remotePort uint16
	proto                 uint8
	fragment              bool
}

// flowOrigin says where the replies of a local sender go that the peer knows only by
// an address which several local hosts share.
type flowOrigin struct {
	// node is the name of the node that the flow came from, not a pointer to
	// it: the flow outlives the snapshot.
	node string
	// inside is the sender's own address, which replies are restored to.
	inside netip.Addr
}

// segment is the part of a holder's flows that one belongs to. Within a segment the
// one goes first that was silent for longest.
type segment uint8

const (
	// fresh: nobody has answered yet, a connection opens or closes, or a fragment.
	fresh segment = iota
	// proven: answered, and no TCP.
	proven
	// kept: a TCP connection from the third packet of its handshake on. It is never
	// evicted (RFC 5382 REQ-5).
	kept
)

// flow is one entry of a flowTable.
type flow struct {
	flowOrigin
	key     flowKey
	expires int64 // nanoseconds on the forwarder's clock
	moved   int64 // when it was last moved to the end of its lists

	segment           segment
	answered, closing bool

	// holders are the shard, the use and the remote address that it counts for, and
	// links its neighbors in their lists.
	holders [memberships]uint32
	links   [memberships]flowLink
}

const (
	ofShard = iota
	ofUse
	ofRemote
	memberships
)

type flowLink struct{ previous, next uint32 }

// holder counts the flows of a shard, a use or a remote address.
type holder struct {
	key   holderKey
	flows int
	limit int
	lists [kept]flowList // fresh and proven
}

type holderKey struct {
	kind int // ofUse or ofRemote
	flowOrigin
}

type flowList struct {
	first, last uint32
	length      int
}

// flowTable is the only state that the forwarder keeps per connection, and it
// is kept only for senders behind a shared address. It is bounded and safe for
// concurrent use: one direction inserts, by several loops, the other looks up.
//
// When it is full, or the share of a use or of a remote address is, a new flow takes
// the place of an older one of the same holder: of one that was not answered while
// these are many, else of the longest silent one that is no TCP connection. It is
// refused only where there are nothing but connections. Nothing takes more than a
// few steps, however many flows there are.
type flowTable struct {
	seed   maphash.Seed
	shards [flowShards]flowShard
	limit  int // flows in one shard
}

type flowShard struct {
	mu      sync.Mutex
	index   map[flowKey]uint32
	flows   []flow // the first one is not used: 0 means none
	unused  uint32 // the first one that is free; the others by links[ofShard].next
	holding map[holderKey]uint32
	holders []holder // the first one is the shard
	idle    []uint32 // holders that are free
	_       [24]byte // to 128 bytes: the mutexes of two shards are in no cache line together
}

func newFlowTable(limit int) *flowTable {
	t := &flowTable{seed: maphash.MakeSeed(), limit: max(1, limit/flowShards)}
	for i := range t.shards {
		t.shards[i] = flowShard{
			index: make(map[flowKey]uint32), flows: make([]flow, 1),
			holding: make(map[holderKey]uint32), holders: []holder{{limit: t.limit}},
		}
	}
	return t
}

// flowKeyOf returns the key of a packet between local and remote; reply tells
// that p travels from remote to local. Later fragments get their datagram's key.
func flowKeyOf(p *packet.Packet, local, remote netip.Addr, reply bool) flowKey {
	k := flowKey{local: local.As16(), remote: remote.As16(), proto: p.Proto}
	if p.Fragment == packet.LaterFragment {
		k.setDatagram(p)
		return k
	}
	src, dst := p.Ports()
	if reply {
		src, dst = dst, src
	}
	k.localPort, k.remotePort = src, dst
	return k
}

func (k *flowKey) setDatagram(p *packet.Packet) {
	id := p.ID()
	k.fragment, k.localPort, k.remotePort = true, uint16(id>>16), uint16(id)
}

func (t *flowTable) shard(k *flowKey) *flowShard {
	var b [40]byte
	copy(b[:], k.local[:])
	copy(b[16:], k.remote[:])
	binary.BigEndian.PutUint16(b[32:], k.localPort)
	binary.BigEndian.PutUint16(b[34:], k.remotePort)
	b[36] = k.proto
	return &t.shards[maphash.Bytes(t.seed, b[:])%flowShards]
}

// open records that p, which opens or continues the flow with key k, belongs to from.
func (t *flowTable) open(k flowKey, p *packet.Packet, from flowOrigin, now int64) Verdict {
	s := t.shard(&k)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.index[k]
	if known {
		f := &s.flows[i]
		same, live := f.flowOrigin == from, f.expires > now
		if !same && live && !f.yieldsTo(p) {
			return DropFlowConflict
		}
		if !same || !live {
			s.remove(i)
			known = false
		}
	}
	if !known {
		if i = s.insert(k, from); i == 0 {
			return DropFlowTableFull
		}
	}
	s.touch(i, p, false, now)
	return Forwarded
}

// reply finds the flow that p, received with key k, answers. The first
// fragment of a datagram also claims the later ones, which carry no ports.
func (t *flowTable) reply(k flowKey, p *packet.Packet, now int64) (flowOrigin, bool) {
	s := t.shard(&k)
	s.mu.Lock()
	i := s.index[k]
	if i == 0 || s.flows[i].expires <= now {
		s.mu.Unlock()
		return flowOrigin{}, false
	}
	s.touch(i, p, true, now)
	from := s.flows[i].flowOrigin
	s.mu.Unlock()
	if p.Fragment == packet.FirstFragment {
		k.setDatagram(p)
		// When there is no room, only the later fragments are lost.
		_ = t.open(k, p, from, now)
	}
	return from, true
}

// peek finds the flow of a packet quoted in an ICMP error and leaves its
// time-out alone: an error is no sign of life (RFC 5508 REQ-4).
func (t *flowTable) peek(k flowKey, now int64) (flowOrigin, bool) {
	s := t.shard(&k)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index[k]
	if i == 0 || s.flows[i].expires <= now {
		return flowOrigin{}, false
	}
	return s.flows[i].flowOrigin, true
}

// yieldsTo tells whether a new connection may take the place of f, or a new
// datagram that of an older one with the same identification.
func (f *flow) yieldsTo(p *packet.Packet) bool {
	return f.key.fragment || f.closing && p.IsTCPSYN()
}

// note takes down what packet p says about f.
func (f *flow) note(p *packet.Packet, reply bool) {
	if f.key.fragment { // a datagram is not a connection
		return
	}
	flags := p.TCPFlags()
	switch {
	case f.key.proto != packet.ProtoTCP:
	case flags&(packet.TCPFin|packet.TCPRst) != 0:
		f.closing, f.segment = true, fresh
	case f.closing && flags&packet.TCPSyn != 0 && !reply: // the ports are used again
		f.closing, f.answered = false, false
	case f.answered && !f.closing && !reply && flags&(packet.TCPSyn|packet.TCPAck) == packet.TCPAck:
		f.segment = kept
	}
	if reply {
		f.answered = true
		if f.key.proto != packet.ProtoTCP {
			f.segment = proven
		}
	}
}

// idle returns how long f may be silent.
func (f *flow) idle() time.Duration {
	switch {
	case f.key.fragment:
		return timeoutFragment
	case f.key.proto == packet.ProtoTCP && f.segment == kept:
		return timeoutTCP
	case f.key.proto == packet.ProtoTCP:
		return timeoutTCPTransitory
	case f.key.proto == packet.ProtoUDP:
		return timeoutUDP
	case f.key.proto == packet.ProtoICMP, f.key.proto == packet.ProtoICMPv6:
		return timeoutICMP
	}
	return timeoutOther
}

// touch notes packet p of flow i, renews its time-out and makes it the last one
// to be evicted of its segment.
func (s *flowShard) touch(i uint32, p *packet.Packet, reply bool, now int64) {
	f := &s.flows[i]
	before := f.segment
	f.note(p, reply)
	f.expires = now + int64(f.idle())
	if f.segment != before || now-f.moved >= flowMoves {
		s.unlink(i, before)
		s.link(i)
		f.moved = now
	}
}

// insert makes room for a flow and returns it, 0 where there is none. The caller
// touches it.
func (s *flowShard) insert(k flowKey, from flowOrigin) uint32 {
	holders := [memberships]uint32{
		ofShard:  0,
		ofUse:    s.holder(holderKey{ofUse, from}, useShare),
		ofRemote: s.holder(holderKey{ofRemote, flowOrigin{inside: netip.AddrFrom16(k.remote)}}, remoteShare),
	}
	// Counted first: a holder whose last flow is evicted stays.
	for _, h := range holders {
		s.holders[h].flows++
	}
	// The smallest share first: what it gives up counts for the others.
	for m := ofRemote; m >= ofShard; m-- {
		if h := &s.holders[holders[m]]; h.flows > h.limit && !s.evict(h) {
			for m, h := range holders {
				s.release(m, h)
			}
			return 0
		}
	}
	i := s.unused
	if i == 0 {
		i = uint32(len(s.flows))
		s.flows = append(s.flows, flow{})
	} else {
		s.unused = s.flows[i].links[ofShard].next
	}
	s.flows[i] = flow{flowOrigin: from, key: k, holders: holders}
	s.index[k] = i
	s.link(i)
	return i
}

// holder returns who holds flows by that key.
func (s *flowShard) holder(k holderKey, share int) uint32 {
	h, ok := s.holding[k]
	if ok {
		return h
	}
	if n := len(s.idle); n > 0 {
		h = s.idle[n-1]
		s.idle = s.idle[:n-1]
	} else {
		h = uint32(len(s.holders))
		s.holders = append(s.holders, holder{})
	}
	s.holders[h] = holder{key: k, limit: max(1, s.holders[0].limit/share)}
	s.holding[k] = h
	return h
}

// release takes one flow from holder h.
func (s *flowShard) release(m int, h uint32) {
	s.holders[h].flows--
	if m != ofShard && s.holders[h].flows == 0 {
		delete(s.holding, s.holders[h].key)
		s.idle = append(s.idle, h)
	}
}

// evict removes one flow of h, unless all are connections.
func (s *flowShard) evict(h *holder) bool {
	victim := h.lists[proven].first
	if n := h.lists[fresh].length; victim == 0 || n > h.limit/freshShare {
		victim = h.lists[fresh].first
	}
	if victim == 0 {
		return false
	}
	s.remove(victim)
	return true
}

// remove forgets flow i.
func (s *flowShard) remove(i uint32) {
	f := &s.flows[i]
	s.unlink(i, f.segment)
	for m, h := range f.holders {
		s.release(m, h)
	}
	delete(s.index, f.key)
	*f = flow{}
	f.links[ofShard].next, s.unused = s.unused, i
}

// link puts flow i at the end of the lists of its segment.
func (s *flowShard) link(i uint32) {
	f := &s.flows[i]
	if f.segment == kept {
		return
	}
	for m, h := range f.holders {
		l := &s.holders[h].lists[f.segment]
		f.links[m] = flowLink{previous: l.last}
		if l.last == 0 {
			l.first = i
		} else {
			s.flows[l.last].links[m].next = i
		}
		l.last = i
		l.length++
	}
}

// unlink takes flow i out of the lists of a segment.
func (s *flowShard) unlink(i uint32, from segment) {
	f := &s.flows[i]
	if from == kept {
		return
	}
	for m, h := range f.holders {
		l, at := &s.holders[h].lists[from], f.links[m]
		if at.previous == 0 {
			l.first = at.next
		} else {
			s.flows[at.previous].links[m].next = at.next
		}
		if at.next == 0 {
			l.last = at.previous
		} else {
			s.flows[at.next].links[m].previous = at.previous
		}
		l.length--
	}
}

// sweep removes expired flows and those of nodes that are gone.
func (t *flowTable) sweep(now int64, alive func(node string) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, j := range s.index {
			if f := &s.flows[j]; f.expires <= now || !alive(f.node) {
				s.remove(j)
			}
		}
		s.mu.Unlock()
	}
}

func (t *flowTable) status() FlowStatus {
	n := 0
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += t.shards[i].holders[0].flows
		t.shards[i].mu.Unlock()
	}
	return FlowStatus{Entries: n, Capacity: t.limit * flowShards}
}
