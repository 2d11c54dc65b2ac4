package neighbor

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/nat/packet"
)

// Lengths of whole IPv6 packets with the one option that they have here.
const (
	SolicitationLen  = packet.IPv6HeaderLen + discoveryLen + linkLayerLen
	AdvertisementLen = packet.IPv6HeaderLen + discoveryLen + linkLayerLen
)

const (
	typeSolicitation  = 135
	typeAdvertisement = 136

	discoveryLen = 24 // type to target address
	linkLayerLen = 8  // a link-layer address option for Ethernet
	optionUnit   = 8  // option lengths count in this many bytes

	// discoveryHopLimit proves that no router has forwarded the packet, which
	// is all the protection there is against strangers (RFC 4861 section 11.2).
	discoveryHopLimit = 255

	optionSourceLinkLayer = 1
	optionTargetLinkLayer = 2

	flagRouter    = 0x80
	flagSolicited = 0x40
	flagOverride  = 0x20
)

// Solicitation is a Neighbor Solicitation with its IPv6 header, RFC 4861
// section 4.3:
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Type: 135   |    Code: 0    |           Checksum            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                            Reserved                           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                        Target (16 octets)                     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|    Type: 1    |   Length: 1   |           SourceMAC           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//	|                                                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type Solicitation struct {
	Src, Dst netip.Addr // Src is unspecified in duplicate address detection
	Target   netip.Addr
	// SourceMAC is the address of the sender, zero if it does not tell.
	SourceMAC MAC
}

// Advertisement is a Neighbor Advertisement with its IPv6 header, RFC 4861
// section 4.4:
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Type: 136   |    Code: 0    |           Checksum            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|R|S|O|                     Reserved                            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                        Target (16 octets)                     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|    Type: 2    |   Length: 1   |           TargetMAC           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//	|                                                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type Advertisement struct {
	Src, Dst netip.Addr
	Target   netip.Addr
	// TargetMAC is the address that belongs to Target, zero if not told: an
	// answer to a unicast solicitation may do without.
	TargetMAC MAC
	Router    bool // the R flag: Target forwards packets
	Solicited bool // the S flag: this answers a solicitation
	Override  bool // the O flag: replace a cached address
}

// DecodeSolicitation returns the Neighbor Solicitation in p, and false if p is
// none or not a valid one (RFC 4861 section 7.1.1).
func DecodeSolicitation(p packet.Packet) (Solicitation, bool) {
	body, ok := discoveryBody(&p, typeSolicitation)
	if !ok {
		return Solicitation{}, false
	}
	s := Solicitation{Src: p.Src(), Dst: p.Dst(), Target: target(body)}
	s.SourceMAC, ok = linkLayer(body[discoveryLen:], optionSourceLinkLayer)
	if !ok || !isUnicast(s.Target) || s.Src.IsMulticast() {
		return Solicitation{}, false
	}
	if s.Src.IsUnspecified() && (!isSolicitedNode(s.Dst) || !s.SourceMAC.IsZero()) {
		return Solicitation{}, false
	}
	return s, true
}

// DecodeAdvertisement returns the Neighbor Advertisement in p, and false if p
// is none or not a valid one (RFC 4861 section 7.1.2).
func DecodeAdvertisement(p packet.Packet) (Advertisement, bool) {
	body, ok := discoveryBody(&p, typeAdvertisement)
	if !ok {
		return Advertisement{}, false
	}
	a := Advertisement{
		Src: p.Src(), Dst: p.Dst(), Target: target(body),
		Router:    body[4]&flagRouter != 0,
		Solicited: body[4]&flagSolicited != 0,
		Override:  body[4]&flagOverride != 0,
	}
	a.TargetMAC, ok = linkLayer(body[discoveryLen:], optionTargetLinkLayer)
	if !ok || !isUnicast(a.Target) || !isUnicast(a.Src) || a.Dst.IsMulticast() && a.Solicited {
		return Advertisement{}, false
	}
	return a, true
}

// discoveryBody returns the ICMPv6 message in p if it is of the given type and
// passes the checks that all discovery messages have in common.
func discoveryBody(p *packet.Packet, kind uint8) ([]byte, bool) {
	// RFC 6980 section 5 forbids fragment headers. The other extension headers
	// have no use here, except to hide a message from who looks for it.
	if p.Version != 6 || p.Proto != packet.ProtoICMPv6 || p.TransportOffset != packet.IPv6HeaderLen {
		return nil, false
	}
	body := p.Transport()
	if len(body) < discoveryLen || body[0] != kind || body[1] != 0 || p.HopLimit() != discoveryHopLimit {
		return nil, false
	}
	// A message is small, so the checksum costs little; kernels finish it
	// themselves, also where they leave those of TCP and UDP open.
	pseudo := packet.PseudoHeader(p.Src(), p.Dst(), packet.ProtoICMPv6, len(body))
	return body, packet.Sum(body, pseudo) == 0xffff
}

