package tunnel

import (
	"context"
	"encoding/binary"
	"hash/maphash"
)

// spread is over which tunnels packets go. It is immutable.
type spread struct {
	// all are the tunnels, by place: the first one, and the further ones. Nil: not open.
	all []*egress
	// live are the places of those that packets go by: one at least.
	live []int
}

// part are the packets of a batch that go by one tunnel.
type part struct {
	bufs  [][]byte
	sizes []int
	own   int
}

// divide sends a batch by several tunnels: all packets of a flow by one, in their order.
func (l *egressLoop) divide(ctx context.Context, s *spread, bufs [][]byte, sizes []int, own int) {
	if len(s.live) == 1 && own == 0 {
		s.all[s.live[0]].senders[l.index].send(ctx, bufs, sizes, own, true)
		return
	}
	for len(l.parts) < len(s.all) {
		l.parts = append(l.parts, part{bufs: make([][]byte, 0, BatchSize), sizes: make([]int, 0, BatchSize)})
	}
	for i, size := range sizes {
		if size < 1 {
			continue
		}
		packet := bufs[i][sealFront : sealFront+size]
		place := s.live[0]
		if n := len(s.live); n > 1 {
			place = s.live[flowHash(packet)%uint64(n)]
		}
		if i < own {
			place = s.holder(l.index, packet, place)
		}
		p := &l.parts[place]
		if p.bufs, p.sizes = append(p.bufs, bufs[i]), append(p.sizes, size); i < own {
			p.own++
		}
	}
	for place := range s.all {
		if p := &l.parts[place]; len(p.sizes) > 0 {
			alone := len(s.live) == 1 && place == s.live[0]
			s.all[place].senders[l.index].send(ctx, p.bufs, p.sizes, p.own, alone)
			p.bufs, p.sizes, p.own = p.bufs[:0], p.sizes[:0], 0
		}
	}
}

// holder returns the place of a tunnel that has the destination of a packet in its allowed
// IPs: the given one, if that has. Where none has it is that one, too.
func (s *spread) holder(sender int, packet []byte, place int) int {
	holds := func(i int) bool { return s.all[i] != nil && s.all[i].senders[sender].direct.Peer(packet) != nil }
	if holds(place) {
		return place
	}
	for i := range s.all {
		if holds(i) {
			return i
		}
	}
	return place
}

var flowSeed = maphash.MakeSeed()

// flowHash returns the same for all packets of a flow: those with the same addresses,
// protocol, and ports of TCP, UDP or SCTP. Fragments of IPv4 have no ports here, even the
// first one, so that a datagram stays together; behind an extension header of IPv6 they are
// not looked for.
func flowHash(packet []byte) uint64 {
	const (
		tcp, udp, sctp = 6, 17, 132
		addresses4     = 12 // where they begin
		addresses6     = 8
		header6        = 40
	)
	var key [2*16 + 4 + 1]byte
	var n int
	var protocol byte
	var ports []byte
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		n = copy(key[:], packet[addresses4:][:8])
		protocol = packet[9]
		if fragment := binary.BigEndian.Uint16(packet[6:]) & 0x3fff; fragment == 0 { // MF and offset
			ports = packet[min(int(packet[0]&0xf)*4, len(packet)):]
		}
	case len(packet) >= header6 && packet[0]>>4 == 6:
		n = copy(key[:], packet[addresses6:][:32])
		protocol = packet[6]
		ports = packet[header6:]
	}
	if (protocol == tcp || protocol == udp || protocol == sctp) && len(ports) >= 4 {
		n += copy(key[n:], ports[:4])
	}
	key[n] = protocol
	return maphash.Bytes(flowSeed, key[:n+1])
}
