package underlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is a batched UDP socket.
type Conn struct {
	closer io.Closer
	raw    syscall.RawConn
	local  netip.AddrPort

	readBuffer, writeBuffer int // as granted

	wake waker
	// justWoken is set while the last ReadBatch returned ErrWoken; see ReadBatch.
	justWoken bool

	read reader
	// writers are of WriteBatch, one for each call that may send at the same time.
	writers []*writer
	// try is of TryWriteBatch. It sends no runs.
	try writer
}

// Listen opens a socket. The error wraps the system's: a port in use is
// errors.Is(err, syscall.EADDRINUSE).
func Listen(cfg Config) (*Conn, error) { return listen(cfg, false) }

// ListenShared opens n sockets on one address, over which the kernel spreads what arrives
// (SO_REUSEPORT, socket(7)): by a hash of the addresses and ports of both ends, so that
// what comes from one port of one host comes to one of them, in order. Errors are those of
// Listen: as with Listen, the port is in use if anybody else has it.
func ListenShared(cfg Config, n int) ([]*Conn, error) {
	// The first one asks for the port as if it were to have it alone. Sockets that share from
	// the start would also share with those of another process of the same user.
	first, err := listen(cfg, false)
	if err != nil {
		return nil, err
	}
	conns := []*Conn{first}
	cfg.Addr = netip.AddrPortFrom(cfg.Addr.Addr(), first.LocalAddr().Port())
	if n > 1 {
		err = first.share()
	}
	for len(conns) < n && err == nil {
		var c *Conn
		if c, err = listen(cfg, true); err == nil {
			conns = append(conns, c)
		}
	}
	if err == nil {
		return conns, nil
	}
	for _, c := range conns {
		err = errors.Join(err, c.Close())
	}
	return nil, err
}

// share lets others have the address, too. A kernel makes a group of a socket that is bound
// already when the next one is (reuseport_add_sock, net/core/sock_reuseport.c).
func (c *Conn) share() error {
	var err error
	controlErr := c.raw.Control(func(fd uintptr) { err = setShared(int(fd)) })
	return errors.Join(closedError(controlErr), err)
}

func setShared(fd int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// listen opens a socket, with others on its address if it is shared.
func listen(cfg Config, shared bool) (*Conn, error) {
	c := &Conn{}
	for range max(1, cfg.Writers) {
		c.writers = append(c.writers, new(writer))
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			c.configure(int(fd), cfg)
			if shared {
				err = setShared(int(fd))
			}
		})
		return errors.Join(controlErr, err)
	}}
	network, addr := listenArgs(cfg.Addr)
	pc, err := lc.ListenPacket(context.Background(), network, addr)
	if err != nil {
		return nil, fmt.Errorf("open underlay socket: %w", err)
	}
	conn := pc.(*net.UDPConn)
	c.local = conn.LocalAddr().(*net.UDPAddr).AddrPort()
	c.wake.conn = conn
	if err := c.adopt(conn, cfg.Unpolled); err != nil {
		return nil, fmt.Errorf("open underlay socket: %w", err)
	}
	c.read.init()
	for _, w := range c.writers {
		w.init()
	}
	c.try.init()
	if !cfg.Unpolled {
		polled.add(&c.read.waiter)
	}
	return c, nil
}

