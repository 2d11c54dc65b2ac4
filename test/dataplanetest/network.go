package dataplanetest

import (
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/underlay"
)

// socketQueue bounds what an in-memory socket holds, as a receive buffer does.
const socketQueue = 4096

// Network is an in-memory UDP network. Its sockets stand in for underlay.Conn
// on both of a gateway's sides; no root, no ports, no kernel.
type Network struct {
	mu      sync.RWMutex
	sockets map[netip.AddrPort]*Socket
	impair  func(src, dst netip.AddrPort, payload []byte) Fate
}

// Fate is what an impairment does to a datagram.
type Fate struct {
	Drop      bool
	Duplicate bool
	Delay     time.Duration
}

// NewNetwork returns a network without sockets.
func NewNetwork() *Network {
	return &Network{sockets: make(map[netip.AddrPort]*Socket)}
}

// Impair decides the fate of every datagram from now on; nil ends it.
func (n *Network) Impair(f func(src, dst netip.AddrPort, payload []byte) Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.impair = f
}

// Listen opens a socket. Port 0 takes a free one; a socket already there is
// replaced, as a restarted process replaces its predecessor.
func (n *Network) Listen(addr netip.AddrPort) *Socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	for port := uint16(49152); addr.Port() == 0; port++ {
		if a := netip.AddrPortFrom(addr.Addr(), port); n.sockets[a] == nil {
			addr = a
		}
	}
	s := n.newSocket(addr)
	n.sockets[addr] = s
	return s
}

