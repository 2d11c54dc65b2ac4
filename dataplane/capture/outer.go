package capture

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/nat/packet"
)

// maxOuter is room for the headers that putOuter makes.
const maxOuter = packet.IPv6HeaderLen + packet.UDPHeaderLen

// outerHopLimit is what systems send with by default; the real one is not known
// here.
const outerHopLimit = 64

// putOuter makes up the IP and UDP headers of p and returns how many bytes they
// are: none where p has no addresses for them. The UDP checksum is left unfinished, as
// a kernel leaves it to the network card: to sum up payloads is not for the packet
// path.
func putOuter(b *[maxOuter]byte, p *Packet) int {
	if !p.From.IsValid() || !p.To.IsValid() {
		return 0
	}
	length := packet.UDPHeaderLen + len(p.Head) + len(p.Body)
	from, to := p.From.Addr().Unmap(), p.To.Addr().Unmap()
	header := packet.IPv6HeaderLen
	if from.Is4() && to.Is4() {
		header = packet.IPv4HeaderLen
		putIPv4(b[:header], from.As4(), to.As4(), length)
	} else {
		from, to = netip.AddrFrom16(from.As16()), netip.AddrFrom16(to.As16())
		putIPv6(b[:header], from.As16(), to.As16(), length)
	}
	u := b[header : header+packet.UDPHeaderLen]
	binary.BigEndian.PutUint16(u, p.From.Port())
	binary.BigEndian.PutUint16(u[2:], p.To.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(length))
	binary.BigEndian.PutUint16(u[6:], packet.PseudoHeader(from, to, packet.ProtoUDP, length))
	return header + packet.UDPHeaderLen
}

// putIPv4 writes the header in front of n bytes of UDP to b, which is zero.
func putIPv4(b []byte, src, dst [4]byte, n int) {
	const dontFragment = 0x4000
	b[0] = 4<<4 | packet.IPv4HeaderLen/4
	binary.BigEndian.PutUint16(b[2:], uint16(packet.IPv4HeaderLen+n))
	binary.BigEndian.PutUint16(b[6:], dontFragment)
	b[8], b[9] = outerHopLimit, packet.ProtoUDP
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[10:], ^packet.Sum(b, 0))
}

// putIPv6 is putIPv4 for IPv6.
func putIPv6(b []byte, src, dst [16]byte, n int) {
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	b[6], b[7] = packet.ProtoUDP, outerHopLimit
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
}
