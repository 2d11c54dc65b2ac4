package dataplane

import (
	"encoding/binary"
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
	// maxPathMTUs bounds what is remembered. Only destinations behind a link
	// smaller than the tunnel have an entry.
	maxPathMTUs = 4096
)

// pathMTUs remembers the destinations for which somebody behind the peer's
// gateway asked for smaller packets: the destination itself by the MSS of its
// SYN, or a router by an ICMP error.
//
// A sender that is told so makes its TCP segments smaller, but a node's kernel
// hands them over in super-segments that do not say how small. Cut to the
// tunnel's MTU they would be refused again and again, so what the sender was
// told is noted in passing. Only TCP is looked up.
//
// It is safe for concurrent use: ingress learns, egress looks up.
type pathMTUs struct {
	// count is len(mtus): looking up takes no lock while there is nothing, as
	// in most peerings.
	count atomic.Int32

	mu   sync.RWMutex
	mtus map[netip.Addr]pathMTU // by the destination's outside address
}

type pathMTU struct {
	mtu     int
	expires int64 // on the forwarder's clock
}

// learn notes what a packet from the peer says about size, if it is less than
// mtu. It is called before the packet is translated, and after its MSS was clamped:
// by a filter rule it may be less than the peer's.
func (m *pathMTUs) learn(p *packet.Packet, mtu int, now int64) {
	if mss, ok := nat.MSS(p); ok {
		if n := mss + packet.TCPHeaderLen + p.TransportOffset; n < mtu && mss > 0 {
			m.note(p.Src(), max(n, minMTU(p)), now, mssLifetime)
		}
		return
	}
	n := reportedMTU(p)
	if n == 0 || n >= mtu {
		return
	}
	// Only about what the addressee has sent.
	if e, ok := p.Embedded(); ok && e.Src() == p.Dst() {
		m.note(e.Dst(), n, now, pathMTULifetime)
	}
}

// note remembers that dst takes packets of n bytes. Of two values the lower
// counts until it expires.
func (m *pathMTUs) note(dst netip.Addr, n int, now int64, lifetime time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	expires := now + int64(lifetime)
	old, known := m.mtus[dst]
	if known && old.expires > now {
		n, expires = min(n, old.mtu), max(expires, old.expires)
	}
	if !known && len(m.mtus) >= maxPathMTUs {
		for other := range m.mtus { // any: it is learnt again when it is needed
			delete(m.mtus, other)
			break
		}
	}
	if m.mtus == nil {
		m.mtus = make(map[netip.Addr]pathMTU)
	}
	m.mtus[dst] = pathMTU{n, expires}
	m.count.Store(int32(len(m.mtus)))
}

// minMTU returns the MTU that every link has for packets like p.
func minMTU(p *packet.Packet) int {
	if p.Version == 6 {
		return MinMTUIPv6
	}
	return MinMTU
}

// reportedMTU returns the next-hop MTU in Fragmentation Needed (RFC 1191 section
// 4) or Packet Too Big (RFC 4443 section 3.2), and 0 for everything else. What
// no link may have is not believed: it would only make work.
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

// limit returns the MTU for dst, at most mtu.
func (m *pathMTUs) limit(dst netip.Addr, mtu int, now int64) int {
	if m.count.Load() == 0 {
		return mtu
	}
	m.mu.RLock()
	known, ok := m.mtus[dst]
	m.mu.RUnlock()
	if ok && known.expires > now {
		return min(mtu, known.mtu)
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
	for dst, known := range m.mtus {
		if known.expires <= now {
			delete(m.mtus, dst)
		}
	}
	m.count.Store(int32(len(m.mtus)))
}