func target(body []byte) netip.Addr { return netip.AddrFrom16([16]byte(body[8:24])) }

// linkLayer walks options (RFC 4861 section 4.6) and returns the Ethernet
// address of the first of the wanted type, or zero if there is none. It is
// false if an option has no length or reaches over the end, and if the address
// is not of one station.
func linkLayer(b []byte, want uint8) (m MAC, ok bool) {
	for len(b) > 0 {
		if len(b) < 2 || b[1] == 0 || len(b) < int(b[1])*optionUnit {
			return MAC{}, false
		}
		o := b[:int(b[1])*optionUnit]
		b = b[len(o):]
		if o[0] != want || !m.IsZero() {
			continue // unknown options are ignored (section 4.6)
		}
		if len(o) != linkLayerLen || !MAC(o[2:8]).isStation() { // RFC 2464 section 6
			return MAC{}, false
		}
		m = MAC(o[2:8])
	}
	return m, true
}

func isUnicast(a netip.Addr) bool { return !a.IsMulticast() && !a.IsUnspecified() }

// AppendSolicitation appends s as a whole IPv6 packet to b. Without a SourceMAC
// the packet is shorter by its option. All addresses must be IPv6.
func AppendSolicitation(b []byte, s Solicitation) []byte {
	return appendDiscovery(b, typeSolicitation, Advertisement{
		Src: s.Src, Dst: s.Dst, Target: s.Target, TargetMAC: s.SourceMAC,
	})
}

// AppendAdvertisement appends a as a whole IPv6 packet to b. Without a
// TargetMAC the packet is shorter by its option. All addresses must be IPv6.
func AppendAdvertisement(b []byte, a Advertisement) []byte {
	return appendDiscovery(b, typeAdvertisement, a)
}

// appendDiscovery writes both messages: a solicitation is an advertisement
// without flags and with another option number.
func appendDiscovery(b []byte, kind uint8, a Advertisement) []byte {
	at := len(b)
	length := discoveryLen
	if !a.TargetMAC.IsZero() {
		length += linkLayerLen
	}
	src, dst, about := a.Src.As16(), a.Dst.As16(), a.Target.As16()
	b = append(b, 6<<4, 0, 0, 0, 0, byte(length), packet.ProtoICMPv6, discoveryHopLimit)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	b = append(b, kind, 0, 0, 0, flags(a), 0, 0, 0)
	b = append(b, about[:]...)
	if !a.TargetMAC.IsZero() {
		option := byte(optionTargetLinkLayer)
		if kind == typeSolicitation {
			option = optionSourceLinkLayer
		}
		b = append(b, option, 1)
		b = append(b, a.TargetMAC[:]...)
	}
	body := b[at+packet.IPv6HeaderLen:]
	pseudo := packet.PseudoHeader(a.Src, a.Dst, packet.ProtoICMPv6, len(body))
	binary.BigEndian.PutUint16(body[2:], ^packet.Sum(body, pseudo))
	return b
}

func flags(a Advertisement) (f byte) {
	if a.Router {
		f |= flagRouter
	}
	if a.Solicited {
		f |= flagSolicited
	}
	if a.Override {
		f |= flagOverride
	}
	return f
}

// solicitedNode is the prefix of solicited-node multicast addresses, in full
// but the last three octets (RFC 4291 section 2.7.1).
var solicitedNode = [13]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}

// SolicitedNode returns the multicast group on which the owner of an IPv6
// address listens for solicitations.
func SolicitedNode(a netip.Addr) netip.Addr {
	v := a.As16()
	copy(v[:], solicitedNode[:])
	return netip.AddrFrom16(v)
}

func isSolicitedNode(a netip.Addr) bool {
	v := a.As16()
	return [13]byte(v[:13]) == solicitedNode
}

// MulticastMAC returns the Ethernet address of an IPv6 multicast group (RFC
// 2464 section 7).
func MulticastMAC(group netip.Addr) MAC {
	v := group.As16()
	return MAC{0x33, 0x33, v[12], v[13], v[14], v[15]}
}
