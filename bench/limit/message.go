package limit

import (
	"crypto/cipher"
	"encoding/binary"

	"golang.org/x/crypto/chacha20poly1305"
)

// A transport data message, WireGuard paper section 5.4.6: type and three
// reserved bytes, the receiver's index, the counter; then the sealed packet.
const (
	// dataHeaderLen and tagLen are what stands before and behind a sealed packet.
	dataHeaderLen = 16
	tagLen        = chacha20poly1305.Overhead
	// overhead is what a message is longer than its packet.
	overhead = dataHeaderLen + tagLen

	// padding is what the length of a packet is rounded up to.
	padding = 16

	// typeData is the type, in the first byte.
	typeData = 4
)

// Key is a key of the tunnel.
type Key [chacha20poly1305.KeySize]byte

func (k *Key) aead() cipher.AEAD {
	aead, err := chacha20poly1305.New(k[:])
	if err != nil {
		panic(err) // it minds nothing but the length
	}
	return aead
}

// nonce is 32 zero bits and the counter. It stands beside the key, because what
// the cipher gets through its interface would be allocated each time otherwise.
type nonce [chacha20poly1305.NonceSize]byte

func (n *nonce) set(counter uint64) []byte {
	binary.LittleEndian.PutUint64(n[4:], counter)
	return n[:]
}

// sendKey seals packets. It belongs to one thread.
type sendKey struct {
	aead  cipher.AEAD
	next  uint64 // counter
	nonce nonce
}

func newSendKey(key Key) *sendKey { return &sendKey{aead: key.aead()} }

// seal makes the message that carries plain, at the start of dst, and returns its
// length. dst has room for overhead more than plain; they are disjoint, or
// plain stands at dst[dataHeaderLen] already.
func (k *sendKey) seal(dst, plain []byte) int {
	counter := k.next
	k.next++
	_ = dst[dataHeaderLen-1]
	binary.LittleEndian.PutUint32(dst, typeData)
	binary.LittleEndian.PutUint32(dst[4:], 0) // the index of the only session there is
	binary.LittleEndian.PutUint64(dst[8:], counter)
	k.aead.Seal(dst[dataHeaderLen:dataHeaderLen], k.nonce.set(counter), plain, nil)
	return len(plain) + overhead
}

// paddedLen is the length of a packet with its padding, which ends at the MTU
// as in other implementations.
func paddedLen(n, mtu int) int {
	return max(n, min((n+padding-1)&^(padding-1), mtu))
}

// receiveKey opens messages. It belongs to one thread.
type receiveKey struct {
	aead   cipher.AEAD
	nonce  nonce
	window window
}

func newReceiveKey(key Key) *receiveKey { return &receiveKey{aead: key.aead()} }

// open opens a data message in place and returns the packet with its padding. It
// refuses what is no data message or was not sealed with the key, and what came
// before.
func (k *receiveKey) open(message []byte) (packet []byte, ok bool) {
	if len(message) < overhead || binary.LittleEndian.Uint32(message) != typeData {
		return nil, false
	}
	counter := binary.LittleEndian.Uint64(message[8:])
	sealed := message[dataHeaderLen:]
	packet, err := k.aead.Open(sealed[:0], k.nonce.set(counter), sealed, nil)
	if err != nil || !k.window.accept(counter) {
		return nil, false
	}
	return packet, true
}
