package packettest

import (
	"math/rand/v2"
	"net/netip"
)

// maxPayload bounds the payload of random packets: long enough for every
// alignment and for several fragments, short enough for ten million of them.
const maxPayload = 96

// Random returns a valid packet of random protocol, options, length and
// fragmentation between two addresses of one family.
func Random(r *rand.Rand, src, dst netip.Addr) Spec {
	s := Spec{
		Src: src, Dst: dst,
		HopLimit:     uint8(1 + r.IntN(255)),
		ID:           r.Uint32(),
		DontFragment: r.IntN(2) == 0,
	}
	s.extend(r)
	s.Proto, s.Transport = transport(r, src.Is4())
	if (s.Proto == UDP || s.Proto == UDPLite) && r.IntN(8) == 0 {
		s.NoChecksum = true
	}
	if r.IntN(4) == 0 {
		s.fragment(r)
	}
	return s
}

// RandomError returns an ICMP error from src to dst that quotes a packet, cut
// at random, but never in the middle of a transport checksum: half of one
// cannot be repaired.
func RandomError(r *rand.Rand, src, dst netip.Addr, quote Spec) Spec {
	s := Spec{Src: src, Dst: dst, Quote: &quote}
	s.extend(r)
	typ := pick(r, 1, 2, 3, 4)
	s.Proto = ICMPv6
	if src.Is4() {
		typ = pick(r, 3, 4, 5, 11, 12)
		s.Proto = ICMP
	}
	s.Transport = Message(typ, uint8(r.IntN(6)), r.Uint32(), nil)
	header := quote.headerLen()
	s.QuoteLen = header + r.IntN(64)
	if at, _ := quote.checksumField(); at != 0 && s.QuoteLen == header+at+1 {
		s.QuoteLen--
	}
	if quote.Src.Is6() && r.IntN(8) == 0 { // within the extension headers, too
		s.QuoteLen = 40 + r.IntN(header-39)
	}
	return s
}

// extend adds IPv4 options or IPv6 extension headers to one packet in four.
func (s *Spec) extend(r *rand.Rand) {
	switch {
	case r.IntN(4) != 0:
	case s.Src.Is4():
		// Padding, a router alert (RFC 2113), a time stamp with room for one.
		s.Options = [][]byte{{1, 1, 1, 0}, {148, 4, 0, 0}, {68, 8, 5, 0, 0, 0, 0, 0}}[r.IntN(3)]
	default:
		all := []Extension{
			{0, []byte{0, 5, 2, 0, 0, 1, 0}},                           // hop-by-hop: router alert, PadN
			{60, []byte{1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, // destination options: PadN
			{43, []byte{0, 4, 0, 0, 0, 0, 0}},                          // routing, no segments left
			{51, make([]byte, 23)},                                     // AH, 24 bytes
		}
		all[3].Body[0] = 4
		from := r.IntN(len(all))
		s.Extensions = all[from : from+1+r.IntN(len(all)-from)]
	}
}

// fragment turns the packet into one of the fragments that its datagram can be
// cut into, if it is long enough for two.
func (s *Spec) fragment(r *rand.Rand) {
	length := len(s.Transport)
	first := 8 // enough for the fixed header of all but TCP, SCTP and DCCP
	if s.Proto == TCP || s.Proto == SCTP || s.Proto == DCCP {
		first = 24
	}
	if length <= first {
		return
	}
	if r.IntN(2) == 0 {
		most := (length - 1) / 8
		s.Part = Part{0, 8 * (first/8 + r.IntN(most-first/8+1))}
		return
	}
	offset := first + 8*r.IntN((length-1-first)/8+1)
	s.Part = Part{offset, length - offset}
	if whole := (length - offset) / 8 * 8; whole > 0 && r.IntN(2) == 0 {
		s.Part.Length = whole
	}
}

// transport returns a random transport header with a random payload.
func transport(r *rand.Rand, is4 bool) (proto uint8, b []byte) {
	payload := make([]byte, r.IntN(maxPayload+1))
	for i := range payload {
		payload[i] = byte(r.Uint32())
	}
	if r.IntN(16) == 0 {
		clear(payload) // sums of zero and 0xffff are the interesting ones
	}
	src, dst := uint16(r.Uint32()), uint16(r.Uint32())
	switch r.IntN(8) {
	case 0, 1:
		s := Segment{SrcPort: src, DstPort: dst, Seq: r.Uint32(), Ack: r.Uint32(), Flags: uint8(r.Uint32()), Payload: payload}
		if r.IntN(2) == 0 {
			s.Options = []byte{1, 2, 4, byte(r.Uint32()), byte(r.Uint32()), 1, 1, 0}
		}
		return TCP, s.Bytes()
	case 2, 3:
		return UDP, Datagram(src, dst, payload)
	case 4:
		return UDPLite, Datagram(src, dst, payload)
	case 5:
		return SCTP, append([]byte{byte(src >> 8), byte(src), byte(dst >> 8), byte(dst), 0, 0, 0, 0, 1, 2, 3, 4}, payload...)
	case 6:
		return pick(r, DCCP, 50, 47, 4), append([]byte{byte(src >> 8), byte(src), byte(dst >> 8), byte(dst), 4, 0, 0, 0, 0, 0, 0, 0}, payload...)
	}
	if is4 {
		return ICMP, Message(pick(r, 0, 8, 13), 0, r.Uint32(), payload)
	}
	return ICMPv6, Message(pick(r, 128, 129, 130), 0, r.Uint32(), payload)
}

func pick(r *rand.Rand, values ...uint8) uint8 { return values[r.IntN(len(values))] }

// Rounds returns how often a test over random packets goes round: n times, or a
// tenth of that under the race detector, which slows such tests down tenfold and has
// nothing to find in them.
func Rounds(n int) int {
	if Race {
		return n / 10
	}
	return n
}
