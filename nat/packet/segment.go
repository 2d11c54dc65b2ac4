package packet

import "encoding/binary"

// maxUDPSegments is how many datagrams a UDP super-segment may hold: what
// Linux accepts from a sender at most (UDP_MAX_SEGMENTS).
const maxUDPSegments = 128

// Offsets in the TCP header (RFC 9293 section 3.1) and the UDP header (RFC 768).
const (
	tcpSeq      = 4
	tcpFlags    = 12 // data offset, reserved bits, flags: one word
	tcpChecksum = 16
	tcpUrgent   = 18
	udpLength   = 4
	udpChecksum = 6
)

// Segmenter cuts a super-segment into packets: what a network card does for a
// kernel that has segmentation offload. The kernel hands such packets over
// whole when it believes a virtual link carries them.
//
//	super-segment   | IP | TCP | payload ............................... |
//	first           | IP | TCP | size bytes |           CWR
//	between         | IP | TCP | size bytes |           seq += size, id += 1
//	last            | IP | TCP | the rest |             PSH, FIN
//
// Everything that the packets have in common is summed once: per packet there
// remain two copies and one pass over the payload for the checksum. That the
// checksums are computed and not adjusted also makes them right when the
// super-segment's own was left unfinished, as it always is then.
//
// A Segmenter reads from the super-segment's bytes until Next returns 0; they
// must not change before. It is a value and holds no other resource.
type Segmenter struct {
	headers []byte // IP and transport header of the super-segment
	payload []byte // what is left of its payload
	size    int    // payload bytes per packet
	sent    int    // payload bytes already cut off
	started bool

	transport int    // where the transport header starts in headers
	version   uint8  // 4 or 6
	proto     uint8  // ProtoTCP or ProtoUDP
	flags     uint16 // the TCP word of data offset and flags
	urgent    uint16 // the TCP urgent pointer
	id        uint16 // IPv4 identification of the next packet
	seq       uint32 // TCP sequence number of the next packet
	noSum     bool   // the UDP sender does without a checksum

	ipSum        uint64 // sum of the IPv4 header, without the fields that differ
	transportSum uint64 // likewise: pseudo-header and transport header
}

// NewSegmenter prepares to cut a TCP packet into packets of at most mtu bytes.
// It refuses (false) what segmentation cannot be right for: other protocols,
// fragments, SYN and RST, and headers that fill more than half of mtu, because
// each packet repeats them and a hostile sender would choose what that costs.
func NewSegmenter(p Packet, mtu int) (Segmenter, bool) {
	if p.Proto != ProtoTCP || p.Fragment != Whole || p.TCPFlags()&(TCPSyn|TCPRst) != 0 {
		return Segmenter{}, false
	}
	t := p.Transport()
	length := p.TransportOffset + int(t[tcpFlags]>>4)*4
	if length > mtu/2 {
		return Segmenter{}, false
	}
	s := newSegmenter(p, length, mtu-length)
	s.seq = binary.BigEndian.Uint32(t[tcpSeq:])
	s.flags = binary.BigEndian.Uint16(t[tcpFlags:])
	s.urgent = binary.BigEndian.Uint16(t[tcpUrgent:])
	s.transportSum += uint64(Sum(t[:tcpSeq], 0)) +
		uint64(Sum(t[tcpSeq+4:tcpFlags], 0)) + // acknowledgment number
		uint64(Sum(t[tcpFlags+2:tcpChecksum], 0)) + // window
		uint64(Sum(s.headers[s.transport+TCPHeaderLen:], 0)) // options
	return s, true
}

// NewUDPSegmenter prepares to cut a UDP packet, made by a sender with
// UDP_SEGMENT, into packets that carry payloadSize bytes each. It refuses
// fragments, a UDP length that is not the packet's, and more packets than a
// kernel would have put together.
func NewUDPSegmenter(p Packet, payloadSize int) (Segmenter, bool) {
	if p.Proto != ProtoUDP || p.Fragment != Whole || payloadSize <= 0 {
		return Segmenter{}, false
	}
	t := p.Transport()
	if int(binary.BigEndian.Uint16(t[udpLength:])) != len(t) || len(t)-UDPHeaderLen > payloadSize*maxUDPSegments {
		return Segmenter{}, false
	}
	s := newSegmenter(p, p.TransportOffset+UDPHeaderLen, payloadSize)
	s.transportSum += uint64(Sum(t[:udpLength], 0))
	// Without a checksum (RFC 768; in IPv6 RFC 6935) it stays so: that is the
	// sender's choice. An unfinished checksum is never zero.
	s.noSum = binary.BigEndian.Uint16(t[udpChecksum:]) == 0
	return s, true
}

