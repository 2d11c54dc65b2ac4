package credentials

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

const (
	pemRequest     = "CERTIFICATE REQUEST"
	pemCertificate = "CERTIFICATE"

	// controlPlaneOrganization is the organization of every consumer's control plane, and of its operators.
	controlPlaneOrganization = "liqo.io"
	// peeringUserPrefix begins the names of operators.
	peeringUserPrefix = "liqo-peer-user-"
)

// Subject is whom a client certificate names: a user and one group of Kubernetes.
type Subject struct {
	// CommonName is the user.
	CommonName string
	// Organization is the group.
	Organization string
}

// ControlPlaneSubject is that of the controllers of a consumer.
func ControlPlaneSubject(consumer string) Subject {
	return Subject{CommonName: consumer, Organization: controlPlaneOrganization}
}

// NewPeeringUser is an operator of another cluster. The name is not used twice: who has the certificate of one that was
// deleted is not the next one.
func NewPeeringUser(cluster string) Subject {
	var unique [16]byte
	rand.Read(unique[:]) // never fails
	return Subject{CommonName: peeringUserPrefix + cluster + "-" + hex.EncodeToString(unique[:]), Organization: controlPlaneOrganization}
}

// SliceSubject is that of one ResourceSlice of a consumer.
func SliceSubject(slice, consumer string) Subject {
	sum := sha256.Sum256([]byte(consumer))
	return Subject{CommonName: slice + "-" + hex.EncodeToString(sum[:6]), Organization: consumer}
}

// Request makes a certificate signing request, PEM.
func (k Key) Request(s Subject) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: s.CommonName, Organization: []string{s.Organization}}}, k.signer)
	if err != nil {
		return nil, fmt.Errorf("make a certificate signing request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der}), nil
}

// refusal is why a certificate signing request is refused.
type refusal struct{ reason, why string }

func (r *refusal) Error() string { return r.why }

// Reason is the condition reason of an error of [JudgeRequest].
func Reason(err error) string {
	if r := new(refusal); errors.As(err, &r) {
		return r.reason
	}
	return authv1beta1.ReasonRequestInvalid
}

// JudgeRequest accepts a certificate signing request of another cluster only if it is signed by its key and asks for
// exactly that subject. If public is not nil, the key must be that one. [Reason] names what is refused.
func JudgeRequest(request []byte, s Subject, public crypto.PublicKey) error {
	r, err := ParseRequest(request)
	if err != nil {
		return err
	}
	if public != nil && !equal(public, r.PublicKey) {
		return &refusal{authv1beta1.ReasonKeyMismatch, "the key of the request is not the public key of the cluster"}
	}
	why := fmt.Sprintf("the subject is %q, it must be %q", text.Quoted(r.Subject.String()), pkix.Name{CommonName: s.CommonName, Organization: []string{s.Organization}})
	switch {
	case !slices.Equal(r.Subject.Organization, []string{s.Organization}):
		return &refusal{authv1beta1.ReasonGroupForbidden, why}
	case r.Subject.CommonName != s.CommonName:
		return &refusal{authv1beta1.ReasonUserForbidden, why}
	case len(r.Subject.Names) != 2:
		// Two common names or an attribute that Go ignores could mean something else to another reader.
		return errors.New(why)
	}
	if len(r.Extensions) > 0 || len(r.DNSNames)+len(r.EmailAddresses)+len(r.IPAddresses)+len(r.URIs) > 0 {
		return errors.New("the request asks for extensions or alternative names; none are granted")
	}
	return nil
}

// ParseRequest reads a certificate signing request that somebody else has made: one PEM block, with a key that is worth
// something, and signed by it. What it asks for is not judged.
func ParseRequest(request []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(request)
	if block == nil || block.Type != pemRequest || len(rest) > 0 {
		return nil, fmt.Errorf("not one PEM block of type %q", pemRequest)
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("no certificate signing request: %w", err)
	}
	if err := judgePublicKey(r.PublicKey); err != nil {
		return nil, err
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed by its key: %w", err)
	}
	return r, nil
}

func equal(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

func requestKey(text []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return r.PublicKey, nil
}

// Certificate is what there is to know of a client certificate.
type Certificate struct {
	// Subject is whom it names.
	Subject Subject
	// NotBefore and NotAfter are when it is valid.
	NotBefore, NotAfter time.Time

	public crypto.PublicKey
}

// ParseCertificate reads the first certificate of a chain in PEM.
func ParseCertificate(text []byte) (Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemCertificate {
		return Certificate{}, fmt.Errorf("no PEM block of type %q", pemCertificate)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Certificate{}, fmt.Errorf("no certificate: %w", err)
	}
	s := Subject{CommonName: c.Subject.CommonName}
	if len(c.Subject.Organization) > 0 {
		s.Organization = c.Subject.Organization[0]
	}
	return Certificate{Subject: s, NotBefore: c.NotBefore, NotAfter: c.NotAfter, public: c.PublicKey}, nil
}

// RenewAt is when two thirds of the certificate's life are over.
func (c Certificate) RenewAt() time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// Of tells whether the certificate is for the key.
func (c Certificate) Of(k Key) bool { return equal(k.signer.Public(), c.public) }

// For tells whether the certificate is for the key of a request.
func (c Certificate) For(request []byte) bool {
	key, err := requestKey(request)
	return err == nil && equal(key, c.public)
}
