package tunnel

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// keyLen is the length of a Curve25519 key (RFC 7748 section 5) in bytes.
const keyLen = 32

// redacted is what every formatting of a private key gives.
const redacted = "(private key)"

// PrivateKey is a Curve25519 private key. It never shows its bytes when it is
// printed, logged or marshalled; key[:] is the way to its bytes. The zero value
// means no key.
type PrivateKey [keyLen]byte

// PublicKey is a Curve25519 public key. The zero value means no key.
type PublicKey [keyLen]byte

// GeneratePrivateKey returns a new random private key.
func GeneratePrivateKey() PrivateKey {
	var k PrivateKey
	rand.Read(k[:]) // never fails: crypto/rand ends the process instead
	// RFC 7748 section 5: any 32 bytes are a key once clamped; stored clamped,
	// as other tools print it.
	k[0] &= 248
	k[31] = k[31]&127 | 64
	return k
}

// IsZero reports whether there is no key.
func (k PrivateKey) IsZero() bool { return k == PrivateKey{} }

// Public returns the public key that belongs to k, and the zero key for no key.
func (k PrivateKey) Public() PublicKey {
	if k.IsZero() {
		return PublicKey{}
	}
	// NewPrivateKey fails for a wrong length only.
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return PublicKey{}
	}
	return PublicKey(private.PublicKey().Bytes())
}

// String hides the key.
func (k PrivateKey) String() string { return redacted }

// Format hides the key for every verb, %x and %#v included.
func (k PrivateKey) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue hides the key from structured logs.
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the key from JSON and YAML.
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// ParsePublicKey reads a public key from its base64 text, as `wg pubkey` prints
// it. White space around it is ignored.
func ParsePublicKey(text string) (PublicKey, error) {
	k, err := parseKey(text)
	if err != nil {
		return PublicKey{}, fmt.Errorf("public key: %w", err)
	}
	return k, nil
}

// IsZero reports whether there is no key.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String returns the base64 text.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// MarshalText returns the base64 text, and nothing for the zero key.
func (k PublicKey) MarshalText() ([]byte, error) {
	if k.IsZero() {
		return []byte{}, nil
	}
	return []byte(k.String()), nil
}

// UnmarshalText undoes MarshalText.
func (k *PublicKey) UnmarshalText(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		*k = PublicKey{}
		return nil
	}
	parsed, err := ParsePublicKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

func parseKey(text string) (PublicKey, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return PublicKey{}, errors.New("empty")
	}
	// Strict: one key has one text, so that comparing texts compares keys.
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	// The decoder skips line breaks anywhere; inside a key they are a mistake.
	if err != nil || strings.ContainsAny(text, "\r\n") {
		// The decoder's error is left out: this may be a private key by mistake, whose
		// text must not reach a log.
		return PublicKey{}, errors.New("not base64")
	}
	if len(raw) != keyLen {
		return PublicKey{}, fmt.Errorf("%d bytes instead of %d", len(raw), keyLen)
	}
	k := PublicKey(raw)
	if k.IsZero() {
		return PublicKey{}, errors.New("all bytes are zero")
	}
	return k, nil
}
