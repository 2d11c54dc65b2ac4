package credentials

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
)

func generate(t testing.TB) Key {
	t.Helper()
	k, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// keys is one key of each kind that clusters have.
func keys(t testing.TB) map[string]Key {
	t.Helper()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Key{"Ed25519": generate(t), "ECDSA": {ec}, "RSA": {r}}
}

func public(t testing.TB, k Key) crypto.PublicKey {
	t.Helper()
	text, err := k.MarshalPublic()
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePublicKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSignAndVerify(t *testing.T) {
	for name, k := range keys(t) {
		t.Run(name, func(t *testing.T) {
			text, err := k.MarshalPrivate()
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseKey(text)
			if err != nil {
				t.Fatal(err)
			}
			nonce, other := NewNonce(), NewNonce()
			signature, err := again.Sign(nonce)
			if err != nil {
				t.Fatal(err)
			}
			if !Verify(public(t, k), nonce, signature) {
				t.Error("the signature is refused")
			}
			if Verify(public(t, k), other, signature) {
				t.Error("the signature of another nonce is accepted: it could be replayed")
			}
			if Verify(public(t, generate(t)), nonce, signature) {
				t.Error("the signature of another key is accepted")
			}
			signature[len(signature)/2] ^= 1
			if Verify(public(t, k), nonce, signature) {
				t.Error("a changed signature is accepted")
			}
		})
	}
}

// TestRawPublicKey: consumers before Liqo 1.0.2 send the bytes of an Ed25519 key.
func TestRawPublicKey(t *testing.T) {
	k, nonce := generate(t), NewNonce()
	raw, ok := k.signer.Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("not an Ed25519 key")
	}
	p, err := ParsePublicKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := k.Sign(nonce)
	if err != nil {
		t.Fatal(err)
	}
	if !Verify(p, nonce, signature) {
		t.Error("the signature is refused")
	}
}

// TestSignOnlyNonces: who chooses the nonce must not choose a text that means something else.
func TestSignOnlyNonces(t *testing.T) {
	k := generate(t)
	for _, text := range []string{"", "pay to the bearer", strings.Repeat("A", 88), string(NewNonce()) + "\n", string(NewNonce())[:84] + "===="} {
		if _, err := k.Sign([]byte(text)); err == nil {
			t.Errorf("%q is signed", text)
		}
	}
}

func TestRefusedKeys(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(weak.Public())
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der})
	good, err := generate(t).MarshalPublic()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"weak RSA": block, "nothing": nil, "no PEM": []byte("ssh-ed25519 AAAA"), "two keys": append(bytes.Clone(good), good...),
	} {
		if _, err := ParsePublicKey(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestKeyIsNotPrinted(t *testing.T) {
	k := generate(t)
	private, ok := k.signer.(ed25519.PrivateKey)
	if !ok {
		t.Fatal("not an Ed25519 key")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(verb, k)
		if strings.Contains(text, fmt.Sprint([]byte(private)[:4])[1:12]) || len(text) > 40 {
			t.Errorf("%s prints %q", verb, text)
		}
	}
}
