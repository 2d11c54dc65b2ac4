package packettest

import "net/netip"

// These are the ICMP errors that a router, or the host itself, sends about a packet.
// They quote as much as fits, or what the caller has left of the packet.

// TooBig is Fragmentation Needed (RFC 1191 section 4) or Packet Too Big (RFC 4443
// section 3.2).
func TooBig(router netip.Addr, mtu int, offending []byte) []byte {
	return about(router, offending, [2]uint8{3, 4}, [2]uint8{2, 0}, uint32(mtu))
}

// TimeExceeded is that of RFC 792 or RFC 4443 section 3.3.
func TimeExceeded(router netip.Addr, offending []byte) []byte {
	return about(router, offending, [2]uint8{11, 0}, [2]uint8{3, 0}, 0)
}

// PortUnreachable is that of RFC 792 or RFC 4443 section 3.1.
func PortUnreachable(host netip.Addr, offending []byte) []byte {
	return about(host, offending, [2]uint8{3, 3}, [2]uint8{1, 4}, 0)
}

// about makes an error with a type and code of ICMP or of ICMPv6, to the source of a
// packet.
func about(src netip.Addr, offending []byte, icmp, icmp6 [2]uint8, rest uint32) []byte {
	proto, kind, most, from := uint8(ICMP), icmp, 576-20-8, offending[12:16] // RFC 1812 section 4.3.2.3
	if src.Is6() {
		proto, kind, most, from = ICMPv6, icmp6, 1280-40-8, offending[8:24] // RFC 4443 section 2.4 (c)
	}
	dst, _ := netip.AddrFromSlice(from)
	quote := offending[:min(most, len(offending))]
	return Spec{Src: src, Dst: dst, Proto: proto, Transport: Message(kind[0], kind[1], rest, quote)}.Bytes()
}
