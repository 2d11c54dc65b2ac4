package packet

import "encoding/binary"

// IPv4 fragmentation fields (RFC 791 section 3.1): flags and offset share the
// word at offset 6; the offset counts in units of eight bytes.
const (
	flagMoreFragments = 0x2000
	fragmentUnit      = 8
)

// IPv4 option types with a meaning here (RFC 791 section 3.1).
const (
	option4End    = 0
	option4NoOp   = 1
	option4Copied = 0x80 // flag: repeated in every fragment
)

// Fragmenter cuts an IPv4 packet without DF into fragments (RFC 791 section
// 3.2, "An Example Fragmentation Procedure"). The packet may be a fragment
// itself. IPv6 is never fragmented on its way (RFC 8200 section 5).
//
//	packet    | IP, options | payload ............................... |
//	first     | IP, options | a multiple of 8 bytes |    MF
//	between   | IP, copied options | a multiple of 8 |   MF, offset
//	last      | IP, copied options | the rest |          MF as it was, offset
//
// A transport checksum lies in the first fragment and covers the payload of
// all: an unfinished one must be completed before (CompleteChecksum).
//
// A Fragmenter reads from the packet's bytes until Next returns 0; they must
// not change before. It is a value and holds no other resource.
type Fragmenter struct {
	header  []byte // header of the packet and of the first fragment
	payload []byte // what is left of the payload
	mtu     int
	word    uint16 // flags and offset of the next fragment
	more    uint16 // MF as the packet itself had it
	started bool
	// later is the header of all fragments but the first.
	later    [maxIPv4HeaderLen]byte
	laterLen int
}

// maxIPv4HeaderLen is the longest header that IHL can express.
const maxIPv4HeaderLen = 60

// NewFragmenter prepares to cut a packet into fragments of at most mtu bytes.
// It is false for IPv6, for packets with DF, for options that are malformed
// and if mtu leaves no room for eight bytes behind the header. A packet that
// fits into mtu comes out as it is.
func NewFragmenter(p Packet, mtu int) (Fragmenter, bool) {
	if p.Version != 4 || p.DontFragment() {
		return Fragmenter{}, false
	}
	length := int(p.Bytes[0]&0x0f) * 4
	if length+fragmentUnit > mtu {
		return Fragmenter{}, false
	}
	word := binary.BigEndian.Uint16(p.Bytes[6:])
	f := Fragmenter{
		header:  p.Bytes[:length:length],
		payload: p.Bytes[length:],
		mtu:     mtu,
		word:    word &^ flagMoreFragments,
		more:    word & flagMoreFragments,
	}
	// Parse has seen that the last offset fits into its 13 bits.
	copy(f.later[:], p.Bytes[:IPv4HeaderLen])
	n, ok := copyOptions(f.later[IPv4HeaderLen:], p.Bytes[IPv4HeaderLen:length])
	f.laterLen = IPv4HeaderLen + n
	f.later[0] = 4<<4 | byte(f.laterLen/4)
	return f, ok
}

// copyOptions copies the options with the copied flag from src to dst, which
// is zero and at least as long. It returns their length, padded to whole words
// with End of Option List.
func copyOptions(dst, src []byte) (n int, ok bool) {
	for len(src) > 0 && src[0] != option4End {
		if src[0] == option4NoOp {
			src = src[1:]
			continue
		}
		if len(src) < 2 || src[1] < 2 || int(src[1]) > len(src) {
			return 0, false
		}
		o := src[:src[1]]
		if o[0]&option4Copied != 0 {
			n += copy(dst[n:], o)
		}
		src = src[len(o):]
	}
	return (n + 3) &^ 3, true
}

// Next writes the next fragment into dst and returns its length, or 0 when
// there is none left. dst must have room for mtu bytes and must not overlap
// the packet; a dst that is too short ends the fragmentation.
func (f *Fragmenter) Next(dst []byte) int {
	if f.started && len(f.payload) == 0 {
		return 0
	}
	header := f.header
	if f.started {
		header = f.later[:f.laterLen]
	}
	n, word := len(f.payload), f.word|f.more
	if len(header)+n > f.mtu {
		n, word = (f.mtu-len(header))&^(fragmentUnit-1), f.word|flagMoreFragments
	}
	total := len(header) + n
	f.started = true
	if len(dst) < total {
		f.payload = nil
		return 0
	}
	dst = dst[:total]
	copy(dst, header)
	copy(dst[len(header):], f.payload[:n])
	f.payload = f.payload[n:]
	f.word += uint16(n / fragmentUnit)

	binary.BigEndian.PutUint16(dst[2:], uint16(total))
	binary.BigEndian.PutUint16(dst[6:], word)
	binary.BigEndian.PutUint16(dst[10:], 0)
	binary.BigEndian.PutUint16(dst[10:], ^Sum(dst[:len(header)], 0))
	return total
}
