package tunlink

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/underlay"
)

// The way of a packet from the gateway to the node:
//
//	receive   socket -> messages -> datagrams
//	datagram  decapsulate -> tunnel -> frame -> parse -> ECN -> neighbor discovery? -> coalesce
//	deliver   vnet header -> device, payloads from where they were received

const (
	// messagesPerRead runs or datagrams are received by one system call.
	messagesPerRead = 8
	// messageStride is how far apart they lie. Not a power of two: the headers in
	// all of them would else share a few lines of the processor's cache.
	messageStride = underlay.MaxDatagram + 8 + 3*64
)

// receiver carries packets from the socket to devices. It belongs to one worker.
type receiver struct {
	bufs     [][]byte
	messages []underlay.Message
	merged   *coalescer

	ecn uint8 // of the outer header of the message at hand

	// What the last datagram was found to be: a run has one sender and, most often,
	// one head. forget forgets it.
	last    *tunnel // nil: nothing is known
	lastKey tunnelKey
	// lastHead is what a packet from last begins with; of no value without framed.
	lastHead head
	framed   bool

	// Not counted yet in what last counts.
	packets, bytes int
}

// forget makes the next datagram be looked at in full.
func (r *receiver) forget() {
	r.tally()
	r.last, r.framed = nil, false
}

// tally counts what is not counted yet: once for many packets, because the counters
// are shared.
func (r *receiver) tally() {
	if r.packets > 0 {
		r.last.count.rxPackets.Add(uint64(r.packets))
		r.last.count.rxBytes.Add(uint64(r.bytes))
		r.packets, r.bytes = 0, 0
	}
}

func newReceiver(coalesce bool) *receiver {
	r := &receiver{
		bufs:     make([][]byte, messagesPerRead),
		messages: make([]underlay.Message, messagesPerRead),
		merged:   newCoalescer(coalesce),
	}
	memory := make([]byte, messagesPerRead*messageStride)
	for i := range r.bufs {
		r.bufs[i] = memory[i*messageStride:][:underlay.MaxDatagram+8]
	}
	return r
}

// message takes a message apart into datagrams.
func (w *worker) message(s *snapshot, m *underlay.Message) {
	w.rx.ecn = m.ECN
	if m.Segment < len(m.Data) {
		if n, ok := geneve.DatagramLen(m.Data); ok && n > m.Segment { // one UDP super-segment, see underlay.Message
			w.decapsulate(s, m.Addr.Addr(), m.Data, m.Segment)
			return
		}
	}
	for b := m.Data; len(b) > 0; {
		n := min(m.Segment, len(b))
		w.decapsulate(s, m.Addr.Addr(), b[:n], 0)
		b = b[n:]
		if w.rx.merged.full() {
			w.deliver()
		}
	}
}

// decapsulate finds the tunnel of a datagram and counts what becomes of it. super is
// the size of the payloads of the UDP super-segment in it, 0 if there is none.
func (w *worker) decapsulate(s *snapshot, src netip.Addr, b []byte, super int) {
	r := w.rx
	if r.framed && len(b) > headLen && head(b) == r.lastHead && src == r.lastKey.gateway {
		if d := w.packet(r.last, b[headLen:], super); d != kept {
			r.last.drop(d, 1)
		}
		return
	}
	h, payload, err := geneve.Decode(b)
	if err != nil {
		w.ep.drops.add(DropEncapsulation, 1)
		return
	}
	if key := (tunnelKey{src, h.VNI}); r.last == nil || key != r.lastKey {
		r.forget()
		t := s.tunnels[key]
		if t == nil {
			w.ep.drops.add(DropUnknownTunnel, 1)
			return
		}
		r.last, r.lastKey = t, key
	}
	d := w.datagram(r.last, h, payload, super)
	if d != kept {
		r.last.drop(d, 1)
	}
	if r.framed = d == kept && h.Encapsulation != geneve.GeneveIP && len(payload) == len(b)-geneve.HeaderLen; r.framed {
		r.lastHead = head(b)
		r.framed = r.lastHead.carriesIP()
	}
}

// carriesIP tells whether the frame that begins with h has a packet in it.
func (h *head) carriesIP() bool {
	etherType := binary.BigEndian.Uint16(h[headLen-2:])
	return etherType == neighbor.EtherTypeIPv4 || etherType == neighbor.EtherTypeIPv6
}

