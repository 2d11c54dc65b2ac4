package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/nat/packet"
)

const (
	// MaxSnaplen keeps every packet whole: none is larger, headers of all kinds
	// included.
	MaxSnaplen = 1 << 17
	// MinRing is the smallest ring: two of the largest packets.
	MinRing = 2 * MaxSnaplen
)

// Config says what is captured.
type Config struct {
	Points Points
	// Filter chooses among the packets. Nil: all.
	Filter *Filter
	// Snaplen is how many bytes of a packet are kept at most. Zero: MaxSnaplen.
	Snaplen int
	// Ring is the memory for packets that have not been read yet, in bytes; it is
	// rounded up to a power of two.
	Ring int
}

// Capture is one capture: the packets that a Set has shown it and Next has not
// returned yet.
type Capture struct {
	points  Points
	filter  *Filter
	snaplen int
	ring    ring
	counts  [NumPoints]counts
}

// counts are those of one point.
type counts struct {
	seen, matched, lost atomic.Uint64
}

// New returns a Capture that is shown nothing yet.
func New(c Config) (*Capture, error) {
	if c.Points == 0 || c.Points >= 1<<NumPoints {
		return nil, errors.New("capture: no point to look at")
	}
	if c.Snaplen < 0 || c.Snaplen > MaxSnaplen {
		return nil, fmt.Errorf("capture: %d bytes of each packet: 0 to %d", c.Snaplen, MaxSnaplen)
	}
	if c.Ring < MinRing {
		return nil, fmt.Errorf("capture: a ring of %d bytes: at least %d", c.Ring, MinRing)
	}
	if c.Snaplen == 0 {
		c.Snaplen = MaxSnaplen
	}
	out := &Capture{points: c.Points, filter: c.Filter, snaplen: c.Snaplen}
	out.ring.init(c.Ring)
	return out, nil
}

// Link says what the bytes of a packet begin with.
type Link uint8

// Ethernet frames come from nodes, IP packets from everywhere else.
const (
	IP Link = iota
	Ethernet
)

// Packet is one packet at a point of the packet path. Its bytes belong to the caller.
type Packet struct {
	Time  time.Time
	Point Point
	// Egress: on its way to the peer. Otherwise on its way from it.
	Egress bool
	Link   Link
	// Node and VNI tell the node tunnel; empty where there is none.
	Node string
	VNI  uint32
	// Reason is why it is dropped.
	Reason string
	// Head and Body together are the packet. Head may be empty; of Ethernet it is all
	// of the header or nothing.
	Head, Body []byte
	// From and To, if valid, say that Head and Body are the payload of a UDP datagram
	// between them, whose headers are to be made up. They are of one family.
	From, To netip.AddrPort
}

// offer takes a packet if it wants it.
func (c *Capture) offer(p *Packet) {
	if !c.points.Has(p.Point) {
		return
	}
	n := &c.counts[p.Point]
	n.seen.Add(1)
	if c.filter != nil && !c.filter.matches(p) {
		return
	}
	n.matched.Add(1)
	if !c.record(p) {
		n.lost.Add(1)
	}
}

// A record in the ring is a header of recordHeaderLen bytes, the name of the node,
// the reason, and what is kept of the packet. The header, in the machine's order
// of bytes: time 8, original length 4, kept length 4, VNI 4, length of the name 1,
// of the reason 1, point 1, link and direction 1.
const (
	recordHeaderLen = 24
	maxText         = 255 // of the name and of the reason: Kubernetes has names of 253
	flagEgress      = 0x80
)

func (c *Capture) record(p *Packet) bool {
	node, reason := p.Node[:min(len(p.Node), maxText)], p.Reason[:min(len(p.Reason), maxText)]
	var outer [maxOuter]byte
	n := putOuter(&outer, p)
	length := n + len(p.Head) + len(p.Body)
	kept := min(length, c.snaplen)
	size := recordHeaderLen + len(node) + len(reason) + kept
	b, at := c.ring.reserve(size)
	if b == nil {
		return false
	}
	binary.NativeEndian.PutUint64(b, uint64(p.Time.UnixNano()))
	binary.NativeEndian.PutUint32(b[8:], uint32(length))
	binary.NativeEndian.PutUint32(b[12:], uint32(kept))
	binary.NativeEndian.PutUint32(b[16:], p.VNI)
	b[20], b[21], b[22], b[23] = byte(len(node)), byte(len(reason)), byte(p.Point), byte(p.Link)
	if p.Egress {
		b[23] |= flagEgress
	}
	b = b[recordHeaderLen:]
	b = b[copy(b, node):]
	b = b[copy(b, reason):]
	b = b[copy(b, outer[:n]):]
	b = b[copy(b, p.Head):]
	copy(b, p.Body)
	c.ring.publish(at, size)
	return true
}

// Record is a captured packet.
type Record struct {
	Time   time.Time
	Point  Point
	Egress bool
	Link   Link
	VNI    uint32
	// Node, Reason and Data are valid until the next Next.
	Node, Reason, Data []byte
	// Length is that of the whole packet, of which Data is the beginning.
	Length int
}

// Next returns the oldest packet that has not been returned yet, and false when
// there is none now. Only one goroutine may call it.
func (c *Capture) Next() (r Record, ok bool) {
	b := c.ring.next()
	if b == nil {
		return r, false
	}
	kept, node, reason := int(binary.NativeEndian.Uint32(b[12:])), int(b[20]), int(b[21])
	r = Record{
		Time:   time.Unix(0, int64(binary.NativeEndian.Uint64(b))),
		Length: int(binary.NativeEndian.Uint32(b[8:])),
		VNI:    binary.NativeEndian.Uint32(b[16:]),
		Point:  Point(b[22]),
		Link:   Link(b[23] &^ flagEgress),
		Egress: b[23]&flagEgress != 0,
	}
	b = b[recordHeaderLen:]
	r.Node, b = b[:node], b[node:]
	r.Reason, b = b[:reason], b[reason:]
	r.Data = b[:kept]
	if r.Point == Wire && kept == r.Length {
		if p, ok := packet.Parse(r.Data); ok {
			p.CompleteChecksum() // here and not on the packet path: see putOuter
		}
	}
	return r, true
}

// Pending tells whether there are packets that Next has not returned, complete or
// not.
func (c *Capture) Pending() bool { return !c.ring.empty() }

// Counts are what happened at one point.
type Counts struct {
	Seen    uint64 // packets shown
	Matched uint64 // of these, what the filter chose
	Lost    uint64 // of these, what found no room
}

// Counts returns what has happened at a point so far.
func (c *Capture) Counts(p Point) Counts {
	n := &c.counts[p]
	// In this order, so that none is larger than the one before.
	lost := n.lost.Load()
	matched := n.matched.Load()
	return Counts{Seen: n.seen.Load(), Matched: matched, Lost: lost}
}
