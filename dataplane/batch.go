package dataplane

import (
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/underlay"
)

// Who owns which bytes:
//
//   - nodeReader's buffers belong to the goroutine in ReadPackets, and each loop has
//     a nodeReader. A datagram is valid until the next read, which happens only when all of it, the
//     rest of a super-segment included, has been handed on.
//   - The buffers passed to ReadPackets and WritePackets belong to the tunnel.
//     ReadPackets copies into them; WritePackets changes them in place and
//     lends them to nodeWriter until flush, before it returns.
//   - nodeWriter's arena belongs to the writer, from frame or space to flush.
//     There is one writer for each goroutine that sends to nodes, so none of
//     them needs a lock.

const (
	// maxDatagram is the largest UDP payload; a node's kernel hands over
	// super-segments of up to 64 KiB in one datagram.
	maxDatagram = 65535
	// readBatch datagrams are received at most per system call. A super-segment
	// fills a third of the tunnel's batch of 128 by itself; more than this
	// only costs cache.
	readBatch = 32
	// headLen is the room for one encapsulation header: Geneve or VXLAN, and
	// Ethernet.
	headLen = geneve.HeaderLen + neighbor.EthernetHeaderLen
	// writeBatch datagrams are collected before they are sent: a batch of the
	// tunnel and some answers.
	writeBatch = 256
	// arenaLen bounds what a writer builds itself between two flushes:
	// fragments of at least two packets of the largest size.
	arenaLen = 4 * maxDatagram
)

// nodeReader holds datagrams received from the nodes until the tunnel has room
// for what they carry.
type nodeReader struct {
	bufs     [][]byte
	messages []underlay.Message
	next, n  int // messages next..n-1 are still to be looked at
	// run is what is left of the message before next.
	run underlay.Message

	// locals are addresses of ours that nodes send to, each kept once, so that learning
	// one allocates nothing.
	locals []*netip.Addr

	// What is left of the last datagram: a super-segment or a packet to fragment
	// that did not fit.
	cutting  cutting
	segments packet.Segmenter
	frags    packet.Fragmenter
}

// maxLocals bounds the addresses that are kept. A gateway has one or two.
const maxLocals = 16

// local returns a as it is kept, nil if it is not valid.
func (r *nodeReader) local(a netip.Addr) *netip.Addr {
	if !a.IsValid() {
		return nil
	}
	for _, l := range r.locals {
		if *l == a {
			return l
		}
	}
	if len(r.locals) == maxLocals {
		clear(r.locals)
		r.locals = r.locals[:0]
	}
	kept := a
	r.locals = append(r.locals, &kept)
	return &kept
}

type cutting uint8

const (
	cutNothing cutting = iota
	cutSegments
	cutFragments
)

func newNodeReader() nodeReader {
	r := nodeReader{
		bufs:     make([][]byte, readBatch),
		messages: make([]underlay.Message, readBatch),
	}
	for i := range r.bufs {
		r.bufs[i] = make([]byte, maxDatagram)
	}
	return r
}

// datagram is what a node sent in one piece.
type datagram struct {
	bytes []byte
	from  underlay.Origin
	// payloads is the size of the payloads of the UDP super-segment in it, 0 if there
	// is none.
	payloads int
}

// nextDatagram takes the next datagram out of the messages at hand; ok is false
// when all have been looked at.
//
// A message that has pieces is a run of datagrams, which the sender or a network
// card put together, or one with a UDP super-segment in it, from a kernel on this
// machine: the IP packet in it is then longer than a piece. No run looks like
// that unless a node lies: a kernel drops a packet that is shorter than its header
// says before it gets to a tunnel, whichever pod made it.
func (r *nodeReader) nextDatagram() (d datagram, ok bool) {
	if len(r.run.Data) == 0 {
		if r.next == r.n {
			return d, false
		}
		r.run = r.messages[r.next]
		r.next++
		if m := &r.run; m.Segment < len(m.Data) {
			if n, ok := geneve.DatagramLen(m.Data); ok && n > m.Segment {
				d = datagram{m.Data, m.Origin, m.Segment}
				m.Data = nil
				return d, true
			}
		}
	}
	m := &r.run
	n := min(m.Segment, len(m.Data))
	d = datagram{bytes: m.Data[:n], from: m.Origin}
	m.Data = m.Data[n:]
	return d, true
}

