package limit

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
)

// egress is the thread towards the peer:
//
//	receive -> decapsulate -> translate -> cut -> seal -> send
//
// A packet's bytes are moved by the kernel's copy out of the socket, by the cipher
// from there to where they are sent from, and by the kernel's copy into the other
// socket.
type egress struct {
	*Gateway
	in    *inbox
	out   *outbox
	arena []byte // where messages to the peer are made
	used  int
	key   *sendKey

	scratch [256]byte // see copySegments
}

// arenaLen holds what is made of one batch: it is sent when it is full.
const arenaLen = 2 * batchLen

func newEgress(g *Gateway) *egress {
	return &egress{
		Gateway: g, in: newInbox(g.node), out: newOutbox(g.tunnel, g.cfg.Peer),
		arena: make([]byte, arenaLen), key: newSendKey(g.cfg.SendKey),
	}
}

func (e *egress) run() error {
	for {
		n, err := e.in.receive()
		if err != nil {
			return err
		}
		for i := range n {
			if from := e.in.from(i); from.Addr() != e.cfg.Node.Addr() {
				e.drop()
				continue
			}
			e.message(e.in.message(i))
		}
		e.flush()
	}
}

func (e *egress) flush() {
	e.out.flush()
	e.used = 0
	if e.out.errors > 0 {
		e.Stats.Refused.Add(uint64(e.out.errors))
		e.out.errors = 0
	}
}

func (e *egress) drop() { e.Stats.DroppedEgress.Add(1) }

// message takes what the kernel delivers in one piece: a datagram, or a run of
// them. One datagram with a super-segment of UDP in it looks like a run of
// datagrams as long as its payloads: the length of the first packet tells.
func (e *egress) message(buf []byte, size, segment int) {
	rest := buf[headroom : headroom+size]
	cut := 0
	if segment < size && size >= headLen+4 && headLen+int(binary.BigEndian.Uint16(rest[headLen+2:])) == size {
		cut, segment = segment, size
	}
	for at := 0; at < size; at += segment {
		e.datagram(buf[headroom+at:][:min(segment, size-at)], cut)
	}
}

// datagram carries one datagram of the node; cut is the size of the payloads in a
// super-segment of UDP. Behind the datagram there is room for padding.
func (e *egress) datagram(b []byte, cut int) {
	h, payload, err := geneve.Decode(b)
	if err != nil || h.VNI != e.cfg.VNI {
		e.drop()
		return
	}
	frame, ok := neighbor.DecodeFrame(payload)
	if !ok {
		e.drop()
		return
	}
	if frame.EtherType == neighbor.EtherTypeARP {
		e.answer(h.Encapsulation, frame.Payload)
		return
	}
	p, ok := packet.Parse(frame.Payload)
	if !ok || p.HopLimit() <= 1 {
		e.drop()
		return
	}
	e.learn(frame.Src, h.Encapsulation)
	if len(p.Bytes) <= e.cfg.MTU {
		p.CompleteChecksum()
	}
	p.DecrementHopLimit()
	if !e.table.Egress(&p) {
		e.drop()
		return
	}
	nat.ClampMSS(&p, e.cfg.MTU)
	switch {
	case len(p.Bytes) <= e.cfg.MTU:
		e.seal(p.Bytes)
	case cut > 0:
		s, ok := packet.NewUDPSegmenter(p, cut)
		e.segments(p.Bytes, s, ok)
	default:
		s, ok := packet.NewSegmenter(p, e.cfg.MTU)
		e.segments(p.Bytes, s, ok)
	}
}

// segments cuts a super-segment where it lies. The headers of each packet are
// written before its payload, over the end of the one before, which is sealed by then.
func (e *egress) segments(b []byte, s packet.Segmenter, ok bool) {
	if !ok {
		e.drop()
		return
	}
	// The first packet's headers stand where they belong.
	n, payload := s.NextHeaders(b)
	size := len(payload)
	if size < n { // the second packet's headers would be written over what they are copied from
		e.copySegments(b[:n+size], s)
		return
	}
	e.seal(b[:n+size])
	for at := size; at+n < len(b); at += size {
		n, payload = s.NextHeaders(b[at:])
		e.seal(b[at : at+n+len(payload)])
	}
}

// copySegments is segments for tiny payloads; first is the first packet.
func (e *egress) copySegments(first []byte, s packet.Segmenter) {
	e.seal(first)
	for {
		n := s.Next(e.scratch[:])
		if n == 0 {
			return
		}
		e.seal(e.scratch[:n])
	}
}

// seal makes the message with one packet. Behind the packet there is room for
// padding, which is what it was before afterwards.
func (e *egress) seal(b []byte) {
	padded := b[:paddedLen(len(b), e.cfg.MTU)]
	var saved [padding]byte
	behind := padded[len(b):]
	copy(saved[:], behind)
	clear(behind)
	if len(e.arena)-e.used < len(padded)+overhead {
		e.flush()
	}
	n := e.key.seal(e.arena[e.used:], padded)
	copy(behind, saved[:])
	e.out.add(e.arena[e.used : e.used+n])
	e.used += n
}
