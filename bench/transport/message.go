package transport

import (
	"crypto/cipher"
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"
)

// A transport data message, WireGuard paper section 5.4.6: type and three
// reserved bytes, the receiver's index, the counter; then the sealed packet.
const (
	// HeaderLen and TagLen are what stands before and behind a sealed packet.
	HeaderLen = 16
	TagLen    = chacha20poly1305.Overhead
	// Overhead is what a message is longer than its packet.
	Overhead = HeaderLen + TagLen

	// Padding is what the length of a packet is rounded up to.
	Padding = 16
)

// The types of messages, in the first byte.
const (
	TypeInitiation = 1
	TypeResponse   = 2
	TypeCookie     = 3
	TypeData       = 4
)

// KeyLen is the length of every key of WireGuard.
const KeyLen = chacha20poly1305.KeySize

// Nonce is room for the nonce of one message: 32 zero bits and the counter. It
// is the caller's, one for each thread, because what the cipher gets through its
// interface would be allocated each time otherwise.
type Nonce [chacha20poly1305.NonceSize]byte

func (n *Nonce) set(counter uint64) []byte {
	binary.LittleEndian.PutUint64(n[4:], counter)
	return n[:]
}

// SendKey seals packets. Any number of threads may use one.
type SendKey struct {
	aead     cipher.AEAD
	receiver uint32
	next     atomic.Uint64
}

// NewSendKey returns the key for packets to the session that the peer knows by
// the index receiver.
func NewSendKey(key [KeyLen]byte, receiver uint32) *SendKey {
	return &SendKey{aead: newAEAD(key), receiver: receiver}
}

func newAEAD(key [KeyLen]byte) cipher.AEAD {
	aead, err := chacha20poly1305.New(key[:])
	if err != nil {
		panic(err) // it minds nothing but the length
	}
	return aead
}

// Reserve takes n counters and returns the first.
func (k *SendKey) Reserve(n int) (first uint64) {
	return k.next.Add(uint64(n)) - uint64(n)
}

// Used is how many counters were taken.
func (k *SendKey) Used() uint64 { return k.next.Load() }

// Seal makes the message that carries plain, at the start of dst, and returns its
// length. dst has room for Overhead more than plain; they are disjoint, or
// plain stands at dst[HeaderLen] already.
func (k *SendKey) Seal(dst, plain []byte, counter uint64, n *Nonce) int {
	_ = dst[HeaderLen-1]
	binary.LittleEndian.PutUint32(dst, TypeData)
	binary.LittleEndian.PutUint32(dst[4:], k.receiver)
	binary.LittleEndian.PutUint64(dst[8:], counter)
	k.aead.Seal(dst[HeaderLen:HeaderLen], n.set(counter), plain, nil)
	return len(plain) + Overhead
}

// PaddedLen is the length of a packet with its padding, which ends at the MTU
// as in other implementations.
func PaddedLen(n, mtu int) int {
	return max(n, min((n+Padding-1)&^(Padding-1), mtu))
}

// ReceiveKey opens messages. It belongs to one thread.
type ReceiveKey struct {
	aead   cipher.AEAD
	window window
}

// NewReceiveKey returns the key for what comes to one of our indices.
func NewReceiveKey(key [KeyLen]byte) *ReceiveKey {
	return &ReceiveKey{aead: newAEAD(key)}
}

// Open opens a data message in place and returns the packet with its padding,
// which is empty for a keepalive. It refuses what was not sealed with the key,
// and what came before.
func (k *ReceiveKey) Open(message []byte, n *Nonce) (packet []byte, ok bool) {
	if len(message) < Overhead {
		return nil, false
	}
	counter := binary.LittleEndian.Uint64(message[8:])
	sealed := message[HeaderLen:]
	packet, err := k.aead.Open(sealed[:0], n.set(counter), sealed, nil)
	if err != nil || !k.window.accept(counter) {
		return nil, false
	}
	return packet, true
}

// Receiver is the index in a data message, and whether it is one.
func Receiver(message []byte) (index uint32, ok bool) {
	if len(message) < Overhead || binary.LittleEndian.Uint32(message) != TypeData {
		return 0, false
	}
	return binary.LittleEndian.Uint32(message[4:]), true
}
