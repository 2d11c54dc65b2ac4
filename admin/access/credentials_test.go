package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// certificate is a client certificate that ends at a time.
func certificate(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func webToken(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(claims)) + "." + part([]byte("signature"))
}

func TestExpired(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hourAgo, inAnHour := noon.Add(-time.Hour), noon.Add(time.Hour)
	for _, tt := range []struct {
		name   string
		config *rest.Config
		want   string
	}{
		{"none", nil, ""},
		{"no credentials", &rest.Config{}, ""},
		{"a certificate that is valid", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate(t, inAnHour)}}, ""},
		{"a certificate that is not", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate(t, hourAgo)}},
			"its client certificate is valid until 2026-11-21T11:00:00Z only, and it is 2026-11-21T12:00:00Z"},
		{"one in a file", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: file(string(certificate(t, hourAgo)))}},
			"its client certificate is valid until 2026-11-21T11:00:00Z only, and it is 2026-11-21T12:00:00Z"},
		{"what is no certificate", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("nothing")}}, ""},
		{"a token that is valid", &rest.Config{BearerToken: webToken(fmt.Sprintf(`{"exp":%d}`, inAnHour.Unix()))}, ""},
		{"a token that is not", &rest.Config{BearerToken: webToken(fmt.Sprintf(`{"exp":%d}`, hourAgo.Unix()))},
			"its token is valid until 2026-11-21T11:00:00Z only, and it is 2026-11-21T12:00:00Z"},
		{"one in a file", &rest.Config{BearerTokenFile: file(webToken(fmt.Sprintf(`{"exp":%d}`, hourAgo.Unix())) + "\n")},
			"its token is valid until 2026-11-21T11:00:00Z only, and it is 2026-11-21T12:00:00Z"},
		{"a token without an end", &rest.Config{BearerToken: webToken(`{}`)}, ""},
		{"a token that tells nothing", &rest.Config{BearerToken: "a.b.c"}, ""},
		{"a secret word", &rest.Config{BearerToken: "secret"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := expired(tt.config, noon); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// An API server that does not know somebody at all may answer in two ways.
func TestExplainTellsWhoIsNotKnown(t *testing.T) {
	old := certificate(t, time.Now().Add(-time.Hour))
	c := &Cluster{Options: Options{Name: Remote, Origin: "kubeconfig milan.yaml"}, Config: &rest.Config{
		Host: "https://milan.example.org", TLSClientConfig: rest.TLSClientConfig{CertData: old},
	}}
	for _, err := range []error{
		apierrors.NewUnauthorized("Unauthorized"),
		apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New(`User "system:anonymous" cannot get resource "namespaces"`)),
	} {
		var x *Explanation
		if !errors.As(c.Explain("reach the cluster", err), &x) || !strings.Contains(x.What, "does not accept the credentials of kubeconfig milan.yaml") ||
			!strings.HasPrefix(x.Cause, "its client certificate is valid until") || !strings.Contains(x.Advice, "--remote-kubeconfig") || !errors.Is(x, err) {
			t.Errorf("%+v", x)
		}
	}
	known := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New(`User "ann" cannot get resource "namespaces"`))
	if err := c.Explain("reach the cluster", known); !strings.Contains(err.Error(), "may not do this") {
		t.Error(err)
	}
}
