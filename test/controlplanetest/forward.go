package controlplanetest

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// backend is one pod behind a Service.
type backend struct {
	node string
	addr netip.AddrPort
}

// forward carries UDP between the clients of one socket and backends. Each
// client has an upstream socket of its own, as with a proxy that translates
// source addresses, and stays with its backend as long as there is that
// backend.
type forward struct {
	conn *net.UDPConn
	wg   sync.WaitGroup
	// lose is what gets lost on the way: nothing, or one of the directions.
	lose atomic.Pointer[string]

	mu       sync.Mutex
	backends []backend
	next     int
	clients  map[netip.AddrPort]*upstream
}

type upstream struct {
	to   netip.AddrPort
	conn *net.UDPConn
}

func newForward(listen netip.AddrPort) (*forward, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(listen))
	if err != nil {
		return nil, err
	}
	const buffer = 4 << 20 // for bursts of a whole TCP window
	_, _ = conn.SetReadBuffer(buffer), conn.SetWriteBuffer(buffer)
	f := &forward{conn: conn, clients: make(map[netip.AddrPort]*upstream)}
	f.wg.Go(f.run)
	return f, nil
}

// loses tells whether what goes in a direction gets lost.
func (f *forward) loses(direction string) bool {
	lose := f.lose.Load()
	return lose != nil && *lose == direction
}

// set exchanges the backends. Clients of one that is gone move with their next
// datagram.
func (f *forward) set(to []backend) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backends = to
	for client, u := range f.clients {
		if !f.servesLocked(u.to) {
			u.conn.Close()
			delete(f.clients, client)
		}
	}
}

func (f *forward) servesLocked(addr netip.AddrPort) bool {
	return slices.ContainsFunc(f.backends, func(b backend) bool { return b.addr == addr })
}

func (f *forward) close() {
	f.conn.Close()
	f.set(nil)
	f.wg.Wait()
}

// run carries datagrams towards the backends.
func (f *forward) run() {
	b := make([]byte, 65536)
	for {
		n, client, err := f.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if f.loses(LoseIn) {
			continue
		}
		if u := f.upstream(client); u != nil {
			_, _ = u.conn.Write(b[:n]) // lost, as UDP may be: the backend is not there yet, or not any more
		}
	}
}

// upstream returns the socket of a client, or nil if there is no backend.
func (f *forward) upstream(client netip.AddrPort) *upstream {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u := f.clients[client]; u != nil {
		return u
	}
	if len(f.backends) == 0 {
		return nil
	}
	to := f.backends[f.next%len(f.backends)].addr
	f.next++
	local, _ := f.conn.LocalAddr().(*net.UDPAddr)
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: local.IP}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil
	}
	u := &upstream{to: to, conn: conn}
	f.clients[client] = u
	f.wg.Go(func() { f.answer(client, u) })
	return u
}

// answer carries datagrams back to a client.
func (f *forward) answer(client netip.AddrPort, u *upstream) {
	b := make([]byte, 65536)
	for {
		n, err := u.conn.Read(b)
		if err != nil {
			if isClosed(err) {
				return
			}
			continue // nobody listens yet
		}
		if !f.loses(LoseOut) {
			_, _ = f.conn.WriteToUDPAddrPort(b[:n], client)
		}
	}
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
