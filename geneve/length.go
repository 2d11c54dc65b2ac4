package geneve

import "encoding/binary"

// DatagramLen returns how long the datagram at the start of b is by what the IP
// packet in it says (RFC 791 section 3.1, RFC 8200 section 3), which may be more than b holds.
// It tells one datagram with a large packet in it from a run of datagrams, where the
// kernel (UDP_GRO) says no more than that something has pieces of some size. ok is
// false when there is no IP packet in it, but ARP for example.
func DatagramLen(b []byte) (n int, ok bool) {
	const (
		ethernetLen = 14
		etherType   = 12
		ipv4Len     = 2 // where the lengths stand
		ipv6Len     = 4
		lengthsEnd  = 6
		ipv6Header  = 40
	)
	h, inner, err := Decode(b)
	if err != nil {
		return 0, false
	}
	protocol := h.Protocol
	if protocol == ProtocolEthernet {
		if len(inner) < ethernetLen {
			return 0, false
		}
		protocol, inner = binary.BigEndian.Uint16(inner[etherType:]), inner[ethernetLen:]
	}
	if len(inner) < lengthsEnd {
		return 0, false
	}
	headers := len(b) - len(inner)
	switch protocol {
	case ProtocolIPv4:
		return headers + int(binary.BigEndian.Uint16(inner[ipv4Len:])), true
	case ProtocolIPv6:
		return headers + ipv6Header + int(binary.BigEndian.Uint16(inner[ipv6Len:])), true
	}
	return 0, false
}
