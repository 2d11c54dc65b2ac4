package lab

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// KeyPair is a Curve25519 key pair of WireGuard.
type KeyPair struct {
	private *ecdh.PrivateKey
}

// NewKeyPair returns a fresh key pair.
func NewKeyPair() KeyPair {
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return KeyPair{private: k}
}

// Private returns the private key as manifests and wg(8) write it. These keys
// protect nothing but the packets of one test.
func (k KeyPair) Private() string { return base64.StdEncoding.EncodeToString(k.private.Bytes()) }

// Public returns the public key as manifests and wg(8) write it.
func (k KeyPair) Public() string {
	return base64.StdEncoding.EncodeToString(k.PublicBytes())
}

// PublicBytes returns the public key as WireGuard's messages hold it.
func (k KeyPair) PublicBytes() []byte { return k.private.PublicKey().Bytes() }

// privateHex returns the private key as the UAPI protocol writes it.
func (k KeyPair) privateHex() string { return hex.EncodeToString(k.private.Bytes()) }