// tunnelBatch are the tunnel's buffers that a ReadPackets call fills.
type tunnelBatch struct {
	bufs   [][]byte
	sizes  []int
	offset int // headroom that WireGuard's header needs
	n      int
}

func (b *tunnelBatch) full() bool { return b.n == len(b.bufs) }

// slot is where the next packet goes.
func (b *tunnelBatch) slot() []byte { return b.bufs[b.n][b.offset:] }

// add takes the packet of size bytes that stands in slot.
func (b *tunnelBatch) add(size int) {
	b.sizes[b.n] = size
	b.n++
}

// nodeWriter collects packets for nodes and sends them together, so that runs
// of equal size leave in one system call.
type nodeWriter struct {
	write        func([]underlay.Datagram) (int, error)
	captureBatch func() (captureBatch, bool) // Forwarder.captureBatch
	loop         int                         // in nodeState.sent
	datagrams    []underlay.Datagram
	heads        [][headLen]byte
	arena        []byte // unused rest
	memory       []byte // the whole arena
	sent         burst
}

func newNodeWriter(f *Forwarder, loop int, write func([]underlay.Datagram) (int, error)) *nodeWriter {
	w := &nodeWriter{
		write:        write,
		captureBatch: f.captureBatch,
		loop:         loop,
		datagrams:    make([]underlay.Datagram, 0, writeBatch),
		heads:        make([][headLen]byte, writeBatch),
		memory:       make([]byte, arenaLen),
	}
	w.arena = w.memory
	return w
}

// send adds one IP packet for the node. The bytes must stay as they are until
// flush.
func (w *nodeWriter) send(t *nodeTunnel, ip []byte, v6 bool) Verdict {
	mac := t.state.mac.Load()
	if mac == 0 && !t.resolved() {
		return DropNoNeighbor
	}
	etherType := neighbor.EtherTypeIPv4
	if v6 {
		etherType = neighbor.EtherTypeIPv6
	}
	// RFC 6040 section 4.1, normal mode: nodes' kernels know what to do with it.
	w.encapsulate(t, t.encapsulation(), macOf(mac), etherType, ip, packet.ECN(ip))
	return Forwarded
}

// frame adds a frame of n payload bytes, which the caller fills in.
func (w *nodeWriter) frame(t *nodeTunnel, e geneve.Encapsulation, dst neighbor.MAC, etherType uint16, n int) []byte {
	b := w.space(n)
	w.encapsulate(t, e, dst, etherType, b, packet.NotECT)
	return b
}

// space returns n bytes that live until flush. It flushes itself when the
// arena is used up.
func (w *nodeWriter) space(n int) []byte {
	if n > len(w.arena) {
		w.flush()
	}
	b := w.arena[:n:n]
	w.arena = w.arena[n:]
	return b
}

// encapsulate adds body behind the headers of e, with an ECN field outside.
func (w *nodeWriter) encapsulate(t *nodeTunnel, e geneve.Encapsulation, dst neighbor.MAC, etherType uint16, body []byte, ecn uint8) {
	if len(w.datagrams) == cap(w.datagrams) {
		w.transmit()
	}
	head := w.heads[len(w.datagrams)][:]
	if e == geneve.GeneveIP {
		geneve.PutHeader(head, e, t.vni, etherType)
		head = head[:geneve.HeaderLen]
	} else {
		geneve.PutHeader(head, e, t.vni, geneve.ProtocolEthernet)
		neighbor.PutEthernet(head[geneve.HeaderLen:], dst, t.mac, etherType)
	}
	w.datagrams = append(w.datagrams, underlay.Datagram{
		Addr: t.remote(), Local: t.local(), ECN: ecn, Head: head, Body: body,
	})
	w.sent.add(&t.state.sent[w.loop].traffic, len(body))
}

// flush sends what was collected and takes back all space.
func (w *nodeWriter) flush() {
	w.transmit()
	w.arena = w.memory
}

// transmit sends what was collected. What the kernel refuses is counted by the
// socket: there is nobody to tell.
func (w *nodeWriter) transmit() {
	if len(w.datagrams) > 0 {
		if l, on := w.captureBatch(); on {
			l.departing(w.datagrams)
		}
		w.sent.end()
		_, _ = w.write(w.datagrams)
		w.datagrams = w.datagrams[:0]
	}
}