// newSegmenter fills in what TCP and UDP have in common; headers is the length
// of all headers and size the payload per packet.
func newSegmenter(p Packet, headers, size int) Segmenter {
	s := Segmenter{
		headers:   p.Bytes[:headers:headers],
		payload:   p.Bytes[headers:],
		size:      size,
		transport: p.TransportOffset,
		version:   p.Version,
		proto:     p.Proto,
		// The transport length differs from packet to packet: zero for now.
		transportSum: uint64(PseudoHeader(p.Src(), p.Dst(), p.Proto, 0)),
	}
	if p.Version == 4 {
		b := p.Bytes[:p.TransportOffset]
		s.id = binary.BigEndian.Uint16(b[4:])
		s.ipSum = uint64(Sum(b[:2], 0)) + uint64(Sum(b[6:10], 0)) + uint64(Sum(b[12:], 0))
	}
	return s
}

// Next writes the next packet into dst and returns its length, or 0 when there
// is none left. dst must have room for it (mtu, or all headers and payloadSize)
// and must not overlap the super-segment; a dst that is too short ends the
// segmentation.
func (s *Segmenter) Next(dst []byte) int {
	if len(dst) < len(s.headers)+min(s.size, len(s.payload)) {
		s.started, s.payload = true, nil
		return 0
	}
	n, payload := s.NextHeaders(dst)
	return n + copy(dst[n:], payload)
}

// NextHeaders is Next without the copy of the payload, for who gathers: it writes
// the headers of the next packet into dst and returns their length, which is the
// same for all, with the payload that follows them, which is part of the
// super-segment. n is 0 when there is no packet left or dst is too short. dst may
// be the place where the super-segment's own headers stand, once.
func (s *Segmenter) NextHeaders(dst []byte) (n int, payload []byte) {
	if s.started && len(s.payload) == 0 {
		return 0, nil
	}
	if len(dst) < len(s.headers) {
		s.started, s.payload = true, nil
		return 0, nil
	}
	dst = dst[:len(s.headers)]
	copy(dst, s.headers)
	payload, s.payload = s.payload[:min(s.size, len(s.payload))], s.payload[min(s.size, len(s.payload)):]
	payloadSum := uint64(0)
	if !s.noSum {
		payloadSum = uint64(Sum(payload, 0))
	}
	total := len(dst) + len(payload)
	s.putIP(dst, total)
	if s.proto == ProtoTCP {
		s.putTCP(dst[s.transport:], total-s.transport, payloadSum)
	} else {
		s.putUDP(dst[s.transport:], total-s.transport, payloadSum)
	}
	s.started = true
	s.sent += len(payload)
	return len(dst), payload
}

// putIP completes the IP header of a packet of total bytes.
func (s *Segmenter) putIP(b []byte, total int) {
	if s.version == 6 {
		binary.BigEndian.PutUint16(b[4:], uint16(total-IPv6HeaderLen))
		return
	}
	binary.BigEndian.PutUint16(b[2:], uint16(total))
	binary.BigEndian.PutUint16(b[4:], s.id)
	binary.BigEndian.PutUint16(b[10:], ^Fold(s.ipSum+uint64(total)+uint64(s.id)))
	s.id++ // modulo 65536, as the sender would count
}

// putTCP completes the TCP header at the start of t; length is that of the
// header and the payload.
func (s *Segmenter) putTCP(t []byte, length int, payloadSum uint64) {
	flags, urgent := s.flags, s.urgent
	if s.started {
		flags &^= TCPCwr // RFC 3168 section 6.1.2: on the first packet after the reduction
	}
	if len(s.payload) > 0 {
		flags &^= TCPPsh | TCPFin
	}
	if flags&TCPUrg != 0 { // the pointer counts from this packet's sequence number
		if int(urgent) > s.sent {
			urgent -= uint16(s.sent)
		} else {
			flags, urgent = flags&^TCPUrg, 0
		}
	}
	binary.BigEndian.PutUint32(t[tcpSeq:], s.seq)
	binary.BigEndian.PutUint16(t[tcpFlags:], flags)
	binary.BigEndian.PutUint16(t[tcpUrgent:], urgent)
	sum := s.transportSum + payloadSum + uint64(length) + uint64(s.seq) + uint64(flags) + uint64(urgent)
	binary.BigEndian.PutUint16(t[tcpChecksum:], ^Fold(sum))
	s.seq += uint32(s.size) // only the last packet may be shorter
}

// putUDP completes the UDP header at the start of t, likewise.
func (s *Segmenter) putUDP(t []byte, length int, payloadSum uint64) {
	binary.BigEndian.PutUint16(t[udpLength:], uint16(length))
	if s.noSum {
		return
	}
	// The length is summed twice: in the header and in the pseudo-header.
	check := ^Fold(s.transportSum + payloadSum + 2*uint64(length))
	if check == 0 {
		check = 0xffff // RFC 768: zero would mean that there is none
	}
	binary.BigEndian.PutUint16(t[udpChecksum:], check)
}
