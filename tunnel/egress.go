package tunnel

import (
	"context"
	"fmt"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// What a message needs in front of its packet, for its header, and behind it: padding to a
// multiple of 16 bytes, and the tag.
const (
	sealFront = device.MessageTransportHeaderSize
	sealRoom  = device.PaddingMultiple - 1 + device.MessageTransportSize - device.MessageTransportHeaderSize
)

// egress is the way of packets to the peer: read from the overlay, sealed where they are,
// and sent. Those that find no session wait for one.
type egress struct {
	*egressAccount
	overlay Overlay
	waiting waiting
	// session is sent to when there is a session that packets may wait for, and received
	// by release; one slot, never closed.
	session  chan struct{}
	observer observer
	onDrop   func(Observation) // Options.OnDrop, never nil
}

func newEgress(o Options) *egress {
	return &egress{egressAccount: new(egressAccount), overlay: o.Overlay, session: make(chan struct{}, 1), onDrop: o.OnDrop}
}

// run carries packets until the overlay fails. It never returns nil; os.ErrClosed is
// the orderly end.
func (e *egress) run(dev *device.Device) error {
	direct := dev.NewDirect(BatchSize, nil)
	bufs, sizes := newBuffers(), make([]int, BatchSize)
	for {
		n, own, err := e.overlay.ReadPackets(bufs, sizes, sealFront)
		e.send(direct, bufs[:n], sizes[:n], own)
		if err != nil {
			return fmt.Errorf("read from the overlay: %w", err)
		}
	}
}

// newBuffers returns the buffers of one direction. Their memory is used as far as packets
// are long.
func newBuffers() [][]byte {
	bufs := make([][]byte, BatchSize)
	for i := range bufs {
		bufs[i] = make([]byte, device.MaxMessageSize)
	}
	return bufs
}

// send sends the packets of a batch, own of them the gateway's own and first.
func (e *egress) send(direct *device.Direct, bufs [][]byte, sizes []int, own int) {
	if e.mutes() {
		e.withhold(bufs, sizes, own)
	}
	if direct.Ready(bufs, sizes) {
		if observe := e.observer.Load(); observe != nil {
			showTaken(observe, bufs, sizes)
		}
		direct.Send(bufs, sizes)
		return
	}
	e.keep(direct, bufs, sizes)
}

// keep has packets wait that cannot be sent now, and asks their peer for a session.
func (e *egress) keep(direct *device.Direct, bufs [][]byte, sizes []int) {
	var (
		dropped drops
		asked   *device.Peer
		reached = e.isReachable()
		observe = e.observer.Load()
		session bool // there is one by now
	)
	for i, size := range sizes {
		if size < 1 {
			continue
		}
		packet := bufs[i][sealFront : sealFront+size]
		peer := direct.Peer(packet)
		if !reached {
			e.drop(&dropped, dropNoEndpoint, packet)
			continue
		}
		if peer == nil {
			e.drop(&dropped, dropNoPeer, packet)
			continue
		}
		if observe != nil {
			showTaken(observe, bufs[i:i+1], sizes[i:i+1])
		}
		e.waiting.push(packet, func(oldest []byte) { e.drop(&dropped, dropNoSession, oldest) })
		if peer != asked {
			asked = peer
			// An error is logged by wireguard-go, and means what a lost message means. Within 5
			// seconds after another one no message is sent.
			_ = peer.SendHandshakeInitiation(false)
		}
		session = session || direct.Ready(bufs[i:i+1], sizes[i:i+1])
	}
	e.countDrops(&dropped)
	if session {
		e.sessionBegins()
	}
}

// drop enters a packet that goes no further among those of its batch, and shows it.
func (e *egress) drop(dropped *drops, reason dropReason, packet []byte) {
	o := Observation{Egress: true, Bytes: packet, Drop: dropNames[reason]}
	if dropped[reason]++; dropped[reason] == 1 {
		e.onDrop(o)
	}
	if observe := e.observer.Load(); observe != nil {
		o.Time = time.Now()
		(*observe)(o)
	}
}

// sessionBegins is called when there is a session that packets may wait for. It never
// waits.
func (e *egress) sessionBegins() {
	select {
	case e.session <- struct{}{}:
	default: // release has not looked since the last time
	}
}

// release sends what waits, whenever there is a session, until ctx ends. Packets that are
// read meanwhile may overtake.
func (e *egress) release(ctx context.Context, dev *device.Device) {
	direct := dev.NewDirect(1, nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.session:
		}
		var dropped drops
		judge := func(buf []byte, size int, since time.Time) verdict {
			switch {
			case time.Since(since) >= waitLimit:
				dropped[dropFlushed]++
				return isDropped
			case direct.Peer(buf[sealFront:sealFront+size]) == nil:
				dropped[dropNoPeer]++
				return isDropped
			case !direct.Ready([][]byte{buf}, []int{size}):
				return stays
			}
			return isSent
		}
		for {
			buf, size, v := e.waiting.next(judge)
			if v == stays {
				break
			}
			if v == isSent {
				direct.Send([][]byte{buf}, []int{size})
			}
		}
		e.countDrops(&dropped)
	}
}

// withhold takes out of a batch what is not the gateway's own, and counts it.
func (e *egress) withhold(bufs [][]byte, sizes []int, own int) {
	var withheld drops
	for i := own; i < len(sizes); i++ {
		if sizes[i] > 0 {
			e.drop(&withheld, dropUnconfirmed, bufs[i][sealFront:sealFront+sizes[i]])
			sizes[i] = 0
		}
	}
	e.countDrops(&withheld)
}

// reset forgets everything about a peer that was removed.
func (e *egress) reset() {
	e.egressAccount.reset(e.waiting.clear())
}

// closeRead ends run.
func (e *egress) closeRead() {
	if o, ok := e.overlay.(interface{ CloseRead() }); ok {
		o.CloseRead()
	}
}
