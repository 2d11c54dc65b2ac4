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

// DefaultMaxFlows bounds the flow table: about 120 bytes each.
const DefaultMaxFlows = 65536

const flowShards = 16

// flowKey identifies a flow by the addresses that it has in the tunnel, seen
// from this cluster. Fragments that carry no ports are found by the
// identification of their datagram instead (RFC 791 section 3.2).
type flowKey struct {
	local, remote         netip.Addr
	localPort, remotePort uint16
	proto                 uint8
	fragment              bool
}

// flow says where the replies of a local sender go that the peer knows only by
// an address which several local hosts share.
type flow struct {
	// node is the name of the node that the flow came from, not a pointer to
	// it: the flow outlives the snapshot.
	node string
	// inside is the sender's own address, which replies are restored to.
	inside  netip.Addr
	expires int64 // nanoseconds on the forwarder's clock
	// established: packets were seen in both directions; until it is closing,
	// such a flow is not evicted for a new one.
	established, closing bool
}

// flowTable is the only state that the forwarder keeps per connection, and it
// is kept only for senders behind a shared address. It is bounded and safe for
// concurrent use: egress inserts, ingress looks up.
type flowTable struct {
	seed   maphash.Seed
	shards [flowShards]flowShard
	limit  int // flows in one shard
}

type flowShard struct {
	mu    sync.Mutex
	flows map[flowKey]flow
}

func newFlowTable(limit int) *flowTable {
	t := &flowTable{seed: maphash.MakeSeed(), limit: max(1, limit/flowShards)}
	for i := range t.shards {
		t.shards[i].flows = make(map[flowKey]flow)
	}
	return t
}

// flowKeyOf returns the key of a packet between local and remote; reply tells
// that p travels from remote to local. Later fragments get their datagram's key.
func flowKeyOf(p *packet.Packet, local, remote netip.Addr, reply bool) flowKey {
	k := flowKey{local: local, remote: remote, proto: p.Proto}
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

func (t *flowTable) shard(k flowKey) *flowShard {
	var b [40]byte
	l, r := k.local.As16(), k.remote.As16()
	copy(b[:], l[:])
	copy(b[16:], r[:])
	binary.BigEndian.PutUint16(b[32:], k.localPort)
	binary.BigEndian.PutUint16(b[34:], k.remotePort)
	b[36] = k.proto
	return &t.shards[maphash.Bytes(t.seed, b[:])%flowShards]
}

// open records that p, which left towards the peer with key k, came from node
// and from the address inside.
func (t *flowTable) open(k flowKey, p *packet.Packet, node string, inside netip.Addr, now int64) Verdict {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	f, known := s.flows[k]
	switch {
	case known && f.expires > now && (f.node != node || f.inside != inside) && !f.yieldsTo(k, p):
		return DropFlowConflict
	case !known && len(s.flows) >= t.limit && !s.evict(now):
		return DropFlowTableFull
	case !known || f.node != node || f.inside != inside || f.expires <= now:
		f = flow{node: node, inside: inside}
	}
	f.touch(k, p, now)
	s.flows[k] = f
	return Forwarded
}

// reply finds the flow that p, received with key k, answers. The first
// fragment of a datagram also claims the later ones, which carry no ports.
func (t *flowTable) reply(k flowKey, p *packet.Packet, now int64) (flow, bool) {
	s := t.shard(k)
	s.mu.Lock()
	f, ok := s.flows[k]
	if !ok || f.expires <= now {
		s.mu.Unlock()
		return flow{}, false
	}
	f.established = !k.fragment // a datagram is not a connection
	f.touch(k, p, now)
	s.flows[k] = f
	s.mu.Unlock()
	if p.Fragment == packet.FirstFragment {
		k.setDatagram(p)
		// When there is no room, only the later fragments are lost.
		_ = t.open(k, p, f.node, f.inside, now)
	}
	return f, true
}

// peek finds the flow of a packet quoted in an ICMP error and leaves its
// time-out alone: an error is no sign of life (RFC 5508 REQ-4).
func (t *flowTable) peek(k flowKey, now int64) (flow, bool) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.flows[k]
	return f, ok && f.expires > now
}

// yieldsTo tells whether a new connection may take the place of f, or a new
// datagram that of an older one with the same identification.
func (f *flow) yieldsTo(k flowKey, p *packet.Packet) bool {
	return k.fragment || f.closing && p.IsTCPSYN()
}

// touch renews the time-out after packet p.
func (f *flow) touch(k flowKey, p *packet.Packet, now int64) {
	idle := timeoutOther
	switch {
	case k.fragment:
		idle = timeoutFragment
	case k.proto == packet.ProtoTCP:
		switch {
		case p.IsTCPSYN():
			f.closing = false
		case p.TCPFlags()&(packet.TCPFin|packet.TCPRst) != 0:
			f.closing = true
		}
		idle = timeoutTCP
		if !f.established || f.closing {
			idle = timeoutTCPTransitory
		}
	case k.proto == packet.ProtoUDP:
		idle = timeoutUDP
	case k.proto == packet.ProtoICMP, k.proto == packet.ProtoICMPv6:
		idle = timeoutICMP
	}
	f.expires = now + int64(idle)
}

// evict makes room for one flow. It looks at a handful of flows, which Go's map
// iteration picks at random, and removes an expired one or else the one that
// would expire first and was never answered or is closing: a scan does not push
// out connections that work, and short connections do not keep out new ones.
func (s *flowShard) evict(now int64) bool {
	var victim flowKey
	found, looked := false, 0
	var first int64
	for k, f := range s.flows {
		if f.expires <= now {
			delete(s.flows, k)
			return true
		}
		if (!f.established || f.closing) && (!found || f.expires < first) {
			victim, first, found = k, f.expires, true
		}
		if looked++; looked == 16 {
			break
		}
	}
	if found {
		delete(s.flows, victim)
	}
	return found
}

// sweep removes expired flows and those of nodes that are gone.
func (t *flowTable) sweep(now int64, alive func(node string) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for k, f := range s.flows {
			if f.expires <= now || !alive(f.node) {
				delete(s.flows, k)
			}
		}
		s.mu.Unlock()
	}
}

func (t *flowTable) status() FlowStatus {
	n := 0
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += len(t.shards[i].flows)
		t.shards[i].mu.Unlock()
	}
	return FlowStatus{Entries: n, Capacity: t.limit * flowShards}
}
