package credentials

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/source"
)

func request(t testing.TB, k Key, r x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &r, k.signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der})
}

func TestSubjects(t *testing.T) {
	if got, want := ControlPlaneSubject("rome"), (Subject{"rome", "liqo.io"}); got != want {
		t.Errorf("control plane: %v, want %v", got, want)
	}
	// printf rome | sha256sum
	if got, want := SliceSubject("milan", "rome"), (Subject{"milan-a8a4c692b93b", "rome"}); got != want {
		t.Errorf("slice: %v, want %v", got, want)
	}
}

func TestJudgeRequest(t *testing.T) {
	k, other := generate(t), generate(t)
	want := ControlPlaneSubject("rome")
	name := pkix.Name{CommonName: "rome", Organization: []string{"liqo.io"}}
	alternative := &url.URL{Scheme: "spiffe", Host: "rome"}
	twice, err := asn1.Marshal(pkix.RDNSequence{
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "liqo.io"}},
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "milan"}},
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "rome"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	whole := request(t, k, x509.CertificateRequest{Subject: name})
	changed := []byte(strings.Replace(string(whole), "A", "B", 1))
	for _, c := range []struct {
		name    string
		text    []byte
		public  crypto.PublicKey
		refused string // part of the reason; empty: accepted
	}{
		{"what is expected", whole, public(t, k), ""},
		{"of a cluster whose key is not known", whole, nil, ""},
		{"another key", whole, public(t, other), "not the public key"},
		{"another cluster", request(t, k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "milan", Organization: []string{"liqo.io"}}}), nil, "subject"},
		{"system:masters", request(t, k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "rome", Organization: []string{"system:masters"}}}), nil, "subject"},
		{"system:masters beside", request(t, k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "rome", Organization: []string{"liqo.io", "system:masters"}}}), nil, "subject"},
		{"no organization", request(t, k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "rome"}}), nil, "subject"},
		{"two common names", request(t, k, x509.CertificateRequest{RawSubject: twice}), nil, "subject"},
		{"another attribute", request(t, k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "rome", Organization: []string{"liqo.io"}, OrganizationalUnit: []string{"x"}}}), nil, "subject"},
		{"a DNS name", request(t, k, x509.CertificateRequest{Subject: name, DNSNames: []string{"kubernetes"}}), nil, "extensions"},
		{"a URI", request(t, k, x509.CertificateRequest{Subject: name, URIs: []*url.URL{alternative}}), nil, "extensions"},
		{"an extension", request(t, k, x509.CertificateRequest{Subject: name, ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}}}), nil, "extensions"},
		{"a changed byte", changed, nil, " "},
		{"two requests", append(append([]byte{}, whole...), whole...), nil, "one PEM block"},
		{"nothing", nil, nil, "one PEM block"},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch err := JudgeRequest(c.text, want, c.public); {
			case err == nil && c.refused != "":
				t.Error("accepted")
			case err != nil && (c.refused == "" || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("refused: %v; want %q", err, c.refused)
			}
		})
	}
}

// TestOpenSSL: another implementation reads our requests and verifies our signatures.
func TestOpenSSL(t *testing.T) {
	source.NeedPrograms(t, "openssl")
	k := generate(t)
	text, err := k.Request(SliceSubject("milan", "rome"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("openssl", "req", "-verify", "-noout", "-subject", "-nameopt", "RFC2253")
	cmd.Stdin = strings.NewReader(string(text))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "CN=milan-a8a4c692b93b,O=rome") {
		t.Errorf("openssl req: %v: %s", err, out)
	}
}

func certificate(t testing.TB, k Key, s Subject, from, to time.Time) []byte {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to,
		Subject: pkix.Name{CommonName: s.CommonName, Organization: []string{s.Organization}},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.signer.Public(), k.signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})
}

func TestCertificate(t *testing.T) {
	k, s := generate(t), ControlPlaneSubject("rome")
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c, err := ParseCertificate(certificate(t, k, s, from, from.Add(3*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := k.Request(s)
	if err != nil {
		t.Fatal(err)
	}
	if c.Subject != s || !c.RenewAt().Equal(from.Add(2*time.Hour)) || !c.Of(k) || !c.For(r) {
		t.Errorf("got %+v, renewed at %v", c, c.RenewAt())
	}
	if c.Of(generate(t)) {
		t.Error("it is taken for another key's")
	}
}

func FuzzJudgeRequest(f *testing.F) {
	k := generate(f)
	s := ControlPlaneSubject("rome")
	good, err := k.Request(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if JudgeRequest(text, s, nil) != nil {
			return
		}
		block, _ := pem.Decode(text)
		r, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || r.Subject.CommonName != "rome" || len(r.Subject.Organization) != 1 || r.Subject.Organization[0] != "liqo.io" {
			t.Errorf("accepted: %q", text)
		}
	})
}
