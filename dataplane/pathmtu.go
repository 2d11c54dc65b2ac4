package dataplane

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/nat/packet"
)

const (
	// pathMTULifetime is how long a path MTU is believed before larger packets
	// are tried again (RFC 1191 section 6.3, RFC 8201 section 5.3).
	pathMTULifetime = 10 * time.Minute
	// maxPathMTUs bounds what is remembered. Only destinations behind a link
	// smaller than the tunnel have an entry.
	maxPathMTUs = 4096
)

// pathMTUs remembers the destinations for which somebody behind the peer's
// gateway asked for smaller packets.
//
// A sender that is told so makes its TCP segments smaller, but a node's kernel
// hands them over in super-segments that do not say how small. Cut to the
// tunnel's MTU they would be refused again and again, so what the sender was
// told is noted in passing. Only super-segments are looked up.
type pathMTUs struct {
	mu   sync.Mutex
	mtus map[netip.Addr]pathMTU // by the destination's outside address
}

type pathMTU struct {
	mtu     int
	expires int64 // on the forwarder's clock
}

// learn notes what an ICMP error from the peer says, if it is about size. It is
// called before the error is translated.
func (m *pathMTUs) learn(p *packet.Packet, now int64) {
	mtu := reportedMTU(p)
	if mtu == 0 {
		return
	}
	e, ok := p.Embedded()
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mtus == nil {
		m.mtus = make(map[netip.Addr]pathMTU)
	}
	dst := e.Dst()
	if _, known := m.mtus[dst]; !known && len(m.mtus) >= maxPathMTUs {
		return // until the next sweep: some connections are slow to start meanwhile
	}
	m.mtus[dst] = pathMTU{mtu, now + int64(pathMTULifetime)}
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
		if mtu := int(binary.BigEndian.Uint16(t[6:])); mtu >= MinMTU {
			return mtu
		}
	case p.Version == 6 && kind == packetTooBig:
		if mtu := binary.BigEndian.Uint32(t[4:]); mtu >= MinMTUIPv6 && mtu <= MaxMTU {
			return int(mtu)
		}
	}
	return 0
}

// limit returns the MTU for dst, at most mtu.
func (m *pathMTUs) limit(dst netip.Addr, mtu int, now int64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.mtus[dst]; ok && known.expires > now {
		return min(mtu, known.mtu)
	}
	return mtu
}

// sweep forgets what has expired.
func (m *pathMTUs) sweep(now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for dst, known := range m.mtus {
		if known.expires <= now {
			delete(m.mtus, dst)
		}
	}
}
