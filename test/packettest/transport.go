package packettest

import "encoding/binary"

// Segment is what TCPHeader is made from.
type Segment struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	Flags            uint8
	Options          []byte // a multiple of four bytes
	Payload          []byte
}

// Bytes returns the TCP header of RFC 9293 section 3.1 and the payload, with a
// zero checksum: a Transport for Spec.
func (s Segment) Bytes() []byte {
	b := binary.BigEndian.AppendUint16(nil, s.SrcPort)
	b = binary.BigEndian.AppendUint16(b, s.DstPort)
	b = binary.BigEndian.AppendUint32(b, s.Seq)
	b = binary.BigEndian.AppendUint32(b, s.Ack)
	b = append(b, byte(5+len(s.Options)/4)<<4, s.Flags)
	b = append(b, 0xfa, 0xf0, 0, 0, 0, 0) // window, checksum, urgent pointer
	b = append(b, s.Options...)
	return append(b, s.Payload...)
}

// Datagram returns the UDP header of RFC 768 and the payload, with a zero
// checksum. For UDP-Lite the length field means the coverage: all of it.
func Datagram(src, dst uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, src)
	b = binary.BigEndian.AppendUint16(b, dst)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	b = append(b, 0, 0)
	return append(b, payload...)
}

// Message returns an ICMP or ICMPv6 message with a zero checksum. The rest is
// the word behind the checksum: identifier and sequence number, MTU, or unused.
func Message(typ, code uint8, rest uint32, body []byte) []byte {
	b := []byte{typ, code, 0, 0}
	b = binary.BigEndian.AppendUint32(b, rest)
	return append(b, body...)
}
