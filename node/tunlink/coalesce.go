package tunlink

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/nat/packet"
)

const (
	// maxPacket is the most that packets are put together to: what the length field
	// of IPv4 can say.
	maxPacket = 65535
	// maxUDPSegments is what every kernel that knows UDP segmentation offload
	// takes (UDP_MAX_SEGMENTS before Linux 6.9).
	maxUDPSegments = 64
	// flowBuckets is how many flows the coalescer follows at once. A run from the
	// gateway holds at most 128 packets.
	flowBuckets = 128
)

// Offsets in IP, TCP and UDP headers (RFC 791, RFC 8200, RFC 9293, RFC 768).
const (
	ip4Length, ip4ID, ip4Fragment, ip4Checksum = 2, 4, 6, 10
	ip6Length                                  = 4
	tcpSeq, tcpAck, tcpOffset, tcpFlags        = 4, 8, 12, 13
	tcpWindow, tcpChecksum, tcpUrgent          = 14, 16, 18
	udpLength, udpChecksum                     = 4, 6
)

// coalescer puts consecutive segments of a flow together, as the kernel's own GRO
// does, and keeps everything else as it is. It holds no bytes of its own: the
// packets lie where they were received, until drain.
//
// An item may grow only while it is the last of its flow, and items leave in the
// order in which they were begun. So the packets of a flow keep their order.
type coalescer struct {
	off   bool // nothing is put together
	items []item
	parts []part
	// latest is, by hash of the flow, one more than the index of the item that was
	// last begun for it; 0: none that may grow. Flows that share a bucket take it
	// from each other, which costs putting together and never order.
	latest [flowBuckets]int32
}

// item is a packet, or several of one flow put together.
type item struct {
	to     *tunnel
	packet []byte // the first one
	// transport is where its transport header starts, headers is where its
	// payload does; both 0 for what cannot be put together.
	transport, headers int
	size               int // payload of the first packet
	total              int // headers and all payloads
	count              int // packets
	nextSeq            uint32
	first, last        int32 // parts behind the first packet; one more than the index
	version, proto     uint8
	flags              uint8 // TCP flags of the first packet, and PSH and FIN of the last
	open               bool  // more may follow
	checked            bool  // the first packet's checksum is right
	sameID             bool  // the packets so far share one identification
	vnet               vnetHeader
}

// part is the payload of a packet but the first of an item.
type part struct {
	payload []byte
	next    int32 // one more than the index
}

func newCoalescer(on bool) *coalescer {
	return &coalescer{off: !on, items: make([]item, 0, 256), parts: make([]part, 0, 1024)}
}

// full tells whether there is no room for another packet without allocating.
func (c *coalescer) full() bool {
	return len(c.items) == cap(c.items) || len(c.parts) == cap(c.parts)
}

// reset forgets everything.
func (c *coalescer) reset() {
	clear(c.items) // else the buffers could not be freed
	clear(c.parts)
	c.items, c.parts = c.items[:0], c.parts[:0]
	clear(c.latest[:])
}

// add takes a packet. udp tells whether UDP datagrams may be put together.
func (c *coalescer) add(to *tunnel, p *packet.Packet, udp bool) {
	if p.Fragment != packet.Whole {
		// Its ports may be unknown, and with them its flow: nothing that comes
		// later goes in before it.
		clear(c.latest[:])
		c.items = append(c.items, item{to: to, packet: p.Bytes, total: len(p.Bytes), count: 1})
		return
	}
	if p.Proto != packet.ProtoTCP && p.Proto != packet.ProtoUDP {
		c.items = append(c.items, item{to: to, packet: p.Bytes, total: len(p.Bytes), count: 1})
		return
	}
	next := newItem(to, p)
	next.open = next.open && !c.off && (udp || p.Proto == packet.ProtoTCP)
	bucket := &c.latest[flowHash(p)]
	if *bucket > 0 {
		it := &c.items[*bucket-1]
		if it.accepts(&next) && it.check() && next.check() {
			c.append(it, &next)
			return
		}
	}
	c.items = append(c.items, next)
	*bucket = int32(len(c.items))
}

// addSuper takes a packet that is a super-segment already, with the header that
// says how to cut it.
func (c *coalescer) addSuper(to *tunnel, p *packet.Packet, h vnetHeader) {
	c.items = append(c.items, item{to: to, packet: p.Bytes, total: len(p.Bytes), count: 1, vnet: h})
	c.latest[flowHash(p)] = 0
}

