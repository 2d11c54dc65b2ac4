package transport

import (
	"bytes"
	"testing"
	"time"
)

// inMemory is a Peer whose messages are kept instead of sent.
type inMemory struct {
	*Peer
	sent  [][]byte
	clock time.Time
}

// twoPeers returns both ends of a tunnel.
func twoPeers(t *testing.T) (a, b *inMemory) {
	t.Helper()
	privateA, publicA := newKeys(t)
	privateB, publicB := newKeys(t)
	for _, end := range []struct {
		p             **inMemory
		private, peer [KeyLen]byte
	}{{&a, privateA, publicB}, {&b, privateB, publicA}} {
		p, err := NewPeer(end.private, end.peer)
		if err != nil {
			t.Fatal(err)
		}
		m := &inMemory{Peer: p, clock: time.Now()}
		p.now = func() time.Time { return m.clock }
		p.Attach(func(message []byte) { m.sent = append(m.sent, bytes.Clone(message)) })
		*end.p = m
	}
	return a, b
}

// take returns the one message that was sent.
func (m *inMemory) take(t *testing.T) []byte {
	t.Helper()
	if len(m.sent) != 1 {
		t.Fatalf("%d messages were sent, want 1", len(m.sent))
	}
	message := m.sent[0]
	m.sent = nil
	return message
}

// opens reports whether a message opens, and confirms its session.
func (m *inMemory) opens(message []byte) bool {
	index, ok := Receiver(message)
	if !ok {
		return false
	}
	key := m.Receiver(index)
	if key == nil {
		return false
	}
	if _, ok := key.Open(message, new(Nonce)); !ok {
		return false
	}
	m.Confirm(index)
	return true
}

func TestHandshake(t *testing.T) {
	a, b := twoPeers(t)
	if a.Sender() != nil {
		t.Fatal("a key out of nothing")
	}
	b.Control(a.take(t))
	if b.Sender() != nil {
		t.Error("the responder sends before the initiator has shown that it is there")
	}
	b.sent = b.sent[:1] // that attempt begins a handshake of its own
	a.Control(b.take(t))
	if a.Sender() == nil {
		t.Fatal("no session")
	}
	if keepalive := a.take(t); len(keepalive) != Overhead || !b.opens(keepalive) {
		t.Errorf("a first message of %d bytes that does not open", len(keepalive))
	}
	if b.Sender() == nil {
		t.Error("no session at the responder")
	}
}

func TestForgedHandshakesHaveNoEffect(t *testing.T) {
	a, b := twoPeers(t)
	a.Sender()
	initiation := a.take(t)
	for i := 4; i < len(initiation)-macLen; i++ { // all but type and mac2
		forged := bytes.Clone(initiation)
		forged[i] ^= 1
		b.Control(forged)
	}
	b.Control(initiation[:len(initiation)-1])
	b.Control(nil)
	stranger, _ := twoPeers(t)
	stranger.id.peer, stranger.id.macPeer, stranger.id.shared = b.id.private.PublicKey(), b.id.macUs, a.id.shared
	stranger.Sender()
	b.Control(stranger.take(t))
	if len(b.sent) != 0 || b.next != nil {
		t.Fatalf("%d forged initiations were answered", len(b.sent))
	}

	b.Control(initiation)
	response := b.take(t)
	b.Control(initiation) // again
	if len(b.sent) != 0 {
		t.Error("a replayed initiation was answered")
	}
	for i := 8; i < len(response)-macLen; i++ {
		forged := bytes.Clone(response)
		forged[i] ^= 1
		a.Control(forged)
	}
	if a.current.Load() != nil {
		t.Error("a forged response made a session")
	}
	a.Control(response)
	if !b.opens(a.take(t)) {
		t.Error("no session after all that")
	}
}

func TestLostHandshakesAreRepeated(t *testing.T) {
	a, _ := twoPeers(t)
	a.Sender()
	first := a.take(t)
	a.clock = a.clock.Add(rekeyTimeout - 1)
	if a.Sender(); len(a.sent) != 0 {
		t.Error("repeated too early")
	}
	a.clock = a.clock.Add(1)
	a.Sender()
	if bytes.Equal(a.take(t), first) {
		t.Error("the same message again")
	}
}

func TestSessionsEnd(t *testing.T) {
	a, b := twoPeers(t)
	a.Sender()
	b.Control(a.take(t))
	a.Control(b.take(t))
	keepalive := a.take(t)
	b.clock = b.clock.Add(rejectAfterTime)
	if b.opens(keepalive) {
		t.Error("opened with a key that is too old")
	}
}
