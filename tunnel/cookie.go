package tunnel

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/underlay"
)

// This file sends cookie replies in batches. Under load WireGuard answers each initiation
// without a cookie by one (paper section 5.3), so in a flood from forged addresses they are
// most of what a gateway sends. One by one they cost a system call each.

// cookieDelay is how long a cookie reply waits for others at most. Who gets it begins a
// handshake again after REKEY_TIMEOUT, 5 s, or half a second as a gateway of ours does when
// keys have changed.
const cookieDelay = time.Millisecond

// cookies are the replies that wait. Its methods are for many goroutines.
type cookies struct {
	send func([]underlay.Datagram)

	mu      sync.Mutex
	bodies  [BatchSize][cookieReplyLen]byte
	replies [BatchSize]underlay.Datagram
	n       int
	timer   *time.Timer // runs while one waits
}

func newCookies(send func([]underlay.Datagram)) *cookies {
	c := &cookies{send: send}
	c.timer = time.AfterFunc(time.Hour, c.flush)
	c.timer.Stop()
	return c
}

// add has a reply sent. It copies it.
func (c *cookies) add(reply []byte, to *endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := c.bodies[c.n][:copy(c.bodies[c.n][:], reply)]
	c.replies[c.n] = underlay.Datagram{Addr: to.addr, Local: to.local, Body: body}
	switch c.n++; c.n {
	case 1:
		c.timer.Reset(cookieDelay)
	case BatchSize:
		c.timer.Stop()
		c.flushLocked()
	}
}

func (c *cookies) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
}

func (c *cookies) flushLocked() {
	if c.n > 0 {
		c.send(c.replies[:c.n])
		c.n = 0
	}
}
