package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/sluice-net/sluice/underlay"
)

// Pause after an error of the socket.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// inbound is the way of packets from the peer that come to one socket. Several receivers work
// on it, each of which carries a batch all the way, so that packets stay on one processor:
//
//	read    one at a time
//	open    at the same time as others
//	accept  in order: replay filters, endpoint, timers, handshakes that are passed on
//	write   translated at the same time as others, sent in order
//
// The order is that in which the batches were read.
type inbound struct {
	*bind
	socket *openSocket
	// reading has the right to read in its slot, unless somebody has taken it; never closed.
	reading chan struct{}
	idle    atomic.Int32 // how many wait for it

	// Of who reads.
	batches uint64        // that were read
	pause   time.Duration // after the next error

	accepting *order
	// Of whose turn it is to accept.
	sessions device.Inbound
	sources  sourceCache
	quotas   quotas

	writing *order
}

func newInbound(b *bind, s *openSocket) *inbound {
	in := &inbound{bind: b, socket: s, reading: make(chan struct{}, 1), pause: firstPause, accepting: newOrder(), writing: newOrder()}
	in.reading <- struct{}{}
	return in
}

// run receives until the socket is closed.
func (in *inbound) run(dev *device.Device) {
	var receivers sync.WaitGroup
	for _, w := range in.writers {
		receivers.Go(func() { newReceiver(in, w, dev).run() })
	}
	receivers.Wait()
}

// receiver carries batches, one after another.
type receiver struct {
	*inbound
	writer Writer
	direct *device.Direct
	bufs   [][]byte // nil before it reads first
	sizes  []int
	from   []underlay.Origin
	batch  uint64 // the number of that which it carries
	turn   func() // waits for the turn of batch to be written
}

func newReceiver(in *inbound, w Writer, dev *device.Device) *receiver {
	r := &receiver{inbound: in, writer: w, direct: dev.NewDirect(BatchSize)}
	r.turn = func() { r.writing.await(r.batch) }
	return r
}

// busyBatch is the size from which on a batch tells that more is waiting.
const busyBatch = BatchSize / 2

// run carries batches until the socket is closed. Who has read a small one keeps the right to
// read while he carries it, so that the others sleep, and nobody is woken for what one can do.
func (r *receiver) run() {
	if !r.mayRead() {
		return
	}
	r.bufs, r.sizes, r.from = newBuffers(), make([]int, BatchSize), make([]underlay.Origin, BatchSize)
	for {
		n, err := r.read()
		if err != nil {
			return // the socket is closed, which ends the others, too
		}
		if n == 0 {
			continue
		}
		busy := n >= busyBatch
		if busy {
			r.letRead()
		}
		r.carry(n)
		if busy && !r.mayRead() {
			return
		}
	}
}

// letRead gives the right to read to who wants it next.
func (r *receiver) letRead() {
	r.reading <- struct{}{}
	if r.idle.Load() > 0 {
		hurry()
	}
}

// mayRead waits for the right to read. It reports false when the socket is closed.
func (r *receiver) mayRead() bool {
	select {
	case <-r.reading:
		return true
	default:
	}
	r.idle.Add(1)
	defer r.idle.Add(-1)
	select {
	case <-r.reading:
		return true
	case <-r.socket.done:
		return false
	}
}

// carry opens and delivers what carries packets, and passes handshakes on.
func (r *receiver) carry(n int) {
	bufs, sizes := r.bufs[:n], r.sizes[:n]
	r.direct.Open(bufs, sizes)

	r.accepting.await(r.batch)
	packets, ecn := r.accept(bufs, sizes)
	r.accepting.pass()

	if len(packets) > 0 {
		r.write(packets, ecn)
	}
	r.writing.await(r.batch)
	r.writing.pass()
}

// accept has a batch that was opened take effect, and returns its packets.
func (r *receiver) accept(bufs [][]byte, sizes []int) (packets [][]byte, ecn []uint8) {
	packets, ecn, opened := r.direct.Accept(&r.sessions, r)
	r.ingress.countOpened(opened, len(packets))
	if i := opened.Stranger; i >= 0 {
		r.noteCaller(r.from[i], opened.StrangerSize)
		r.dropped(dropUnknownSession, bufs[i][:opened.StrangerSize], r.from[i])
	}
	if opened.Confirmed {
		r.egress.sessionBegins()
	}
	if len(packets) > 0 {
		r.egress.noteReceived()
	}
	if opened.Left > 0 {
		r.pass(bufs, sizes)
	}
	return packets, ecn
}

// write hands packets to the overlay.
func (r *receiver) write(packets [][]byte, ecn []uint8) {
	const offset = device.MessageTransportOffsetContent
	if observe := r.observer.Load(); observe != nil {
		showDecrypted(observe, packets, offset)
	}
	r.writer.WritePackets(packets, ecn, offset, r.turn)
}

// pass hands handshakes to wireguard-go. Sizes below zero are those of what was opened.
func (r *receiver) pass(bufs [][]byte, sizes []int) {
	place, limited := r.limit(bufs, sizes)
	if limited > 0 {
		r.dropped(dropHandshakeLimit, bufs[place][:initiationLen], r.from[place])
	}
	malformed := 0
	for i, size := range sizes {
		if size < 0 {
			continue
		}
		m := bufs[i][:size]
		if classify(m) != messageHandshake {
			if malformed++; malformed == 1 {
				r.dropped(dropMalformed, m, r.from[i])
			}
			continue
		}
		if !r.socket.pass(m, r.sources.stranger(r.from[i])) {
			limited++
			continue
		}
		r.ingress.countHandshake(m)
		if isInitiation(m) {
			r.noteInitiation(r.from[i], m)
		}
	}
	r.ingress.countDrops(dropHandshakeLimit, limited)
	r.ingress.countDrops(dropMalformed, malformed)
}

// dropped shows a datagram that goes no further.
func (r *receiver) dropped(why dropReason, datagram []byte, from underlay.Origin) {
	r.onDrop(Observation{Outside: true, Local: r.localOf(from), Remote: from.Addr, Bytes: datagram, Drop: dropNames[why]})
}

// localOf is where a datagram arrived.
func (r *receiver) localOf(from underlay.Origin) netip.AddrPort {
	local := r.socket.LocalAddr()
	if from.Local.IsValid() {
		local = netip.AddrPortFrom(from.Local, local.Port())
	}
	return local
}

// read waits for a batch, and pauses after an error of the socket. The only error that it
// returns is net.ErrClosed.
func (r *receiver) read() (n int, err error) {
	n, err = r.socket.ReadBatch(r.bufs, r.sizes, r.from)
	switch {
	case err == nil:
		r.pause = firstPause
		if n > 0 {
			r.batch = r.batches
			r.batches++
		}
		if observe := r.observer.Load(); observe != nil {
			showReceived(observe, r.bufs[:n], r.sizes[:n], r.socket.LocalAddr(), r.from[:n])
		}
		return n, nil
	case errors.Is(err, net.ErrClosed):
		return 0, net.ErrClosed
	}
	r.ingress.failed()
	if r.pause == lastPause {
		r.log.Warn("receiving from the WireGuard socket keeps failing", "error", err)
	}
	if !sleep(r.socket.done, r.pause) {
		return 0, net.ErrClosed
	}
	r.pause = min(2*r.pause, lastPause)
	return 0, nil
}

// Endpoint implements device.Batch.
func (r *receiver) Endpoint(i int) conn.Endpoint { return r.sources.endpoint(r.from[i]) }

// ECN implements device.Batch.
func (r *receiver) ECN(i int) uint8 { return r.from[i].ECN }
