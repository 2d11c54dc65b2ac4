package tunlink

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/underlay"
)

// The way of a packet from the node to the gateway:
//
//	drain      device -> transmitter.space, until it is empty or its turn is over
//	take       vnet header -> neighbor known? -> send, or cut the super-segment
//	send       complete the checksum -> headers in front, in place, the ECN field outside
//	cut        headers per segment -> payload from where it was read
//	transmit   runs -> socket

const (
	// readLen is the most that one read of a device brings: a vnet header and the
	// largest IPv6 packet. The head is written over the vnet header, before the
	// packet.
	readLen = headLen + packet.IPv6HeaderLen + 65535
	// arenaLen is what a transmitter reads before it sends: enough to make runs
	// across super-segments, and little enough to stay in a processor's cache.
	arenaLen = 4 * readLen
	// maxDatagrams and headsLen bound what is sent together.
	maxDatagrams = 256
	headsLen     = maxDatagrams * 128
	// framesLen is room for answers of neighbor discovery.
	framesLen = 8 << 10
)

// sender is the socket. *underlay.Conn implements it.
type sender interface {
	WriteBatch(ds []underlay.Datagram) (sent int, err error)
}

// transmitter carries packets from devices to the socket. It belongs to one worker.
type transmitter struct {
	conn      sender // nil: there is none
	datagrams []underlay.Datagram
	arena     []byte // what was read; in use up to used
	used      int
	heads     []byte // headers of segments; in use up to usedHeads
	usedHeads int
	frames    []byte // answers; in use up to usedFrame
	usedFrame int
}

func newTransmitter() *transmitter {
	return &transmitter{
		datagrams: make([]underlay.Datagram, 0, maxDatagrams),
		arena:     make([]byte, arenaLen),
		heads:     make([]byte, headsLen),
		frames:    make([]byte, framesLen),
	}
}

// space is where the next packet is to be read to: vnet header first. keep says how
// much was read.
func (x *transmitter) space() []byte {
	if len(x.arena)-x.used < readLen {
		x.flush()
	}
	return x.arena[x.used+headLen-vnetLen:][:readLen-(headLen-vnetLen)]
}

// take sends the packet of n bytes that was read, with its vnet header, into space.
func (x *transmitter) take(t *tunnel, n int, now int64) {
	at := x.used
	b := x.arena[at : at+headLen-vnetLen+n]
	x.used += (len(b) + 63) &^ 63 // the next packet begins on a cache line of its own
	if n < vnetLen+packet.IPv4HeaderLen {
		t.drop(DropMalformed, 1)
		return
	}
	h := t.learned.head.Load()
	if h == nil {
		switch held, resolved := t.hold(b[headLen-vnetLen:], now); {
		case held:
			return
		case !resolved:
			t.drop(DropUnresolved, 1)
			return
		}
		h = t.learned.head.Load()
	}
	if d := x.packet(t, h, b); d != kept {
		t.drop(d, 1)
	}
}

// release sends a packet that has waited for the gateway's address.
func (x *transmitter) release(t *tunnel, b []byte, now int64) {
	x.take(t, copy(x.space(), b), now)
}

// packet sends the packet that stands in b behind its vnet header, with room for the
// head h in front.
func (x *transmitter) packet(t *tunnel, h *head, b []byte) Drop {
	vnet, ip := decodeVnet(b[headLen-vnetLen:]), b[headLen:]
	etherType := neighbor.EtherTypeIPv4
	switch ip[0] >> 4 {
	case 4:
		if ip[16]&0xf0 == 0xe0 {
			return DropMulticast
		}
	case 6:
		if len(ip) < packet.IPv6HeaderLen {
			return DropMalformed
		}
		if ip[24] == 0xff {
			return DropMulticast
		}
		etherType = neighbor.EtherTypeIPv6
	default:
		return DropMalformed
	}
	copy(b, h[:])
	binary.BigEndian.PutUint16(b[headLen-2:], etherType)
	if vnet.gsoType != vnetNone {
		return x.cut(t, vnet, b)
	}
	if vnet.flags&vnetNeedsChecksum != 0 && !completeChecksum(ip, int(vnet.checkStart), int(vnet.checkOffset)) {
		return DropMalformed
	}
	x.send(underlay.Datagram{Addr: t.remote, ECN: packet.ECN(ip), Body: b})
	t.count.txPackets.Add(1)
	t.count.txBytes.Add(uint64(len(ip)))
	return kept
}

