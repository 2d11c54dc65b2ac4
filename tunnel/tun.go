package tunnel

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/tun"
)

// tunDevice is what wireguard-go has for a TUN device. It has no packets and takes none:
// packets never enter wireguard-go. What it does is tell the MTU.
type tunDevice struct {
	mtu  atomic.Int32
	done chan struct{} // closed by Close

	mu     sync.Mutex
	events chan tun.Event // sent to by setMTU, received by wireguard-go, closed by Close; one slot
	closed bool
}

func newTunDevice() *tunDevice {
	t := &tunDevice{done: make(chan struct{}), events: make(chan tun.Event, 1)}
	t.mtu.Store(DefaultMTU)
	return t
}

// Read implements tun.Device. It waits for the end.
func (t *tunDevice) Read([][]byte, []int, int) (int, error) {
	<-t.done
	return 0, os.ErrClosed
}

// Write implements tun.Device. Nobody calls it.
func (t *tunDevice) Write([][]byte, int) (int, error) { return 0, os.ErrInvalid }

// BatchSize implements tun.Device.
func (t *tunDevice) BatchSize() int { return 1 }

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

// Close implements tun.Device.
func (t *tunDevice) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	close(t.done)
	close(t.events)
	return nil
}
