package tunnel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// tunDevice is wireguard-go's TUN device: a tun.Device over an Overlay.
type tunDevice struct {
	overlay  Overlay
	egress   *egressAccount
	ingress  *ingressAccount
	onDrop   func(Observation) // Options.OnDrop, never nil
	mtu      atomic.Int32
	observer observer
	// direct seals in Read; nil where wireguard-go's workers do, and before Run.
	direct atomic.Pointer[device.Direct]

	// writing is held during WritePackets.
	writing sync.Mutex

	mu      sync.Mutex
	events  chan tun.Event // sent to by setMTU, received by wireguard-go, closed by Close; one slot
	closed  bool
	readErr error // why reading ended before Close
}

func newTunDevice(o Overlay, egress *egressAccount, ingress *ingressAccount) *tunDevice {
	t := &tunDevice{overlay: o, egress: egress, ingress: ingress, events: make(chan tun.Event, 1), onDrop: func(Observation) {}}
	t.mtu.Store(DefaultMTU)
	return t
}

// Read implements tun.Device: packets from the data plane to wireguard-go. It
// returns when at least one was admitted, and asks for no more than there are
// credits, so that what cannot be sent waits in the data plane's socket. With
// direct, it returns only what has to wait for a session.
func (t *tunDevice) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	for {
		g, unclaimed, err := t.egress.admit(bufs)
		if err != nil {
			return 0, err
		}
		if unclaimed >= 0 { // of the batch before, which is still there
			t.onDrop(Observation{Egress: true, Bytes: bufs[unclaimed][offset:], Drop: dropNoPeer})
		}
		room := bufs
		if g.Credits > 0 && g.Own == 0 {
			room = room[:min(len(room), g.Credits)]
		}
		n, own, err := t.overlay.ReadPackets(room, sizes, offset)
		if t.egress.mutes() {
			t.withhold(bufs[:n], sizes[:n], own, offset)
		}
		if direct := t.direct.Load(); direct != nil && err == nil && t.send(direct, bufs[:n], sizes[:n], offset) {
			continue
		}
		var taken taken
		if observe := t.observer.Load(); observe != nil {
			taken = t.takeSeen(observe, g, bufs[:n], sizes[:n], own, offset)
		} else {
			taken = t.egress.take(g, bufs[:n], sizes[:n], own)
		}
		if i := taken.refused; i >= 0 {
			t.onDrop(Observation{Egress: true, Bytes: bufs[i][offset : offset+taken.size], Drop: dropNames[taken.why]})
		}
		if err != nil {
			return n, t.readFailed(err)
		}
		if taken.admitted > 0 {
			return n, nil
		}
	}
}

// send seals packets where they are and sends them, if there is a session.
func (t *tunDevice) send(d *device.Direct, bufs [][]byte, sizes []int, offset int) bool {
	if !d.Ready(bufs, sizes) {
		return false
	}
	if observe := t.observer.Load(); observe != nil {
		showTaken(observe, bufs, sizes, offset)
	}
	d.Send(bufs, sizes)
	return true
}

// readFailed keeps the reason for Run. wireguard-go closes the device.
func (t *tunDevice) readFailed(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.readErr = fmt.Errorf("read from the overlay: %w", err)
	}
	if errors.Is(err, os.ErrClosed) {
		return os.ErrClosed
	}
	return err
}

// failure returns why reading ended before Close, nil if it did not.
func (t *tunDevice) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.readErr
}

// Write implements tun.Device: decrypted packets to the data plane. Of two keys that
// the peer has for a while, each has a goroutine of wireguard-go's that calls it.
func (t *tunDevice) Write(bufs [][]byte, offset int) (int, error) {
	return t.WriteMarked(bufs, nil, offset)
}

// WriteMarked implements device.TUN.
func (t *tunDevice) WriteMarked(bufs [][]byte, ecn []uint8, offset int) (int, error) {
	if len(bufs) == 0 {
		return 0, nil
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	last := identity(bufs[len(bufs)-1]) // the overlay may change bufs
	t.egress.noteReceived()
	t.ingress.writeStarts()
	if observe := t.observer.Load(); observe != nil {
		showDecrypted(observe, bufs, offset)
	}
	t.overlay.WritePackets(bufs, ecn, offset)
	t.ingress.writeEnds(last, len(bufs))
	return len(bufs), nil
}

// setMTU tells wireguard-go the MTU, which limits its padding.
func (t *tunDevice) setMTU(mtu int) {
	if t.mtu.Swap(int32(mtu)) == int32(mtu) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	select {
	case t.events <- tun.EventMTUUpdate:
	default: // one is waiting; its reader will see this MTU
	}
}

// MTU implements tun.Device.
func (t *tunDevice) MTU() (int, error) { return int(t.mtu.Load()), nil }

// Name implements tun.Device.
func (t *tunDevice) Name() (string, error) { return "sluice", nil }

// File implements tun.Device: there is none.
func (t *tunDevice) File() *os.File { return nil }

// Events implements tun.Device.
func (t *tunDevice) Events() <-chan tun.Event { return t.events }

// BatchSize implements tun.Device.
func (t *tunDevice) BatchSize() int { return BatchSize }

// Close implements tun.Device. wireguard-go calls it and then waits for its
// reader, so it ends a Read wherever that waits.
func (t *tunDevice) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	close(t.events)
	t.egress.close()
	t.ingress.close()
	if o, ok := t.overlay.(interface{ CloseRead() }); ok {
		o.CloseRead()
	}
	return nil
}