// newItem returns the item that a whole TCP or UDP packet begins.
func newItem(to *tunnel, p *packet.Packet) item {
	t := p.Transport()
	it := item{
		to: to, packet: p.Bytes, transport: p.TransportOffset, total: len(p.Bytes), count: 1,
		version: p.Version, proto: p.Proto,
	}
	plain := p.TransportOffset == packet.IPv4HeaderLen && p.Version == 4 || p.TransportOffset == packet.IPv6HeaderLen && p.Version == 6
	if p.Proto == packet.ProtoTCP {
		it.flags = t[tcpFlags]
		it.headers = p.TransportOffset + int(t[tcpOffset]>>4)*4
		it.size = len(p.Bytes) - it.headers
		it.nextSeq = binary.BigEndian.Uint32(t[tcpSeq:]) + uint32(it.size)
		// Segmentation sets these on the last segment only, so none can follow.
		const last = packet.TCPPsh | packet.TCPFin
		it.open = plain && it.size > 0 && it.flags&(last|packet.TCPSyn|packet.TCPRst|packet.TCPUrg) == 0 && it.flags&packet.TCPAck != 0
		return it
	}
	it.headers = p.TransportOffset + packet.UDPHeaderLen
	it.size = len(p.Bytes) - it.headers
	// Without a checksum (zero) the kernel would add one; behind a datagram that
	// is shorter than its packet there is something else (RFC 9868).
	it.open = plain && it.size > 0 && int(binary.BigEndian.Uint16(t[udpLength:])) == len(t) && binary.BigEndian.Uint16(t[udpChecksum:]) != 0
	return it
}

// accepts tells whether next, a packet of its own, continues it. What it compares is
// all that segmentation would copy into each segment.
func (it *item) accepts(next *item) bool {
	if !it.open || it.to != next.to || it.proto != next.proto || it.transport != next.transport || it.headers != next.headers {
		return false
	}
	if next.size == 0 || next.size > it.size || it.total+next.size > maxPacket {
		return false
	}
	a, b := it.packet, next.packet
	if !it.acceptsIP(a, b) {
		return false
	}
	a, b = a[it.transport:it.headers], b[it.transport:it.headers]
	if binary.NativeEndian.Uint32(a) != binary.NativeEndian.Uint32(b) { // ports
		return false
	}
	if it.proto == packet.ProtoUDP {
		return it.count < maxUDPSegments &&
			binary.BigEndian.Uint16(b[udpLength:]) == uint16(packet.UDPHeaderLen+next.size) &&
			binary.BigEndian.Uint16(b[udpChecksum:]) != 0
	}
	if binary.BigEndian.Uint32(b[tcpSeq:]) != it.nextSeq ||
		binary.NativeEndian.Uint32(a[tcpAck:]) != binary.NativeEndian.Uint32(b[tcpAck:]) ||
		a[tcpOffset] != b[tcpOffset] ||
		binary.NativeEndian.Uint16(a[tcpWindow:]) != binary.NativeEndian.Uint16(b[tcpWindow:]) ||
		binary.NativeEndian.Uint16(a[tcpUrgent:]) != binary.NativeEndian.Uint16(b[tcpUrgent:]) {
		return false
	}
	// CWR stands on the first segment of all, PSH and FIN on the last.
	if (b[tcpFlags]^it.flags&^packet.TCPCwr)&^(packet.TCPPsh|packet.TCPFin) != 0 {
		return false
	}
	return string(a[packet.TCPHeaderLen:]) == string(b[packet.TCPHeaderLen:]) // options
}

// acceptsIP compares the IP headers a of the first and b of the next packet.
func (it *item) acceptsIP(a, b []byte) bool {
	if it.version == 6 {
		// Version, traffic class, flow label; next header and hop limit; addresses.
		return binary.NativeEndian.Uint32(a) == binary.NativeEndian.Uint32(b) && string(a[6:40]) == string(b[6:40])
	}
	// Version, header length, DSCP and ECN; flags; TTL and protocol; addresses.
	if binary.NativeEndian.Uint16(a) != binary.NativeEndian.Uint16(b) ||
		binary.NativeEndian.Uint32(a[ip4Fragment:]) != binary.NativeEndian.Uint32(b[ip4Fragment:]) ||
		binary.NativeEndian.Uint64(a[12:]) != binary.NativeEndian.Uint64(b[12:]) {
		return false
	}
	// Segmentation counts identifications up. With the DF bit they mean
	// nothing (RFC 6864 section 4.1), and some senders use one for all.
	step := binary.BigEndian.Uint16(b[ip4ID:]) - binary.BigEndian.Uint16(a[ip4ID:])
	if int(step) == it.count {
		return it.count == 1 || !it.sameID
	}
	return step == 0 && a[ip4Fragment]&0x40 != 0 && (it.count == 1 || it.sameID)
}

// check verifies the checksum of the item's first packet, once.
func (it *item) check() bool {
	if !it.checked {
		it.checked = packet.Sum(it.packet[it.transport:], it.pseudoHeader(len(it.packet)-it.transport)) == 0xffff
		it.open = it.open && it.checked // what is wrong stays alone, and wrong
	}
	return it.checked
}

