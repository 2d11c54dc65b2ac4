package dataplane

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
)

const (
	// pathMTULifetime is how long a path MTU is believed before larger packets
	// are tried again (RFC 1191 section 6.3, RFC 8201 section 5.3).
	pathMTULifetime = 10 * time.Minute
	// mssLifetime is how long an announced MSS is believed: as long as a
	// connection may be silent, because it does not repeat its SYN.
	mssLifetime = timeoutTCP
	// maxPathMTUs bounds the destinations that are remembered, by either kind. Only
	// those behind a link smaller than the tunnel have an entry.
	maxPathMTUs = 4096
	// maxReporting bounds the senders of which each destination has an entry.
	maxReporting = 32
)

// pathMTUs remembers for which destinations somebody behind the peer's gateway asked
// for smaller packets: the destination itself by the MSS of its SYN, for all
// senders, or a router by an ICMP error, for the sender that it is about.
//
// A sender that is told so makes its TCP segments smaller, but a node's kernel
// hands them over in super-segments that do not say how small. Cut to the
// tunnel's MTU they would be refused again and again, so what the sender was
// told is noted in passing. Only TCP is looked up.
//
// An error is believed only if it quotes what was sent lately: anybody can send one,
// and must not make the packets of others small (RFC 5927 section 7).
//
// All addresses are those inside. It is safe for concurrent use: ingress learns,
// egress looks up.
type pathMTUs struct {
	sent sentSegments
	// count is the number of destinations: looking up takes no lock while there is
	// nothing, as in most peerings.
	count atomic.Int32

	mu        sync.RWMutex
	announced map[netip.Addr]pathMTU     // by destination
	reported  map[netip.Addr]*senderMTUs // by destination
}

type pathMTU struct {
	mtu     int
	expires int64 // on the forwarder's clock
}

// senderMTUs are the path MTUs from each sender to one destination.
type senderMTUs struct {
	mtus []senderMTU
	next int // the one that goes when there are too many
}

type senderMTU struct {
	sender netip.Addr
	pathMTU
}

// announcedMTU is the size of packets that a SYN announces by its MSS, or 0 where it announces none.
func announcedMTU(p *packet.Packet) int {
	mss, _ := nat.MSS(p)
	if mss == 0 {
		return 0
	}
	return mss + packet.TCPHeaderLen + p.TransportOffset
}

// learn notes what a packet from the peer says about size, if it is less than
// mtu. It is called after the packet was translated, and after its MSS was clamped:
// by a filter rule it may be less than the peer's. announced is the announcedMTU before that;
// it counts if it is above mtu, which may grow up to most while the connection lasts.
func (m *pathMTUs) learn(p *packet.Packet, announced, mtu, most int, now int64) {
	if announced > 0 {
		n := announcedMTU(p)
		if n >= mtu && announced > n {
			n, mtu = announced, most
		}
		if 0 < n && n < mtu {
			m.announce(p.Src(), pathMTU{max(n, minMTU(p)), now + int64(mssLifetime)}, now)
		}
		return
	}
	n := reportedMTU(p)
	if n == 0 || n >= mtu {
		return
	}
	// Only about what the addressee has sent.
	if e, ok := p.Embedded(); ok && e.Src() == p.Dst() && m.sent.has(&e) {
		m.report(e.Src(), e.Dst(), pathMTU{n, now + int64(pathMTULifetime)}, now)
	}
}

// and returns what counts of two values: the lower until it expires.
func (m pathMTU) and(old pathMTU, now int64) pathMTU {
	if old.expires > now {
		return pathMTU{min(m.mtu, old.mtu), max(m.expires, old.expires)}
	}
	return m
}

// announce remembers that dst takes packets of that size.
func (m *pathMTUs) announce(dst netip.Addr, size pathMTU, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.announced[dst]
	if m.announced == nil {
		m.announced = make(map[netip.Addr]pathMTU)
	}
	if !known {
		makeRoom(m.announced)
	}
	m.announced[dst] = size.and(old, now)
	m.counted()
}

// report remembers that packets of that size get from src to dst.
func (m *pathMTUs) report(src, dst netip.Addr, size pathMTU, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reported == nil {
		m.reported = make(map[netip.Addr]*senderMTUs)
	}
	s := m.reported[dst]
	if s == nil {
		makeRoom(m.reported)
		s = new(senderMTUs)
		m.reported[dst] = s
	}
	m.counted()
	for i := range s.mtus {
		if s.mtus[i].sender == src {
			s.mtus[i].pathMTU = size.and(s.mtus[i].pathMTU, now)
			return
		}
	}
	if len(s.mtus) < maxReporting {
		s.mtus = append(s.mtus, senderMTU{src, size})
		return
	}
	s.mtus[s.next] = senderMTU{src, size}
	s.next = (s.next + 1) % maxReporting
}

// makeRoom forgets any destination of too many: it is learnt again when it is needed.
func makeRoom[V any](m map[netip.Addr]V) {
	if len(m) < maxPathMTUs {
		return
	}
	for other := range m {
		delete(m, other)
		return
	}
}