// completeChecksum finishes a checksum over b[start:], whose field at start+offset
// holds the sum of the pseudo-header.
func completeChecksum(b []byte, start, offset int) bool {
	at := start + offset
	if start < packet.IPv4HeaderLen || at+2 > len(b) {
		return false
	}
	check := ^packet.Sum(b[start:], 0)
	if check == 0 && offset == udpChecksum {
		check = 0xffff // RFC 768: zero would mean that there is none
	}
	binary.BigEndian.PutUint16(b[at:], check)
	return true
}

// cut sends the segments of the super-segment that stands in b behind its head. The
// headers of the first are completed where they stand, so that head, headers and
// payload are one piece; the others get theirs in x.heads.
func (x *transmitter) cut(t *tunnel, vnet vnetHeader, b []byte) Drop {
	segments, ok := newSegmenter(vnet, b[headLen:])
	if !ok {
		return DropMalformed
	}
	ecn := packet.ECN(b[headLen:])
	n, payload := segments.NextHeaders(b[headLen:])
	first := headLen + n + len(payload)
	x.send(underlay.Datagram{Addr: t.remote, ECN: ecn, Body: b[:first]})
	packets, bytes := 1, first-headLen
	for {
		space := x.headSpace(headLen + n)
		_, payload := segments.NextHeaders(space[headLen:])
		if len(payload) == 0 {
			break
		}
		copy(space, b[:headLen])
		x.usedHeads += headLen + n
		x.send(underlay.Datagram{Addr: t.remote, ECN: ecn, Head: space, Body: payload})
		packets++
		bytes += n + len(payload)
	}
	t.count.txPackets.Add(uint64(packets))
	t.count.txBytes.Add(uint64(bytes))
	t.count.txSupers.Add(1)
	return kept
}

// newSegmenter prepares to cut a super-segment of the kernel as its vnet header says.
func newSegmenter(vnet vnetHeader, ip []byte) (packet.Segmenter, bool) {
	p, ok := packet.Parse(ip)
	if !ok || vnet.size == 0 || len(p.Bytes) != len(ip) {
		return packet.Segmenter{}, false
	}
	switch vnet.gsoType & vnetTypes {
	case vnetTCP4, vnetTCP6:
		if p.Proto != packet.ProtoTCP || p.Fragment != packet.Whole {
			return packet.Segmenter{}, false
		}
		headers := p.TransportOffset + int(p.Transport()[tcpOffset]>>4)*4
		return packet.NewSegmenter(p, headers+int(vnet.size))
	case vnetUDP:
		return packet.NewUDPSegmenter(p, int(vnet.size))
	}
	return packet.Segmenter{}, false
}

// headSpace returns n bytes for headers, which send makes use of.
func (x *transmitter) headSpace(n int) []byte {
	if len(x.heads)-x.usedHeads < n {
		x.transmit()
	}
	return x.heads[x.usedHeads:][:n:n]
}

// frame sends a frame with n bytes of payload, which the caller fills in before
// anything else is sent.
func (x *transmitter) frame(t *tunnel, dst neighbor.MAC, etherType uint16, n int) []byte {
	if len(x.frames)-x.usedFrame < headLen+n || len(x.datagrams)+1 == cap(x.datagrams) {
		x.transmit() // now and not in send: there is nothing in the frame yet
	}
	b := x.frames[x.usedFrame:][:headLen+n]
	x.usedFrame += len(b)
	geneve.PutHeader(b, geneve.Geneve, t.VNI, geneve.ProtocolEthernet)
	neighbor.PutEthernet(b[geneve.HeaderLen:], dst, t.mac, etherType)
	x.send(underlay.Datagram{Addr: t.remote, Body: b})
	return b[headLen:]
}

// send adds a datagram. Its bytes must stay as they are until transmit.
func (x *transmitter) send(d underlay.Datagram) {
	x.datagrams = append(x.datagrams, d)
	if len(x.datagrams) == cap(x.datagrams) {
		x.transmit()
	}
}

// flush sends what was collected and takes back all space.
func (x *transmitter) flush() {
	x.transmit()
	x.used = 0
}

// transmit sends what was collected. What the kernel refuses is counted by the
// socket: there is nobody to tell.
func (x *transmitter) transmit() {
	if len(x.datagrams) > 0 && x.conn != nil {
		_, _ = x.conn.WriteBatch(x.datagrams)
	}
	clear(x.datagrams)
	x.datagrams, x.usedHeads, x.usedFrame = x.datagrams[:0], 0, 0
}
