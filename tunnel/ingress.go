package tunnel

import (
	"errors"
	"net"
	"net/netip"
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

// receiver is the way of packets from the peer: read from a socket, opened where they
// are, and delivered to the overlay. What is left are handshakes, for wireguard-go.
type receiver struct {
	*bind
	socket  *openSocket
	from    []underlay.Origin
	sources sourceCache
	quotas  quotas
	packets int           // delivered of this batch
	pause   time.Duration // after the next error
}

func newReceiver(b *bind, s *openSocket) *receiver {
	return &receiver{bind: b, socket: s, from: make([]underlay.Origin, BatchSize), pause: firstPause}
}

// run receives until the socket is closed.
func (r *receiver) run(dev *device.Device) {
	direct := dev.NewDirect(BatchSize, r)
	bufs, sizes := newBuffers(), make([]int, BatchSize)
	for {
		n, err := r.read(bufs, sizes)
		if err != nil {
			return
		}
		r.open(direct, bufs[:n], sizes[:n])
	}
}

// open opens and delivers what carries packets, and passes handshakes on.
func (r *receiver) open(direct *device.Direct, bufs [][]byte, sizes []int) {
	if len(bufs) == 0 {
		return
	}
	r.packets = 0
	opened := direct.Receive(bufs, sizes, r)
	r.ingress.countOpened(opened, r.packets)
	if i := opened.Stranger; i >= 0 {
		r.noteCaller(r.from[i], opened.StrangerSize)
		r.dropped(dropUnknownSession, bufs[i][:opened.StrangerSize], r.from[i])
	}
	if opened.Confirmed {
		r.egress.sessionBegins()
	}
	if opened.Left > 0 {
		r.pass(bufs, sizes)
	}
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
		r.ingress.countHandshake(m)
		if !r.socket.pass(m, r.sources.stranger(r.from[i])) {
			limited++
			continue
		}
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

// read waits for datagrams, and pauses after an error of the socket. The only error that it
// returns is net.ErrClosed.
func (r *receiver) read(bufs [][]byte, sizes []int) (n int, err error) {
	n, err = r.socket.ReadBatch(bufs, sizes, r.from)
	switch {
	case err == nil:
		r.pause = firstPause
		if observe := r.observer.Load(); observe != nil {
			showReceived(observe, bufs[:n], sizes[:n], r.socket.LocalAddr(), r.from[:n])
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

// Deliver implements device.Sink: decrypted packets to the data plane.
func (r *receiver) Deliver(bufs [][]byte, ecn []uint8, offset int) {
	r.egress.noteReceived()
	if observe := r.observer.Load(); observe != nil {
		showDecrypted(observe, bufs, offset)
	}
	r.packets += len(bufs)
	r.egress.overlay.WritePackets(bufs, ecn, offset)
}

// Endpoint implements device.Batch.
func (r *receiver) Endpoint(i int) conn.Endpoint { return r.sources.endpoint(r.from[i]) }

// ECN implements device.Batch.
func (r *receiver) ECN(i int) uint8 { return r.from[i].ECN }
