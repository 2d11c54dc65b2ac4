package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	pemPrivateKey = "PRIVATE KEY"
	pemPublicKey  = "PUBLIC KEY"

	// nonceSize is the size of a nonce in bytes, before it is written as base64.
	nonceSize = 64
	// minRSABits is the size of the smallest RSA key that is accepted.
	minRSABits = 2048
	// maxRSABits bounds the work that somebody else's key costs.
	maxRSABits = 8192
)

// Key is the private key of a cluster. It has no readable form: format verbs print nothing of it.
type Key struct{ signer crypto.Signer }

// GenerateKey makes an Ed25519 key.
func GenerateKey() (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("generate a key: %w", err)
	}
	return Key{private}, nil
}

// GenerateRSAKey makes an RSA key, of the smallest size that is accepted.
func GenerateRSAKey() (Key, error) {
	private, err := rsa.GenerateKey(rand.Reader, minRSABits)
	if err != nil {
		return Key{}, fmt.Errorf("generate a key: %w", err)
	}
	return Key{private}, nil
}

// ParseKey reads a private key: PEM, PKCS #8, of Ed25519, ECDSA or RSA.
func ParseKey(text []byte) (Key, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemPrivateKey {
		return Key{}, fmt.Errorf("no PEM block of type %q", pemPrivateKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, errors.New("no private key in PKCS #8") // the cause could quote it
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok || judgePublicKey(signer.Public()) != nil {
		return Key{}, errors.New("the private key is none of Ed25519, ECDSA, or RSA with 2048 to 8192 bits")
	}
	return Key{signer}, nil
}

// MarshalPrivate returns the key as PEM, PKCS #8.
func (k Key) MarshalPrivate() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.signer)
	if err != nil {
		return nil, errors.New("marshal the private key")
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// MarshalPublic returns the public key as PEM, PKIX.
func (k Key) MarshalPublic() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k.signer.Public())
	if err != nil {
		return nil, fmt.Errorf("marshal the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der}), nil
}

// Public returns the public key.
func (k Key) Public() (crypto.PublicKey, error) {
	if k.signer == nil {
		return nil, errors.New("there is no key")
	}
	return k.signer.Public(), nil
}

// String keeps the key out of logs.
func (Key) String() string { return "(private key)" }

// GoString keeps the key out of logs.
func (Key) GoString() string { return "credentials.Key{}" }

// ParsePublicKey reads the public key of another cluster: PEM (PKIX) of Ed25519, ECDSA or RSA, or the 32 bytes of an
// Ed25519 key, as consumers before Liqo 1.0.2 send it.
func ParsePublicKey(text []byte) (crypto.PublicKey, error) {
	if len(text) == ed25519.PublicKeySize {
		return ed25519.PublicKey(text), nil
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != pemPublicKey || len(rest) > 0 {
		return nil, fmt.Errorf("not one PEM block of type %q", pemPublicKey)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("no public key: %w", err)
	}
	return key, judgePublicKey(key)
}

// judgePublicKey refuses keys that prove nothing or cost too much to use.
func judgePublicKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case ed25519.PublicKey, *ecdsa.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("an RSA key of %d bits; %d to %d are accepted", bits, minRSABits, maxRSABits)
		}
		return nil
	}
	return errors.New("a key of a kind that is none of Ed25519, ECDSA and RSA")
}

// NewNonce makes a nonce: base64 of 64 random bytes.
func NewNonce() []byte {
	var b [nonceSize]byte
	_, _ = rand.Read(b[:]) // it never fails: crypto/rand
	return []byte(base64.StdEncoding.EncodeToString(b[:]))
}

// ValidNonce tells whether a nonce is one that NewNonce could have made. What is signed must be nothing else: a
// signature of a text that another cluster chose could be used as a proof of something else.
func ValidNonce(nonce []byte) bool {
	b, err := base64.StdEncoding.Strict().DecodeString(string(nonce))
	// Decoding ignores line breaks.
	return err == nil && len(b) == nonceSize && base64.StdEncoding.EncodedLen(nonceSize) == len(nonce)
}

// Sign signs a nonce: Ed25519 as it is, RSA (PKCS #1 v1.5) and ECDSA (ASN.1) its SHA-256.
func (k Key) Sign(nonce []byte) ([]byte, error) {
	if !ValidNonce(nonce) {
		return nil, fmt.Errorf("the nonce is not base64 of %d bytes", nonceSize)
	}
	if _, ed := k.signer.Public().(ed25519.PublicKey); ed {
		return k.signer.Sign(rand.Reader, nonce, crypto.Hash(0))
	}
	digest := sha256.Sum256(nonce)
	return k.signer.Sign(rand.Reader, digest[:], crypto.SHA256)
}

// Verify tells whether signature is that of nonce by the owner of the public key.
func Verify(public crypto.PublicKey, nonce, signature []byte) bool {
	if !ValidNonce(nonce) || judgePublicKey(public) != nil {
		return false
	}
	digest := sha256.Sum256(nonce)
	switch key := public.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, nonce, signature)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, digest[:], signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature) == nil
	}
	return false
}
