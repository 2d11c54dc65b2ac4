package transport

import (
	"crypto/hmac"
	"hash"

	"golang.org/x/crypto/blake2s"
)

// The primitives of the handshake, by the names of the WireGuard paper, section 5.4.

// What goes into the first hashes.
const (
	construction = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
	identifier   = "WireGuard v1 zx2c4 Jason@zx2c4.com"
	labelMAC1    = "mac1----"
)

type digest = [blake2s.Size]byte

// hashOf is HASH over all parts.
func hashOf(parts ...[]byte) (sum digest) {
	h := newBlake2s()
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}

func newBlake2s() hash.Hash {
	h, err := blake2s.New256(nil)
	if err != nil {
		panic(err) // it minds nothing but the length of a key
	}
	return h
}

// macLen is the length of mac1 and mac2.
const macLen = blake2s.Size128

// mac is MAC, the keyed hash of 16 bytes.
func mac(key, message []byte) (sum [macLen]byte) {
	h, err := blake2s.New128(key)
	if err != nil {
		panic(err) // likewise
	}
	h.Write(message)
	h.Sum(sum[:0])
	return sum
}

// kdf is KDF1 to KDF3: it fills all of out.
func kdf(key digest, input []byte, out ...*digest) {
	hmacOf := func(key []byte, parts ...[]byte) (sum digest) {
		h := hmac.New(newBlake2s, key)
		for _, p := range parts {
			h.Write(p)
		}
		h.Sum(sum[:0])
		return sum
	}
	secret := hmacOf(key[:], input)
	var last []byte
	for i, o := range out {
		*o = hmacOf(secret[:], last, []byte{byte(i + 1)})
		last = o[:]
	}
}

// symmetric is the state of a handshake that both sides follow: the chaining key C
// and the hash H.
type symmetric struct{ chain, hash digest }

// newSymmetric begins a handshake with the responder whose static key is given.
func newSymmetric(responder []byte) (s symmetric) {
	s.chain = hashOf([]byte(construction))
	s.hash = hashOf(s.chain[:], []byte(identifier))
	s.mixHash(responder)
	return s
}

func (s *symmetric) mixHash(b []byte) { s.hash = hashOf(s.hash[:], b) }

// mixKey takes in a shared secret or a public key and returns the key for what is
// sealed next.
func (s *symmetric) mixKey(input []byte) (key digest) {
	kdf(s.chain, input, &s.chain, &key)
	return key
}

// mixPublic takes in an ephemeral public key, which nothing is sealed with.
func (s *symmetric) mixPublic(key []byte) {
	kdf(s.chain, key, &s.chain)
	s.mixHash(key)
}

// mixPreshared takes in the preshared key, which is zero here.
func (s *symmetric) mixPreshared() (key digest) {
	var preshared, mixed digest
	kdf(s.chain, preshared[:], &s.chain, &mixed, &key)
	s.mixHash(mixed[:])
	return key
}

// seal appends plain, sealed, to b.
func (s *symmetric) seal(b []byte, key digest, plain []byte) []byte {
	at := len(b)
	b = newAEAD(key).Seal(b, new(Nonce).set(0), plain, s.hash[:])
	s.mixHash(b[at:])
	return b
}

// open undoes seal.
func (s *symmetric) open(key digest, sealed []byte) (plain []byte, ok bool) {
	plain, err := newAEAD(key).Open(nil, new(Nonce).set(0), sealed, s.hash[:])
	s.mixHash(sealed)
	return plain, err == nil
}