// datagram takes the payload of a datagram that belongs to t.
func (w *worker) datagram(t *tunnel, h geneve.Header, payload []byte, super int) Drop {
	if h.OAM { // RFC 8926 section 3.4: a control packet is not for forwarding
		return DropControl
	}
	ip, d := w.deframe(t, h, payload)
	if d != kept {
		return d
	}
	w.noteReceived(t, h)
	if ip == nil {
		return kept
	}
	return w.packet(t, ip, super)
}

// packet takes a packet that t has brought.
func (w *worker) packet(t *tunnel, ip []byte, super int) Drop {
	p, ok := packet.Parse(ip)
	if !ok || !p.HeaderChecksumValid() {
		return DropMalformed
	}
	if !p.Decapsulate(w.rx.ecn) {
		return DropECN
	}
	if d, ok := w.discover(t, &p); ok {
		return d
	}
	w.rx.packets++
	w.rx.bytes += len(p.Bytes)
	if super > 0 || len(p.Bytes) > t.MTU {
		return w.super(t, &p, super)
	}
	w.rx.merged.add(t, &p, t.device.udpSegments())
	return kept
}

// noteReceived notes that the gateway of t was heard.
func (w *worker) noteReceived(t *tunnel, h geneve.Header) {
	t.count.lastSeen.Store(w.now)
	if e := uint32(h.Encapsulation); e != t.learned.encapsulation.Load() {
		t.learned.encapsulation.Store(e)
	}
}

// super takes a packet that is larger than the MTU: a super-segment of a kernel on
// this machine, with a checksum that is not finished. size is that of its payloads,
// 0 if not told. Anything else of that size is delivered as it is.
func (w *worker) super(t *tunnel, p *packet.Packet, size int) Drop {
	if p.Fragment != packet.Whole || p.Proto != packet.ProtoTCP && (p.Proto != packet.ProtoUDP || size == 0) {
		w.rx.merged.add(t, p, false)
		return kept
	}
	l4 := p.Transport()
	v := vnetHeader{flags: vnetNeedsChecksum, checkStart: uint16(p.TransportOffset), size: uint16(size)}
	if p.Proto == packet.ProtoTCP {
		headers := p.TransportOffset + int(l4[tcpOffset]>>4)*4
		if t.MTU <= headers || len(p.Bytes) <= headers {
			return DropMalformed
		}
		v.gsoType, v.checkOffset = tcpType(p.Version, l4[tcpFlags]), tcpChecksum
		v.headersLen, v.size = uint16(headers), uint16(t.MTU-headers)
	} else {
		v.gsoType, v.checkOffset, v.headersLen = vnetUDP, udpChecksum, uint16(p.TransportOffset+packet.UDPHeaderLen)
		if int(binary.BigEndian.Uint16(l4[udpLength:])) != len(l4) || size*maxUDPSegments < len(l4) || !t.device.udpSegments() {
			return w.splitUDP(t, p, size)
		}
	}
	it := item{packet: p.Bytes, transport: p.TransportOffset, version: p.Version, proto: p.Proto}
	pseudo := it.pseudoHeader(len(l4))
	if field := l4[v.checkOffset:]; binary.BigEndian.Uint16(field) != pseudo {
		// Finished: then it must be right, because the kernel will not look again.
		if !it.check() {
			return DropMalformed
		}
		binary.BigEndian.PutUint16(field, pseudo)
	}
	w.rx.merged.addSuper(t, p, v)
	t.count.rxSupers.Add(1)
	return kept
}

// splitUDP delivers the datagrams of a UDP super-segment one by one, to a kernel
// that takes no such thing from a device.
func (w *worker) splitUDP(t *tunnel, p *packet.Packet, size int) Drop {
	segments, ok := packet.NewUDPSegmenter(*p, size)
	if !ok {
		return DropMalformed
	}
	w.deliver() // what came before, because there is no room to keep the pieces
	for {
		n := segments.Next(w.split)
		if n == 0 {
			return kept
		}
		w.pieces = append(w.pieces[:0], w.split[:n])
		w.write(t, vnetHeader{}, w.pieces, 1)
	}
}

// deliver writes what was received to the devices.
func (w *worker) deliver() {
	w.rx.tally()
	c := w.rx.merged
	for i := range c.items {
		it := &c.items[i]
		v := it.finish()
		w.pieces = c.gather(w.pieces[:0], it)
		w.write(it.to, v, w.pieces, it.count)
	}
	c.reset()
}
