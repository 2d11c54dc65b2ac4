//go:build !linux

package underlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
)

// Conn is a batched UDP socket. This version is for systems other than Linux: it
// moves one datagram per system call and has no offloads.
type Conn struct {
	conn  *net.UDPConn
	local netip.AddrPort
	wake  waker

	reads, writes, writeErrors atomic.Uint64
	lastErr                    atomic.Pointer[string]

	mu      sync.Mutex // guards scratch, which joins Head and Body
	scratch []byte
}

// Listen opens a socket. The error wraps the system's: a port in use is
// errors.Is(err, syscall.EADDRINUSE).
func Listen(cfg Config) (*Conn, error) {
	network, addr := listenArgs(cfg.Addr)
	pc, err := (&net.ListenConfig{}).ListenPacket(context.Background(), network, addr)
	if err != nil {
		return nil, fmt.Errorf("open underlay socket: %w", err)
	}
	conn := pc.(*net.UDPConn)
	// Best effort, as on Linux.
	_ = conn.SetReadBuffer(bufferOrDefault(cfg.ReadBuffer))
	_ = conn.SetWriteBuffer(bufferOrDefault(cfg.WriteBuffer))
	c := &Conn{conn: conn, local: conn.LocalAddr().(*net.UDPAddr).AddrPort()}
	c.wake.conn = conn
	return c, nil
}

// ListenShared opens one socket: this version has no several of one address.
func ListenShared(cfg Config, _ int) ([]*Conn, error) {
	c, err := Listen(cfg)
	if err != nil {
		return nil, err
	}
	return []*Conn{c}, nil
}

// ReadBatch reads one datagram into bufs[0], cut off where the buffer is too small. Errors
// are as on Linux: ErrWoken after Wake and net.ErrClosed after Close.
func (c *Conn) ReadBatch(bufs [][]byte, sizes []int, from []Origin) (int, error) {
	if len(bufs) == 0 {
		return 0, nil
	}
	for {
		n, addr, err := c.conn.ReadFromUDPAddrPort(bufs[0])
		switch {
		case err == nil:
			c.reads.Add(1)
			sizes[0], from[0] = n, Origin{Addr: netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())}
			return 1, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.wake.clear() {
				return 0, ErrWoken
			}
		case errors.Is(err, net.ErrClosed):
			return 0, net.ErrClosed
		default:
			return 0, fmt.Errorf("read datagram: %w", err)
		}
	}
}

// WaitMessages reads one datagram into bufs[0], likewise.
func (c *Conn) WaitMessages(bufs [][]byte, ms []Message) (int, error) {
	var sizes [1]int
	var from [1]Origin
	n, err := c.ReadBatch(bufs[:min(1, len(bufs))], sizes[:], from[:])
	if n == 1 {
		ms[0] = Message{Data: bufs[0][:sizes[0]], Segment: sizes[0], Origin: from[0]}
	}
	return n, err
}

// WriteBatch sends the datagrams in order and returns how many the system took.
// The error is about the socket, never about one destination.
func (c *Conn) WriteBatch(ds []Datagram) (sent int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range ds {
		c.scratch = append(append(c.scratch[:0], ds[i].Head...), ds[i].Body...)
		_, err := c.conn.WriteToUDPAddrPort(c.scratch, ds[i].Addr)
		if errors.Is(err, net.ErrClosed) {
			return sent, net.ErrClosed
		}
		if err != nil {
			text := err.Error()
			c.lastErr.Store(&text)
			c.writeErrors.Add(1)
			continue
		}
		sent++
		c.writes.Add(1)
	}
	return sent, nil
}

// TryWriteBatch is WriteBatch: a write does not wait for long.
func (c *Conn) TryWriteBatch(ds []Datagram) (sent int, err error) { return c.WriteBatch(ds) }

// Wake makes a blocked ReadBatch, or the next one, return ErrWoken once.
func (c *Conn) Wake() { c.wake.raise() }

// LocalAddr is the bound address.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// SetDontFragment is not possible on this system.
func (c *Conn) SetDontFragment(bool) error { return errors.ErrUnsupported }

// SetGSO has no effect on this system.
func (c *Conn) SetGSO(bool) {}

// SetGRO has no effect on this system.
func (c *Conn) SetGRO(bool) {}

// Stats returns the counters.
func (c *Conn) Stats() Stats {
	s := Stats{
		Reads: c.reads.Load(), ReadDatagrams: c.reads.Load(),
		Writes: c.writes.Load(), WriteDatagrams: c.writes.Load(), WriteErrors: c.writeErrors.Load(),
	}
	if text := c.lastErr.Load(); text != nil {
		s.LastWriteError = *text
	}
	return s
}

// Close ends a blocked ReadBatch and WriteBatch with net.ErrClosed.
func (c *Conn) Close() error { return c.conn.Close() }
