package tunnel

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// What a message needs in front of its packet, for its header, and behind it: padding to a
// multiple of 16 bytes, and the tag.
const (
	sealFront = device.MessageTransportHeaderSize
	sealRoom  = device.PaddingMultiple - 1 + device.MessageTransportSize - device.MessageTransportHeaderSize
)

// MaxReaders is how many Options.Readers there may be. Each may take the counters of one
// batch after the last that may be used (RejectAfterMessages of wireguard-go), and there are
// 8192 beyond it before they would start again.
const MaxReaders = 31

// egress is the way of packets to the peer: read from the overlay, sealed where they are,
// and sent. Those that find no session wait for one.
type egress struct {
	*egressAccount
	loops   []*egressLoop // one for each source of packets
	senders []*sender     // one for each goroutine that sends
	// spread is over which tunnels packets go; nil: over this one.
	spread  atomic.Pointer[spread]
	waiting waiting
	// session is sent to when there is a session that packets may wait for, and received
	// by release; one slot, never closed.
	session  chan struct{}
	observer observer
	onDrop   func(Observation) // Options.OnDrop, never nil
}

// egressLoop carries the packets of one source.
type egressLoop struct {
	*egress
	index  int // in loops, and its sender's in senders
	reader Reader
	parts  []part   // of a batch that goes over several tunnels
	_      [64]byte // what one loop writes is in no cache line of another one
}

// sender sends by one tunnel what one goroutine has.
type sender struct {
	*egress
	direct *device.Direct // nil before Run
	// sent is sent to by release when it has made room among those that wait, and received by
	// pause; one slot, never closed.
	sent     chan struct{}
	patience time.Duration // for how long it still waits while there is no session
	_        [64]byte      // as above
}

func newEgress(o Options) *egress {
	e := &egress{egressAccount: new(egressAccount), session: make(chan struct{}, 1), onDrop: o.OnDrop}
	for i, r := range append([]Reader{o.Overlay}, o.Readers...) {
		e.loops = append(e.loops, &egressLoop{egress: e, index: i, reader: r})
	}
	e.makeSenders(len(e.loops))
	return e
}

// makeSenders makes the senders of so many goroutines.
func (e *egress) makeSenders(n int) {
	e.senders = nil
	for range n {
		e.senders = append(e.senders, &sender{egress: e, sent: make(chan struct{}, 1), patience: readPause})
	}
}

// useDevice gives the senders their device.
func (e *egress) useDevice(dev *device.Device) {
	for _, s := range e.senders {
		s.direct = dev.NewDirect(BatchSize)
	}
}

// readPause is for how long a loop reads nothing while there is no session, once in each outage: a
// burst waits in the socket of the nodes then. It is enough for a handshake over most networks.
const readPause = 500 * time.Millisecond

// run carries packets until reading fails. It never returns nil; os.ErrClosed is
// the orderly end, to which the end of ctx leads.
func (l *egressLoop) run(ctx context.Context) error {
	bufs, sizes := newBuffers(), make([]int, BatchSize)
	for {
		n, own, err := l.reader.ReadPackets(bufs, sizes, sealFront)
		// Senders of a further tunnel are used by the loops of the first one: its own has nothing.
		if s := l.spread.Load(); n > 0 && s == nil {
			l.senders[l.index].send(ctx, bufs[:n], sizes[:n], own, true)
		} else if n > 0 {
			l.divide(ctx, s, bufs[:n], sizes[:n], own)
		}
		if err != nil {
			return fmt.Errorf("read from the overlay: %w", err)
		}
	}
}

// newBuffers returns the buffers of one loop. Their memory is used as far as packets
// are long.
func newBuffers() [][]byte {
	bufs := make([][]byte, BatchSize)
	for i := range bufs {
		bufs[i] = make([]byte, device.MaxMessageSize)
	}
	return bufs
}

// send sends the packets of a batch, own of them the gateway's own and first. alone: only by this
// tunnel do others go, so that it may pause.
func (s *sender) send(ctx context.Context, bufs [][]byte, sizes []int, own int, alone bool) {
	if s.mutes() {
		s.withhold(bufs, sizes, own)
	}
	if s.direct.Ready(bufs, sizes) {
		if observe := s.observer.Load(); observe != nil {
			showTaken(observe, bufs, sizes)
		}
		s.direct.Send(bufs, sizes)
		s.patience = readPause
		return
	}
	s.keep(ctx, bufs, sizes, alone)
}

// keep has packets wait that cannot be sent now, and asks their peer for a session.
func (s *sender) keep(ctx context.Context, bufs [][]byte, sizes []int, alone bool) {
	var (
		direct  = s.direct
		dropped drops
		asked   *device.Peer
		reached = s.isReachable()
		observe = s.observer.Load()
		session bool // there is one by now
	)
	for i, size := range sizes {
		if size < 1 {
			continue
		}
		packet := bufs[i][sealFront : sealFront+size]
		peer := direct.Peer(packet)
		if !reached {
			s.drop(&dropped, dropNoEndpoint, packet)
			continue
		}
		if peer == nil {
			s.drop(&dropped, dropNoPeer, packet)
			continue
		}
		if observe != nil {
			showTaken(observe, bufs[i:i+1], sizes[i:i+1])
		}
		// It may be another packet of the batch for which there is no session.
		if direct.Ready(bufs[i:i+1], sizes[i:i+1]) || alone && s.waiting.full() && s.pause(ctx) && direct.Ready(bufs[i:i+1], sizes[i:i+1]) {
			direct.Send(bufs[i:i+1], sizes[i:i+1])
			continue
		}
		s.waiting.push(packet, func(oldest []byte) { s.drop(&dropped, dropNoSession, oldest) })
		if peer != asked {
			asked = peer
			direct.Ask(peer)
		}
		session = session || direct.Ready(bufs[i:i+1], sizes[i:i+1])
	}
	s.countDrops(&dropped)
	if session {
		s.sessionBegins()
	}
}

// pause waits until there is room among the packets that wait for a session, and reports whether
// there is.
func (s *sender) pause(ctx context.Context) bool {
	if s.patience <= 0 {
		return false
	}
	start := time.Now()
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	defer func() { s.patience -= time.Since(start) }()
	for s.waiting.full() {
		select {
		case <-s.sent:
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
	direct := dev.NewDirect(1)
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
		for _, l := range e.senders {
			select {
			case l.sent <- struct{}{}:
			default: // pause has not looked since the last time
			}
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

// closeRead ends run of every loop.
func (e *egress) closeRead() {
	for _, l := range e.loops {
		if r, ok := l.reader.(interface{ CloseRead() }); ok {
			r.CloseRead()
		}
	}
}