// pseudoHeader sums the pseudo-header of length bytes of transport.
func (it *item) pseudoHeader(length int) uint16 {
	sum := packet.Fold(uint64(it.proto) + uint64(length))
	if it.version == 4 {
		return packet.Sum(it.packet[12:20], sum)
	}
	return packet.Sum(it.packet[8:40], sum)
}

// append makes next, which it accepts, a part of it.
func (c *coalescer) append(it, next *item) {
	if it.version == 4 && it.count == 1 {
		it.sameID = binary.NativeEndian.Uint16(it.packet[ip4ID:]) == binary.NativeEndian.Uint16(next.packet[ip4ID:])
	}
	c.parts = append(c.parts, part{payload: next.packet[next.headers:]})
	at := int32(len(c.parts))
	if it.last == 0 {
		it.first = at
	} else {
		c.parts[it.last-1].next = at
	}
	it.last = at
	it.count++
	it.total += next.size
	it.nextSeq = next.nextSeq
	const last = packet.TCPPsh | packet.TCPFin
	if it.proto == packet.ProtoTCP {
		it.flags |= next.flags & last
	}
	it.open = next.size == it.size && (it.proto == packet.ProtoUDP || next.flags&last == 0)
}

// finish completes the headers of an item that is to leave and returns what to
// say about it to the device.
func (it *item) finish() vnetHeader {
	if it.count == 1 {
		return it.finishSingle()
	}
	b, t := it.packet, it.packet[it.transport:]
	if it.version == 4 {
		binary.BigEndian.PutUint16(b[ip4Length:], uint16(it.total))
		binary.BigEndian.PutUint16(b[ip4Checksum:], 0)
		binary.BigEndian.PutUint16(b[ip4Checksum:], ^packet.Sum(b[:it.transport], 0))
	} else {
		binary.BigEndian.PutUint16(b[ip6Length:], uint16(it.total-packet.IPv6HeaderLen))
	}
	length := it.total - it.transport
	h := vnetHeader{
		flags: vnetNeedsChecksum, headersLen: uint16(it.headers), size: uint16(it.size),
		checkStart: uint16(it.transport), checkOffset: udpChecksum, gsoType: vnetUDP,
	}
	if it.proto == packet.ProtoUDP {
		binary.BigEndian.PutUint16(t[udpLength:], uint16(length))
	} else {
		t[tcpFlags] = it.flags
		h.checkOffset, h.gsoType = tcpChecksum, tcpType(it.version, it.flags)
	}
	binary.BigEndian.PutUint16(t[h.checkOffset:], it.pseudoHeader(length))
	return h
}

// finishSingle returns what to say about an item of one packet. One that comes from
// a kernel on this machine may have an unfinished checksum (see
// packet.CompleteChecksum); who gets it can go on leaving it so.
func (it *item) finishSingle() vnetHeader {
	if it.headers == 0 || it.vnet != (vnetHeader{}) || it.checked {
		return it.vnet
	}
	t, at := it.packet[it.transport:], udpChecksum
	if it.proto == packet.ProtoTCP {
		at = tcpChecksum
	} else if int(binary.BigEndian.Uint16(t[udpLength:])) != len(t) {
		return vnetHeader{} // the sum would end elsewhere
	}
	if binary.BigEndian.Uint16(t[at:]) != it.pseudoHeader(len(t)) {
		return vnetHeader{}
	}
	return vnetHeader{flags: vnetNeedsChecksum, checkStart: uint16(it.transport), checkOffset: uint16(at)}
}

// tcpType is the type of a TCP super-segment.
func tcpType(version, flags uint8) uint8 {
	kind := uint8(vnetTCP4)
	if version == 6 {
		kind = vnetTCP6
	}
	if flags&packet.TCPCwr != 0 {
		kind |= vnetECN // only the first segment is to keep it (RFC 3168 section 6.1.2)
	}
	return kind
}

// gather appends the pieces of an item to b, in order.
func (c *coalescer) gather(b [][]byte, it *item) [][]byte {
	b = append(b, it.packet)
	for at := it.first; at != 0; at = c.parts[at-1].next {
		b = append(b, c.parts[at-1].payload)
	}
	return b
}

// flowHash is the bucket of a packet with ports.
func flowHash(p *packet.Packet) int {
	b := p.Bytes
	ports := binary.NativeEndian.Uint32(b[p.TransportOffset:])
	var addrs uint32
	if p.Version == 4 {
		addrs = binary.NativeEndian.Uint32(b[12:]) ^ binary.NativeEndian.Uint32(b[16:])
	} else {
		addrs = binary.NativeEndian.Uint32(b[20:]) ^ binary.NativeEndian.Uint32(b[36:])
	}
	const golden = 0x9e3779b1 // multiplicative hashing: the high bits depend on all
	return int((ports*golden ^ addrs) * golden >> 25)
}
