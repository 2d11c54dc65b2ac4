package pcapng

import "encoding/binary"

// Types of blocks.
const (
	typeSection    = 0x0A0D0D0A
	typeInterface  = 1
	typeStatistics = 5
	typePacket     = 6 // Enhanced Packet Block
)

// Options that blocks may end with. A code means something in one type of block only,
// but for the first two.
const (
	optEnd     = 0
	optComment = 1

	optApplication = 4 // section

	optName        = 2 // interface
	optDescription = 3
	optResolution  = 9
	optFilter      = 11

	optFlags = 2 // packet

	optStart    = 2 // statistics
	optStop     = 3
	optReceived = 4
	optDropped  = 5
	optAccepted = 6
)

// LinkType says what packets begin with.
type LinkType uint16

// The link types in use (tcpdump.org/linktypes.html).
const (
	Ethernet LinkType = 1
	RawIP    LinkType = 101
)

// Direction of a packet.
type Direction uint32

// The directions, as they stand in a packet's flags.
const (
	Inbound  Direction = 1
	Outbound Direction = 2
)

// Interface describes where packets were captured. Interfaces are numbered from
// zero in the order of their blocks.
type Interface struct {
	Name, Description string
	Link              LinkType
	Snaplen           uint32 // 0: no limit
	Filter            string
}

// Packet is one captured packet.
type Packet struct {
	Interface uint32
	Time      int64  // nanoseconds since 1970
	Data      []byte // the beginning of the packet
	Length    uint32 // of the whole packet
	Direction Direction
	Comment   string
}

// Statistics are about one interface, up to a moment.
type Statistics struct {
	Interface uint32
	Time      int64 // nanoseconds since 1970, as Start and Stop
	Start     int64
	Stop      int64 // 0: it goes on
	// Received counts the packets that passed, Accepted those of them that the
	// filter chose, and Dropped those of these that were not captured for want of
	// room.
	Received, Accepted, Dropped uint64
	Comment                     string
}

// AppendSection appends the header that a file begins with.
func AppendSection(b []byte, application, comment string) []byte {
	b, at := begin(b, typeSection)
	b = le.AppendUint32(b, 0x1A2B3C4D) // tells the order of bytes
	b = le.AppendUint16(b, 1)          // version 1.0
	b = le.AppendUint16(b, 0)
	b = le.AppendUint64(b, 1<<64-1) // the length of the section is not known
	b = appendText(b, optApplication, application)
	b = appendText(b, optComment, comment)
	return end(appendOption(b, optEnd), at)
}

// AppendInterface appends the description of an interface.
func AppendInterface(b []byte, i Interface) []byte {
	b, at := begin(b, typeInterface)
	b = le.AppendUint16(b, uint16(i.Link))
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, i.Snaplen)
	b = appendText(b, optName, i.Name)
	b = appendText(b, optDescription, i.Description)
	b = appendOption(b, optResolution, 9) // 10^-9 s
	if i.Filter != "" {
		const expression = 0 // in the language of tcpdump
		b = appendText(b, optFilter, string(rune(expression))+i.Filter)
	}
	return end(appendOption(b, optEnd), at)
}

// AppendPacket appends a packet.
func AppendPacket(b []byte, p *Packet) []byte {
	b, at := begin(b, typePacket)
	b = le.AppendUint32(b, p.Interface)
	b = appendTime(b, p.Time)
	b = le.AppendUint32(b, uint32(len(p.Data)))
	b = le.AppendUint32(b, p.Length)
	b = pad(append(b, p.Data...), len(p.Data))
	b = le.AppendUint16(b, optFlags)
	b = le.AppendUint16(b, 4)
	b = le.AppendUint32(b, uint32(p.Direction))
	b = appendText(b, optComment, p.Comment)
	return end(appendOption(b, optEnd), at)
}

// AppendStatistics appends statistics.
func AppendStatistics(b []byte, s Statistics) []byte {
	b, at := begin(b, typeStatistics)
	b = le.AppendUint32(b, s.Interface)
	b = appendTime(b, s.Time)
	b = appendTimeOption(b, optStart, s.Start)
	if s.Stop != 0 {
		b = appendTimeOption(b, optStop, s.Stop)
	}
	for _, o := range []struct {
		code  uint16
		value uint64
	}{{optReceived, s.Received}, {optDropped, s.Dropped}, {optAccepted, s.Accepted}} {
		b = appendOption(b, o.code, le.AppendUint64(nil, o.value)...)
	}
	b = appendText(b, optComment, s.Comment)
	return end(appendOption(b, optEnd), at)
}

// le is the order of bytes in our files.
var le = binary.LittleEndian

// begin starts a block and tells where it is.
func begin(b []byte, kind uint32) (block []byte, at int) {
	at = len(b)
	b = le.AppendUint32(b, kind)
	return le.AppendUint32(b, 0), at
}

// end finishes the block that began at a place.
func end(b []byte, at int) []byte {
	n := uint32(len(b) - at + 4)
	le.PutUint32(b[at+4:], n)
	return le.AppendUint32(b, n)
}

func pad(b []byte, n int) []byte {
	var zeros [3]byte
	return append(b, zeros[:-n&3]...)
}

func appendOption(b []byte, code uint16, value ...byte) []byte {
	b = le.AppendUint16(b, code)
	b = le.AppendUint16(b, uint16(len(value)))
	return pad(append(b, value...), len(value))
}

// maxText is the longest value of an option.
const maxText = 1<<16 - 1

func appendText(b []byte, code uint16, text string) []byte {
	if text == "" {
		return b
	}
	text = text[:min(len(text), maxText)]
	b = le.AppendUint16(b, code)
	b = le.AppendUint16(b, uint16(len(text)))
	return pad(append(b, text...), len(text))
}

// appendTime appends a time in the two halves that blocks have, the upper one first.
func appendTime(b []byte, ns int64) []byte {
	b = le.AppendUint32(b, uint32(uint64(ns)>>32))
	return le.AppendUint32(b, uint32(ns))
}

func appendTimeOption(b []byte, code uint16, ns int64) []byte {
	b = le.AppendUint16(b, code)
	b = le.AppendUint16(b, 8)
	return appendTime(b, ns)
}
