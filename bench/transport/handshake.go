package transport

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"time"
)

// The messages of a handshake, WireGuard paper sections 5.4.2 and 5.4.3. Both end
// with mac1 and mac2, of which the latter is for cookies and zero here.
const (
	timestampLen = 12 // TAI64N

	// type, sender, ephemeral, static, timestamp
	initiationLen = 8 + KeyLen + KeyLen + TagLen + timestampLen + TagLen + 2*macLen
	// type, sender, receiver, ephemeral, nothing
	responseLen = 12 + KeyLen + TagLen + 2*macLen
)

// identity is what both ends' static keys make.
type identity struct {
	private *ecdh.PrivateKey
	peer    *ecdh.PublicKey
	shared  []byte // DH of both
	// What mac1 is keyed with, in messages to us and to the peer.
	macUs, macPeer digest
}

func newIdentity(private, peer [KeyLen]byte) (id identity, err error) {
	if id.private, err = ecdh.X25519().NewPrivateKey(private[:]); err != nil {
		return id, fmt.Errorf("private key: %w", err)
	}
	if id.peer, err = ecdh.X25519().NewPublicKey(peer[:]); err != nil {
		return id, fmt.Errorf("the peer's key: %w", err)
	}
	if id.shared, err = id.private.ECDH(id.peer); err != nil {
		return id, fmt.Errorf("the peer's key: %w", err)
	}
	id.macUs = hashOf([]byte(labelMAC1), id.private.PublicKey().Bytes())
	id.macPeer = hashOf([]byte(labelMAC1), id.peer.Bytes())
	return id, nil
}

// sign appends mac1 and an empty mac2.
func (id *identity) sign(b []byte) []byte {
	sum := mac(id.macPeer[:], b)
	return append(append(b, sum[:]...), make([]byte, macLen)...)
}

// signed reports whether mac1 of a message to us is right.
func (id *identity) signed(message []byte) bool {
	body := message[:len(message)-2*macLen]
	sum := mac(id.macUs[:], body)
	return subtle.ConstantTimeCompare(sum[:], message[len(body):len(body)+macLen]) == 1
}

// initiation is a handshake that waits for its response.
type initiation struct {
	symmetric
	index     uint32
	ephemeral *ecdh.PrivateKey
}

// initiate begins a handshake and returns its first message.
func (id *identity) initiate(index uint32, now time.Time) (*initiation, []byte, error) {
	ephemeral, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	shared, err := ephemeral.ECDH(id.peer)
	if err != nil {
		return nil, nil, err
	}
	h := &initiation{symmetric: newSymmetric(id.peer.Bytes()), index: index, ephemeral: ephemeral}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, initiationLen), TypeInitiation)
	b = binary.LittleEndian.AppendUint32(b, index)
	b = append(b, ephemeral.PublicKey().Bytes()...)
	h.mixPublic(ephemeral.PublicKey().Bytes())
	b = h.seal(b, h.mixKey(shared), id.private.PublicKey().Bytes())
	stamp := timestamp(now)
	b = h.seal(b, h.mixKey(id.shared), stamp[:])
	return h, id.sign(b), nil
}

// timestamp is now in TAI64N, https://cr.yp.to/libtai/tai64.html. That leap seconds
// are ignored does not matter: it only has to grow.
func timestamp(now time.Time) (b [timestampLen]byte) {
	binary.BigEndian.PutUint64(b[:], 1<<62+10+uint64(now.Unix()))
	binary.BigEndian.PutUint32(b[8:], uint32(now.Nanosecond()))
	return b
}

// received is an initiation of the peer's.
type received struct {
	symmetric
	sender    uint32
	ephemeral *ecdh.PublicKey
	timestamp [timestampLen]byte
}

// readInitiation checks an initiation. Whether it is newer than others is for the
// caller to know.
func (id *identity) readInitiation(message []byte) (r received, ok bool) {
	if len(message) != initiationLen || !id.signed(message) {
		return r, false
	}
	r.symmetric = newSymmetric(id.private.PublicKey().Bytes())
	r.sender = binary.LittleEndian.Uint32(message[4:])
	rest := message[8:]
	ephemeral, rest := rest[:KeyLen], rest[KeyLen:]
	r.mixPublic(ephemeral)
	var err error
	if r.ephemeral, err = ecdh.X25519().NewPublicKey(ephemeral); err != nil {
		return r, false
	}
	shared, err := id.private.ECDH(r.ephemeral)
	if err != nil {
		return r, false
	}
	static, ok := r.open(r.mixKey(shared), rest[:KeyLen+TagLen])
	if !ok || subtle.ConstantTimeCompare(static, id.peer.Bytes()) != 1 {
		return r, false
	}
	stamp, ok := r.open(r.mixKey(id.shared), rest[KeyLen+TagLen:][:timestampLen+TagLen])
	copy(r.timestamp[:], stamp)
	return r, ok
}

// keys are those of a session: to send with and to receive with.
type keys struct{ send, receive digest }

// respond answers an initiation and returns the message and the session's keys.
func (id *identity) respond(r *received, index uint32) (message []byte, k keys, err error) {
	ephemeral, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, k, err
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, responseLen), TypeResponse)
	b = binary.LittleEndian.AppendUint32(b, index)
	b = binary.LittleEndian.AppendUint32(b, r.sender)
	b = append(b, ephemeral.PublicKey().Bytes()...)
	r.mixPublic(ephemeral.PublicKey().Bytes())
	for _, peer := range []*ecdh.PublicKey{r.ephemeral, id.peer} {
		shared, err := ephemeral.ECDH(peer)
		if err != nil {
			return nil, k, err
		}
		r.mixKey(shared)
	}
	b = r.seal(b, r.mixPreshared(), nil)
	kdf(r.chain, nil, &k.receive, &k.send)
	return id.sign(b), k, nil
}

// readResponse ends a handshake that we began. sender is the peer's index.
func (id *identity) readResponse(h *initiation, message []byte) (sender uint32, k keys, ok bool) {
	if len(message) != responseLen || !id.signed(message) || binary.LittleEndian.Uint32(message[8:]) != h.index {
		return 0, k, false
	}
	s := h.symmetric // a forged response must not spoil it
	public, empty := message[12:12+KeyLen], message[12+KeyLen:][:TagLen]
	s.mixPublic(public)
	ephemeral, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return 0, k, false
	}
	for _, own := range []*ecdh.PrivateKey{h.ephemeral, id.private} {
		shared, err := own.ECDH(ephemeral)
		if err != nil {
			return 0, k, false
		}
		s.mixKey(shared)
	}
	if _, ok := s.open(s.mixPreshared(), empty); !ok {
		return 0, k, false
	}
	kdf(s.chain, nil, &k.send, &k.receive)
	return binary.LittleEndian.Uint32(message[4:]), k, true
}
