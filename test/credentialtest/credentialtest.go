// Package credentialtest makes keys, client certificates and kubeconfigs for tests.
package credentialtest

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// Key is a new one.
func Key(t testing.TB) credentials.Key {
	t.Helper()
	key, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Certificate is one in PEM that an authority nobody knows has signed for a public key.
func Certificate(t testing.TB, public crypto.PublicKey, s credentials.Subject, from, until time.Time) []byte {
	t.Helper()
	_, authority, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: s.CommonName, Organization: []string{s.Organization}},
		NotBefore: from, NotAfter: until,
	}, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}}, public, authority)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Kubeconfig is one of the consumer rome at the provider milan, with a certificate that is valid until then.
func Kubeconfig(t testing.TB, until time.Time) []byte {
	t.Helper()
	key := Key(t)
	public, err := key.Public()
	if err != nil {
		t.Fatal(err)
	}
	text, err := credentials.WriteKubeconfig(credentials.Access{
		Cluster: "milan", User: "rome", Server: "https://milan.example.org:6443", Key: key,
		Certificate: Certificate(t, public, credentials.ControlPlaneSubject("rome"), until.Add(-time.Hour), until),
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TokenKubeconfig is that of a user who has a token, as somebody writes it by hand.
func TokenKubeconfig(cfg *rest.Config) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: %s}}]}`,
		cfg.Host, base64.StdEncoding.EncodeToString(cfg.CAData), cfg.BearerToken)
}
