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
	session chan struct{}
	// sent is sent to by release when it has made room among those that wait, and received by
	// run; one slot, never closed.
	sent     chan struct{}
	patience time.Duration // run's: for how long it still waits while there is no session
	observer observer
	onDrop   func(Observation) // Options.OnDrop, never nil
}

func newEgress(o Options) *egress {
	return &egress{egressAccount: new(egressAccount), overlay: o.Overlay, session: make(chan struct{}, 1), sent: make(chan struct{}, 1), patience: readPause, onDrop: o.OnDrop}
}

// readPause is for how long nothing is read while there is no session, once in each outage: a
// burst waits in the socket of the nodes then. It is enough for a handshake over most networks.
const readPause = 500 * time.Millisecond

// run carries packets until the overlay fails. It never returns nil; os.ErrClosed is
// the orderly end, to which the end of ctx leads.
func (e *egress) run(ctx context.Context, dev *device.Device) error {
	direct := dev.NewDirect(BatchSize, nil)
	bufs, sizes := newBuffers(), make([]int, BatchSize)
	for {
		n, own, err := e.overlay.ReadPackets(bufs, sizes, sealFront)
		e.send(ctx, direct, bufs[:n], sizes[:n], own)
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
func (e *egress) send(ctx context.Context, direct *device.Direct, bufs [][]byte, sizes []int, own int) {
	if e.mutes() {
		e.withhold(bufs, sizes, own)
	}
	if direct.Ready(bufs, sizes) {
		if observe := e.observer.Load(); observe != nil {
			showTaken(observe, bufs, sizes)
		}
		direct.Send(bufs, sizes)
		e.patience = readPause
		return
	}
	e.keep(ctx, direct, bufs, sizes)
}

// keep has packets wait that cannot be sent now, and asks their peer for a session.
func (e *egress) keep(ctx context.Context, direct *device.Direct, bufs [][]byte, sizes []int) {
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
		// It may be another packet of the batch for which there is no session.
		if direct.Ready(bufs[i:i+1], sizes[i:i+1]) || e.waiting.full() && e.pause(ctx) && direct.Ready(bufs[i:i+1], sizes[i:i+1]) {
			direct.Send(bufs[i:i+1], sizes[i:i+1])
			continue
		}
		e.waiting.push(packet, func(oldest []byte) { e.drop(&dropped, dropNoSession, oldest) })
		if peer != asked {
			asked = peer
			direct.Ask(peer)
		}
		session = session || direct.Ready(bufs[i:i+1], sizes[i:i+1])
	}
	e.countDrops(&dropped)
	if session {
		e.sessionBegins()
	}
}

// pause waits until there is room among the packets that wait for a session, and reports whether
// there is.
func (e *egress) pause(ctx context.Context) bool {
	if e.patience <= 0 {
		return false
	}
	start := time.Now()
	timer := time.NewTimer(e.patience)
	defer timer.Stop()
	defer func() { e.patience -= time.Since(start) }()
	for e.waiting.full() {
		select {
		case <-e.sent:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
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
			switch packet := buf[sealFront : sealFront+size]; {
			case time.Since(since) >= waitLimit:
				dropped[dropFlushed]++
				return isDropped
			case direct.Peer(packet) == nil:
				e.drop(&dropped, dropNoPeer, packet)
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
		select {
		case e.sent <- struct{}{}:
		default: // run has not looked since the last time
		}
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
