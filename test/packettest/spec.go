package packettest

import (
	"encoding/binary"
	"net/netip"
)

// IP protocol numbers used here.
const (
	ICMP     = 1
	TCP      = 6
	UDP      = 17
	DCCP     = 33
	Fragment = 44
	ICMPv6   = 58
	SCTP     = 132
	UDPLite  = 136
)

// Spec describes one IP packet. The family is that of Src.
type Spec struct {
	Src, Dst netip.Addr
	Proto    uint8
	// HopLimit is the time to live; zero means 64.
	HopLimit uint8
	// ID is the identification: 16 bits in IPv4, only in fragments in IPv6.
	ID uint32
	// DontFragment sets the DF bit of IPv4.
	DontFragment bool
	// Options are the options of IPv4, a multiple of four bytes.
	Options []byte
	// Extensions are extension headers of IPv6, before the fragment header.
	Extensions []Extension
	// Transport is the transport header and what follows it. Its
	// checksum field is zero: Bytes fills it in.
	Transport []byte
	// Quote is the packet that follows Transport in an ICMP error, cut to
	// QuoteLen bytes.
	Quote    *Spec
	QuoteLen int
	// NoChecksum leaves the checksum field of Transport zero.
	NoChecksum bool
	// Part, if its Length is not zero, makes the packet a fragment.
	Part Part
}

// Extension is an extension header of IPv6: its type, and its bytes behind the
// next header field.
type Extension struct {
	Type uint8
	Body []byte
}

// Part is the piece of a datagram that a fragment carries, in bytes. Offset is
// a multiple of eight.
type Part struct{ Offset, Length int }

// Bytes returns the packet with finished checksums. In a first fragment the
// transport checksum is that of the whole datagram.
func (s Spec) Bytes() []byte {
	payload := s.datagram()
	fragment, more := s.Part.Length != 0, false
	if fragment {
		end := s.Part.Offset + s.Part.Length
		more = end < len(payload)
		payload = payload[s.Part.Offset:end]
	}
	if s.Src.Is4() {
		return s.ipv4(payload, more)
	}
	return s.ipv6(payload, fragment, more)
}

func (s Spec) hopLimit() uint8 {
	if s.HopLimit == 0 {
		return 64
	}
	return s.HopLimit
}

// ipv4 puts the header of RFC 791 section 3.1 before the payload.
func (s Spec) ipv4(payload []byte, more bool) []byte {
	src, dst := s.Src.As4(), s.Dst.As4()
	flags := uint16(s.Part.Offset / 8)
	if more {
		flags |= 0x2000
	}
	if s.DontFragment {
		flags |= 0x4000
	}
	header := 20 + len(s.Options)
	b := []byte{0x40 | byte(header/4), 0}
	b = binary.BigEndian.AppendUint16(b, uint16(header+len(payload)))
	b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, s.hopLimit(), s.Proto, 0, 0)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	b = append(b, s.Options...)
	binary.BigEndian.PutUint16(b[10:], Checksum(b))
	return append(b, payload...)
}

// ipv6 puts the headers of RFC 8200 sections 3 and 4 before the payload.
func (s Spec) ipv6(payload []byte, fragment, more bool) []byte {
	extensions := s.Extensions
	if fragment {
		body := []byte{0, byte(s.Part.Offset >> 8), byte(s.Part.Offset)}
		if more {
			body[2] |= 1
		}
		body = binary.BigEndian.AppendUint32(body, s.ID)
		extensions = append(extensions[:len(extensions):len(extensions)], Extension{Fragment, body})
	}
	var chain []byte
	for i, e := range extensions {
		next := s.Proto
		if i+1 < len(extensions) {
			next = extensions[i+1].Type
		}
		chain = append(chain, next)
		chain = append(chain, e.Body...)
	}
	first := s.Proto
	if len(extensions) > 0 {
		first = extensions[0].Type
	}
	src, dst := s.Src.As16(), s.Dst.As16()
	b := []byte{0x60, 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(len(chain)+len(payload)))
	b = append(b, first, s.hopLimit())
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	b = append(b, chain...)
	return append(b, payload...)
}

// headerLen returns how many bytes come before the transport header.
func (s Spec) headerLen() int {
	if s.Src.Is4() {
		return 20 + len(s.Options)
	}
	n := 40
	for _, e := range s.Extensions {
		n += 1 + len(e.Body)
	}
	if s.Part.Length != 0 {
		n += 8
	}
	return n
}

// datagram returns the transport header and payload, not fragmented, with the
// checksum filled in.
func (s Spec) datagram() []byte {
	b := append([]byte(nil), s.Transport...)
	if s.Quote != nil {
		q := s.Quote.Bytes()
		b = append(b, q[:min(s.QuoteLen, len(q))]...)
	}
	at, pseudo := s.checksumField()
	if at == 0 || s.NoChecksum || len(b) < at+2 {
		return b
	}
	covered := b
	if pseudo {
		covered = append(s.pseudoHeader(len(b)), b...)
	}
	check := Checksum(covered)
	if check == 0 && (s.Proto == UDP || s.Proto == UDPLite) {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], check)
	return b
}

// checksumField returns where the transport checksum is, and whether it covers
// the pseudo-header.
func (s Spec) checksumField() (at int, pseudo bool) {
	switch {
	case s.Proto == TCP:
		return 16, true
	case s.Proto == UDP, s.Proto == UDPLite, s.Proto == DCCP:
		return 6, true
	case s.Proto == ICMP && s.Src.Is4():
		return 2, false
	case s.Proto == ICMPv6 && s.Src.Is6():
		return 2, true
	}
	return 0, false
}

// pseudoHeader returns the pseudo-header of RFC 768 and RFC 9293 section 3.1,
// or that of RFC 8200 section 8.1.
func (s Spec) pseudoHeader(length int) []byte {
	b := append(s.Src.AsSlice(), s.Dst.AsSlice()...)
	if s.Src.Is4() {
		return append(b, 0, s.Proto, byte(length>>8), byte(length))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	return append(b, 0, 0, 0, s.Proto)
}

// Checksum is the Internet checksum of RFC 1071, word by word.
func Checksum(b []byte) uint16 {
	return ^Sum(b)
}

// Sum is the one's complement sum of RFC 1071, word by word.
func Sum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		word := uint32(b[i]) << 8
		if i+1 < len(b) {
			word |= uint32(b[i+1])
		}
		sum += word
		if sum > 0xffff {
			sum -= 0xffff
		}
	}
	return uint16(sum)
}
