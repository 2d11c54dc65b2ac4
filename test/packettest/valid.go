package packettest

import "encoding/binary"

// ChecksumsValid recomputes every checksum of an unfragmented packet. It is false for
// what is no whole packet; what follows the packet is not looked at.
func ChecksumsValid(b []byte) bool {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		header, length := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || length < header || length > len(b) || Sum(b[:header]) != 0xffff {
			return false
		}
		return transportValid(b[9], b[12:20], b[header:length])
	case len(b) >= 40 && b[0]>>4 == 6:
		length := 40 + int(binary.BigEndian.Uint16(b[4:]))
		if length > len(b) {
			return false
		}
		proto, rest := b[6], b[40:length]
		for proto == 0 || proto == 43 || proto == 60 || proto == 51 { // RFC 8200 section 4.1, RFC 4302
			if len(rest) < 8 {
				return false
			}
			n := 8 * (1 + int(rest[1]))
			if proto == 51 {
				n = 4 * (2 + int(rest[1]))
			}
			if n > len(rest) {
				return false
			}
			proto, rest = rest[0], rest[n:]
		}
		return transportValid(proto, b[8:40], rest)
	}
	return false
}

// transportValid recomputes the checksum of what follows the headers of IP. Addresses
// are the source and the destination, as they stand in the header.
func transportValid(proto uint8, addresses, b []byte) bool {
	is4, least := len(addresses) == 8, 8
	switch proto {
	case TCP:
		least = 20
	case UDP:
	case ICMP:
		return len(b) >= least && Sum(b) == 0xffff
	case ICMPv6:
		least = 4
	default:
		return true
	}
	if len(b) < least {
		return false
	}
	if proto == UDP && b[6]|b[7] == 0 {
		return is4 // none; in IPv6 that is an error (RFC 8200 section 8.1)
	}
	return Sum(append(pseudo(addresses, proto, len(b)), b...)) == 0xffff
}