// adopt takes the open socket.
func (c *Conn) adopt(conn *net.UDPConn, outsidePoller bool) error {
	if outsidePoller {
		u, err := unpoll(conn)
		c.raw, c.closer = u, u
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c.raw, c.closer = raw, conn
	return nil
}

// configure sets the socket's options. None of them is vital, so none fails
// Listen: what counts was granted or not, and Stats shows it.
func (c *Conn) configure(fd int, cfg Config) {
	c.readBuffer = setBuffer(fd, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, cfg.ReadBuffer)
	c.writeBuffer = setBuffer(fd, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, cfg.WriteBuffer)
	// Also decides for IPv4 on a dual stack socket. See "Fragmentation" in doc.go.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)

	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	c.try.ipv4Only = err == nil && domain == unix.AF_INET
	tellOrigin(fd, c.try.ipv4Only, !cfg.Addr.Addr().IsValid() || cfg.Addr.Addr().IsUnspecified())
	// A kernel without UDP_SEGMENT does not refuse the control message, it
	// ignores it and would send a whole run as one datagram. So ask first.
	_, err = unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	for _, w := range c.writers {
		w.ipv4Only, w.gso.supported = c.try.ipv4Only, err == nil
		w.gso.set(cfg.GSO)
	}
	if cfg.GRO {
		c.read.gro.Store(setGRO(fd, true) == nil)
	}
}

// setBuffer asks for a socket buffer, also beyond the system's limit for whom that
// is allowed, and returns what the kernel granted.
func setBuffer(fd, option, force, size int) int {
	size = bufferOrDefault(size)
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size)
	}
	granted, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err != nil {
		return 0
	}
	return granted / 2 // socket(7): the kernel books twice what it grants
}

func setGRO(fd int, on bool) error {
	value := 0
	if on {
		value = 1
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, value)
}

// ReadBatch reads datagrams, one per buffer: the i-th has sizes[i] bytes in bufs[i] and
// came from from[i]. It blocks until there is at least one and then takes what is
// there. A datagram larger than its buffer is counted and delivered with size 0;
// buffers of MaxDatagram bytes make that impossible. sizes and from are at least as
// long as bufs.
//
// The error is ErrWoken after Wake and net.ErrClosed after Close; n is then 0.
func (c *Conn) ReadBatch(bufs [][]byte, sizes []int, from []Origin) (n int, err error) {
	if len(bufs) == 0 {
		return 0, nil
	}
	c.read.begin(bufs, sizes, from)
	defer c.read.end()
	if err := c.await(c.read.fillFunc); err != nil {
		return 0, err
	}
	return c.read.result()
}

// await calls receive until it has received something.
func (c *Conn) await(receive func(fd uintptr) bool) (err error) {
	c.read.receive = receive
	for {
		switch {
		case !c.wake.raised():
			err = c.raw.Read(c.read.waitFunc)
		case !c.justWoken:
			return c.woken()
		default:
			// Somebody who wakes again and again must not starve the socket: between two
			// wakes comes what is there, read without regard to the deadline.
			var received bool
			received, err = c.receiveNow()
			if err == nil && !received {
				return c.woken()
			}
		}
		switch {
		case err == nil:
			c.justWoken = false
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return closedError(err)
		case c.wake.clear():
			c.justWoken = true
			return ErrWoken
		}
	}
}

// receiveNow calls c.read.receive once, and tells whether it has received something.
func (c *Conn) receiveNow() (bool, error) {
	if err := c.raw.Control(c.read.tryFunc); err != nil {
		return false, closedError(err)
	}
	return c.read.received, nil
}

// woken ends the wake that is raised.
func (c *Conn) woken() error {
	c.wake.clear()
	c.justWoken = true
	return ErrWoken
}

// WriteBatch sends the datagrams in order and returns how many the kernel took.
// It waits while the send buffer is full. Datagrams that cannot be sent are
// dropped and counted in Stats; the error is about the socket only: net.ErrClosed
// after Close. The datagrams' bytes are not kept.
func (c *Conn) WriteBatch(ds []Datagram) (sent int, err error) {
	w := c.takeWriter()
	defer w.mu.Unlock()
	w.begin(ds)
	defer w.end()
	if err := c.flush(w); err != nil {
		return w.sent, closedError(err)
	}
	return w.result()
}

// takeWriter returns a writer that nobody uses, with its mutex held.
func (c *Conn) takeWriter() *writer {
	for _, w := range c.writers {
		if w.mu.TryLock() {
			return w
		}
	}
	c.writers[0].mu.Lock()
	return c.writers[0]
}