// counted is called with mu held.
func (m *pathMTUs) counted() { m.count.Store(int32(len(m.announced) + len(m.reported))) }

// minMTU returns the MTU that every link has for packets like p.
func minMTU(p *packet.Packet) int {
	if p.Version == 6 {
		return MinMTUIPv6
	}
	return MinMTU
}

// reportedMTU returns the next-hop MTU in Fragmentation Needed (RFC 1191 section
// 4) or Packet Too Big (RFC 4443 section 3.2), and 0 for everything else. What
// no link may have is not believed: it would only make work (RFC 8201 section 4).
func reportedMTU(p *packet.Packet) int {
	const fragmentationNeeded, packetTooBig = 3<<8 | 4, 2 << 8
	t := p.Transport()
	if !p.IsICMPError() || len(t) < packet.ICMPHeaderLen {
		return 0
	}
	kind := int(binary.BigEndian.Uint16(t))
	switch {
	case p.Version == 4 && kind == fragmentationNeeded:
		if mtu := int(binary.BigEndian.Uint16(t[6:])); mtu >= minMTU(p) {
			return mtu
		}
	case p.Version == 6 && kind == packetTooBig:
		if mtu := binary.BigEndian.Uint32(t[4:]); mtu >= uint32(minMTU(p)) && mtu <= MaxMTU {
			return int(mtu)
		}
	}
	return 0
}

// limit returns the MTU from src to dst, at most mtu.
func (m *pathMTUs) limit(src, dst netip.Addr, mtu int, now int64) int {
	if m.count.Load() == 0 {
		return mtu
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if known, ok := m.announced[dst]; ok && known.expires > now {
		mtu = min(mtu, known.mtu)
	}
	if s := m.reported[dst]; s != nil {
		for i := range s.mtus {
			if known := &s.mtus[i]; known.sender == src && known.expires > now {
				mtu = min(mtu, known.mtu)
			}
		}
	}
	return mtu
}

// sweep forgets what has expired.
func (m *pathMTUs) sweep(now int64) {
	if m.count.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for dst, known := range m.announced {
		if known.expires <= now {
			delete(m.announced, dst)
		}
	}
	for dst, s := range m.reported {
		last := int64(0)
		for _, known := range s.mtus {
			last = max(last, known.expires)
		}
		if last <= now {
			delete(m.reported, dst)
		}
	}
	m.counted()
}

const (
	// sentSlots is of how many connections it is remembered what they sent; who shares
	// a slot with another waits for the next error.
	sentSlots = 1024
	// maxInFlight is how far back an error may quote a connection, in bytes. A sender
	// whose packets are lost sends no further, so that one of the errors is about
	// the last of them.
	maxInFlight = 1 << 20
)

// sentSegments remembers which bytes connections sent last in TCP super-segments:
// what an ICMP error must quote. It is safe for concurrent use.
type sentSegments struct {
	seed  maphash.Seed
	slots [sentSlots]sentSlot
}

// sentSlot is what is remembered of one connection. Each has a lock of its own: loops note
// super-segments at the same time.
type sentSlot struct {
	mu sync.Mutex
	sentRange
}

// sentRange are the bytes from up to before, as sequence numbers (RFC 9293 section 3.4).
type sentRange struct {
	connection   sentKey
	from, before uint32
}

type sentKey struct {
	src, dst         [16]byte
	srcPort, dstPort uint16
}

func (s *sentSegments) slot(k *sentKey) *sentSlot {
	var b [36]byte
	copy(b[:], k.src[:])
	copy(b[16:], k.dst[:])
	binary.BigEndian.PutUint16(b[32:], k.srcPort)
	binary.BigEndian.PutUint16(b[34:], k.dstPort)
	return &s.slots[maphash.Bytes(s.seed, b[:])%sentSlots]
}

// note remembers the TCP segment p, which has not been translated.
func (s *sentSegments) note(p *packet.Packet) {
	k := sentKey{src: p.Src().As16(), dst: p.Dst().As16()}
	k.srcPort, k.dstPort = p.Ports()
	t := p.Transport()
	from := binary.BigEndian.Uint32(t[4:])
	before := from + uint32(len(t)-int(t[12]>>4)*4)

	r := s.slot(&k)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connection != k || from-r.from > maxInFlight {
		r.sentRange = sentRange{k, from, before}
		return
	}
	if before-r.from > r.before-r.from {
		r.before = before
	}
	if r.before-r.from > maxInFlight {
		r.from = r.before - maxInFlight
	}
}

// has tells whether e is one of the segments that were sent last.
func (s *sentSegments) has(e *packet.Embedded) bool {
	sequence, ok := e.TCPSequence()
	if !ok {
		return false
	}
	k := sentKey{src: e.Src().As16(), dst: e.Dst().As16()}
	k.srcPort, k.dstPort = e.Ports()
	r := s.slot(&k)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connection == k && sequence-r.from < r.before-r.from
}
