package main

import (
	"errors"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/underlay"
)

// peerSockets are the sockets towards the peer: one for each tunnel.
type peerSockets struct {
	mu           sync.Mutex
	open         []*peerSocket
	dontFragment bool // what setDontFragment said last
}

// peerSocket is one of them until it is closed.
type peerSocket struct {
	*underlay.Conn
	all *peerSockets
}

// add adds a socket. One that cannot be told not to fragment does.
func (p *peerSockets) add(c *underlay.Conn) *peerSocket {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &peerSocket{c, p}
	p.open = append(p.open, s)
	if p.dontFragment {
		_ = c.SetDontFragment(true)
	}
	return s
}

// Close closes the socket.
func (s *peerSocket) Close() error {
	s.all.mu.Lock()
	s.all.open = slices.DeleteFunc(s.all.open, func(o *peerSocket) bool { return o == s })
	s.all.mu.Unlock()
	return s.Conn.Close()
}

// status describes the sockets as one, with the address of that on a port. ok is false while
// there are none.
func (p *peerSockets) status(port uint16) (s dataplane.SocketStatus, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		if stats := c.Stats(); ok {
			s.Stats = s.Stats.Plus(stats)
		} else {
			s.Stats = stats
		}
		if local := c.LocalAddr(); !ok || local.Port() == port {
			s.LocalAddr = local
		}
		s.Sockets++
		ok = true
	}
	return s, ok
}

// setDontFragment is underlay.Conn.SetDontFragment for all sockets.
func (p *peerSockets) setDontFragment(on bool) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dontFragment = on
	for _, c := range p.open {
		err = errors.Join(err, c.SetDontFragment(on))
	}
	return err
}
