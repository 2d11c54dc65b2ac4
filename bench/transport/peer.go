package transport

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

// Times and limits of the WireGuard paper, section 6.1.
const (
	rekeyAfterTime     = 120 * time.Second
	rejectAfterTime    = 180 * time.Second
	rekeyTimeout       = 5 * time.Second
	rekeyAfterMessages = 1 << 60
)

// Peer is the tunnel to one peer, with sessions. Sender belongs to the thread that
// seals, Receiver, Confirm and Control to the one that opens. There is no
// timer: a session is begun and renewed by what is sent.
type Peer struct {
	id    identity
	write func(message []byte)
	now   func() time.Time

	current atomic.Pointer[session] // to send with

	// Further sessions to receive with, of the thread that opens: the one before
	// current, and one that the peer has begun and not used yet.
	previous, next *session
	newest         [timestampLen]byte // of all initiations

	mu        sync.Mutex // guards what follows
	pending   *initiation
	initiated time.Time // when pending began
}

// session is a pair of keys.
type session struct {
	index   uint32 // ours
	send    *SendKey
	receive *ReceiveKey
	since   time.Time
	// ours: we began it, so it is for us to begin the one after it.
	ours bool
}

// NewPeer returns the tunnel between the owner of a private key and a peer.
func NewPeer(private, peer [KeyLen]byte) (*Peer, error) {
	id, err := newIdentity(private, peer)
	return &Peer{id: id, now: time.Now}, err
}

// Attach says how messages are sent to the peer; any thread may be asked to.
func (p *Peer) Attach(write func(message []byte)) { p.write = write }

// Sender returns the key to seal with, nil while there is none. It begins a
// handshake when one is due.
func (p *Peer) Sender() *SendKey {
	now, s := p.now(), p.current.Load()
	if s == nil || now.Sub(s.since) >= rejectAfterTime || s.send.Used() >= rejectAfterMessages {
		p.initiate(now)
		return nil
	}
	if s.ours && now.Sub(s.since) >= rekeyAfterTime || s.send.Used() >= rekeyAfterMessages {
		p.initiate(now)
	}
	return s.send
}

// initiate begins a handshake, unless one was begun a moment ago.
func (p *Peer) initiate(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending != nil && now.Sub(p.initiated) < rekeyTimeout {
		return
	}
	h, message, err := p.id.initiate(newIndex(), now)
	if err != nil {
		return // a peer whose key is no point of the curve
	}
	p.pending, p.initiated = h, now
	p.write(message)
}

// newIndex chooses an index. That two sessions of one peer get the same is as good as
// impossible.
func newIndex() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return binary.LittleEndian.Uint32(b[:])
}

// Receiver returns the key to open what came for one of our indices, nil if there
// is none.
func (p *Peer) Receiver(index uint32) *ReceiveKey {
	for _, s := range []*session{p.current.Load(), p.next, p.previous} {
		if s != nil && s.index == index && p.now().Sub(s.since) < rejectAfterTime {
			return s.receive
		}
	}
	return nil
}

// Confirm says that a message for an index was genuine: the peer has the session's
// keys, so they may be sent with.
func (p *Peer) Confirm(index uint32) {
	if s := p.next; s != nil && s.index == index {
		p.next = nil
		p.install(s)
	}
}

func (p *Peer) install(s *session) {
	p.previous = p.current.Load()
	p.current.Store(s)
}

// Control takes a message of a handshake. What is not right is dropped without a
// word, as are cookies: this end is never told to prove its address.
func (p *Peer) Control(message []byte) {
	if len(message) < 4 {
		return
	}
	switch binary.LittleEndian.Uint32(message) {
	case TypeInitiation:
		p.respond(message)
	case TypeResponse:
		p.finish(message)
	}
}

// respond answers an initiation.
func (p *Peer) respond(message []byte) {
	r, ok := p.id.readInitiation(message)
	if !ok || bytes.Compare(r.timestamp[:], p.newest[:]) <= 0 {
		return // section 5.1: an initiation that is replayed must not end a session
	}
	p.newest = r.timestamp
	index := newIndex()
	response, k, err := p.id.respond(&r, index)
	if err != nil {
		return
	}
	p.next = newSession(k, index, r.sender, p.now())
	p.write(response)
}

// finish takes the response to our initiation.
func (p *Peer) finish(message []byte) {
	p.mu.Lock()
	h := p.pending
	p.mu.Unlock()
	if h == nil {
		return
	}
	sender, k, ok := p.id.readResponse(h, message)
	if !ok {
		return
	}
	p.mu.Lock()
	if p.pending == h {
		p.pending = nil
	}
	p.mu.Unlock()
	s := newSession(k, h.index, sender, p.now())
	s.ours = true
	p.install(s)
	// The peer may send only after it got something: an empty packet, if nothing else.
	keepalive := make([]byte, Overhead)
	s.send.Seal(keepalive, nil, s.send.Reserve(1), new(Nonce))
	p.write(keepalive)
}

func newSession(k keys, index, sender uint32, now time.Time) *session {
	return &session{index: index, send: NewSendKey(k.send, sender), receive: NewReceiveKey(k.receive), since: now}
}