// ListenShared opens several sockets on one address, as underlay.ListenShared does: what
// comes from one port of one host comes to one of them.
func (n *Network) ListenShared(addr netip.AddrPort, sockets int) []*Socket {
	first := n.Listen(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	first.group = []*Socket{first}
	for len(first.group) < sockets {
		first.group = append(first.group, n.newSocket(first.addr))
	}
	return first.group
}

func (n *Network) newSocket(addr netip.AddrPort) *Socket {
	return &Socket{network: n, addr: addr, queue: make(chan datagram, socketQueue), woken: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Alias gives a socket's host another address.
func (n *Network) Alias(s *Socket, addr netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sockets[netip.AddrPortFrom(addr, s.addr.Port())] = s
}

type datagram struct {
	origin underlay.Origin
	data   []byte
}

// Socket is a UDP socket of a Network. It implements tunnel.Socket and
// dataplane.Underlay.
type Socket struct {
	network *Network
	addr    netip.AddrPort
	queue   chan datagram
	woken   chan struct{}
	closed  chan struct{}
	once    sync.Once
	group   []*Socket // of the first of several on one address: all of them

	reads, readDatagrams, writes, writeDatagrams, overruns atomic.Uint64
}

// ReadBatch has the semantics of underlay.Conn.
func (s *Socket) ReadBatch(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
	d, err := s.wait()
	if err != nil {
		return 0, err
	}
	n := 0
	for ok := true; ok; d, ok = s.another() {
		sizes[n], from[n] = copy(bufs[n], d.data), d.origin
		if n++; n == len(bufs) {
			break
		}
	}
	s.reads.Add(1)
	s.readDatagrams.Add(uint64(n))
	return n, nil
}

// WaitMessages has the semantics of underlay.Conn with GRO: datagrams of one size that
// follow each other from one sender make one message.
func (s *Socket) WaitMessages(bufs [][]byte, ms []underlay.Message) (n int, err error) {
	d, err := s.wait()
	if err != nil {
		return 0, err
	}
	datagrams := uint64(0)
	for ok := true; ok; d, ok = s.another() {
		datagrams++
		if n > 0 && joins(&ms[n-1], d) {
			ms[n-1].Data = append(ms[n-1].Data, d.data...)
			continue
		}
		k := copy(bufs[n], d.data)
		ms[n] = underlay.Message{Data: bufs[n][:k], Segment: k, Origin: d.origin}
		if n++; n == len(bufs) {
			break // the rest of a run waits for the next read, as in the kernel
		}
	}
	s.reads.Add(1)
	s.readDatagrams.Add(datagrams)
	return n, nil
}

// joins tells whether a datagram goes on the run in m: none after a shorter one.
func joins(m *underlay.Message, d datagram) bool {
	return d.origin == m.Origin && 0 < len(d.data) && len(d.data) <= m.Segment && len(m.Data)%m.Segment == 0 &&
		len(m.Data)+len(d.data) <= cap(m.Data)
}

// wait waits for a datagram.
func (s *Socket) wait() (datagram, error) {
	select {
	case <-s.woken:
		return datagram{}, underlay.ErrWoken
	default:
	}
	select {
	case <-s.woken:
		return datagram{}, underlay.ErrWoken
	case <-s.closed:
		return datagram{}, net.ErrClosed
	case d := <-s.queue:
		return d, nil
	}
}

// another returns a datagram that is there already.
func (s *Socket) another() (d datagram, ok bool) {
	select {
	case d = <-s.queue:
		return d, true
	default:
		return d, false
	}
}

// WriteBatch has the semantics of underlay.Conn. Datagrams to nobody are lost.
func (s *Socket) WriteBatch(ds []underlay.Datagram) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
	}
	s.network.mu.RLock()
	impair := s.network.impair
	s.network.mu.RUnlock()
	for _, d := range ds {
		data := make([]byte, 0, len(d.Head)+len(d.Body))
		data = append(append(data, d.Head...), d.Body...)
		origin := underlay.Origin{Addr: s.addr, Local: d.Addr.Addr(), ECN: d.ECN}
		if d.Local.IsValid() {
			origin.Addr = netip.AddrPortFrom(d.Local, s.addr.Port())
		}
		var fate Fate
		if impair != nil {
			fate = impair(s.addr, d.Addr, data)
		}
		switch {
		case fate.Drop:
		case fate.Delay > 0:
			time.AfterFunc(fate.Delay, func() { s.network.deliver(origin, d.Addr, data) })
		default:
			s.network.deliver(origin, d.Addr, data)
			if fate.Duplicate {
				s.network.deliver(origin, d.Addr, data)
			}
		}
	}
	s.writes.Add(1)
	s.writeDatagrams.Add(uint64(len(ds)))
	return len(ds), nil
}

// TryWriteBatch has the semantics of underlay.Conn: nothing here waits.
func (s *Socket) TryWriteBatch(ds []underlay.Datagram) (int, error) { return s.WriteBatch(ds) }

func (n *Network) deliver(origin underlay.Origin, dst netip.AddrPort, data []byte) {
	n.mu.RLock()
	s := n.sockets[dst]
	if s != nil && len(s.group) > 1 {
		host := origin.Addr.Addr().As16()
		s = s.group[(int(host[15])+int(origin.Addr.Port()))%len(s.group)]
	}
	n.mu.RUnlock()
	if s == nil {
		return
	}
	select {
	case s.queue <- datagram{origin, data}:
	default:
		s.overruns.Add(1)
	}
}

// Wake makes a blocked or the next ReadBatch return underlay.ErrWoken.
func (s *Socket) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// LocalAddr returns the address that the socket was opened with.
func (s *Socket) LocalAddr() netip.AddrPort { return s.addr }

// Close ends the socket; a blocked ReadBatch returns net.ErrClosed.
func (s *Socket) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.network.mu.Lock()
		maps.DeleteFunc(s.network.sockets, func(_ netip.AddrPort, other *Socket) bool { return other == s })
		s.network.mu.Unlock()
	})
	return nil
}

// Stats returns what went through the socket.
func (s *Socket) Stats() underlay.Stats {
	return underlay.Stats{
		Reads: s.reads.Load(), ReadDatagrams: s.readDatagrams.Load(),
		Writes: s.writes.Load(), WriteDatagrams: s.writeDatagrams.Load(),
		Overruns: s.overruns.Load(),
	}
}