// flush sends the batch of w. raw.Write has one user at a time, also while that does not
// wait. Where several send, only those ask for it who have to wait for the send buffer.
func (c *Conn) flush(w *writer) error {
	if len(c.writers) > 1 {
		if err := c.raw.Control(w.tryFunc); err != nil || w.flushed {
			return err
		}
	}
	return c.raw.Write(w.flushFunc)
}

// TryWriteBatch is WriteBatch for who must not wait, neither for the send buffer nor
// for a WriteBatch that does. What the kernel does not take at once is dropped and
// counted in Stats.
func (c *Conn) TryWriteBatch(ds []Datagram) (sent int, err error) {
	c.try.mu.Lock() // nobody waits with it
	defer c.try.mu.Unlock()
	c.try.begin(ds)
	defer c.try.end()
	// Not raw.Write: it has one user at a time, also while that waits.
	if err := c.raw.Control(c.try.offerFunc); err != nil {
		return 0, closedError(err)
	}
	return c.try.result()
}

// closedError strips what net wraps around net.ErrClosed, for callers that compare.
func closedError(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return net.ErrClosed
	}
	return err
}

// Wake makes a blocked ReadBatch, or the next one, return ErrWoken once. Wakes
// that no ReadBatch has seen yet count as one.
func (c *Conn) Wake() { c.wake.raise() }

// LocalAddr is the bound address.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// SetGSO switches runs when sending on or off. Switching on also forgets that the
// kernel had refused them.
func (c *Conn) SetGSO(on bool) {
	for _, w := range c.writers {
		w.gso.set(on)
	}
}

// SetDontFragment has datagrams leave in one piece or not at all, whatever routers have
// told of the path: what one of them finds too large gets lost, and what the own link
// does is an error of WriteBatch. Off is as in "Fragmentation" in doc.go.
func (c *Conn) SetDontFragment(on bool) error {
	v4, v6 := unix.IP_PMTUDISC_DONT, unix.IPV6_PMTUDISC_WANT
	if on {
		v4, v6 = unix.IP_PMTUDISC_PROBE, unix.IPV6_PMTUDISC_PROBE
	}
	var err error
	controlErr := c.raw.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, v4))
		if !c.try.ipv4Only {
			err = errors.Join(err, os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, v6)))
		}
	})
	return errors.Join(closedError(controlErr), err)
}

// SetGRO switches runs when receiving on or off. A run that the kernel has already
// queued when it is switched off may arrive as one large datagram.
func (c *Conn) SetGRO(on bool) {
	_ = c.raw.Control(func(fd uintptr) {
		if setGRO(int(fd), on) == nil {
			c.read.gro.Store(on)
		}
	})
}

// Stats returns the counters.
func (c *Conn) Stats() Stats {
	s := Stats{ReadBuffer: c.readBuffer, WriteBuffer: c.writeBuffer, Overruns: c.overruns()}
	c.read.stats(&s)
	for _, w := range c.writers {
		w.stats(&s)
	}
	c.try.stats(&s)
	return s
}

// overruns asks the kernel how many datagrams it dropped, 0 when it does not say.
//
// SO_RXQ_OVFL would tell with each datagram, but it is deadly: where the datagram
// is a clone of a TCP segment, as from a tunnel device on the same machine, a
// kernel with CONFIG_HARDENED_USERCOPY finds that the number lies in memory that
// may not be copied to a user, and kills the thread in the middle of the system call
// (put_cmsg, mm/usercopy.c; seen on 6.18).
func (c *Conn) overruns() uint64 {
	const drops = 8 // SK_MEMINFO_DROPS, include/uapi/linux/sock_diag.h
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_ = c.raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			info[drops] = 0
		}
	})
	return uint64(info[drops])
}

// Close ends a blocked ReadBatch and WriteBatch with net.ErrClosed.
func (c *Conn) Close() error {
	polled.remove(&c.read.waiter)
	return c.closer.Close()
}
