package virtualkubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

const (
	// approvalEvery is how often an API server is asked whether a certificate was issued.
	approvalEvery = 2 * time.Second
	// approvalTimeout is how long a request may wait before another one is made.
	approvalTimeout = 10 * time.Minute
)

// subject is who a certificate is for: a node, as the signer of serving certificates wants it.
func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// selfSigned makes a certificate for an address.
func selfSigned(node string, address netip.Addr) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: subject(node), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{address.AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// request asks the cluster for a serving certificate of a node, and waits for it. The controller approves it (package
// servingcert).
func (k *Kubelet) request(ctx context.Context, node string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject(node), IPAddresses: []net.IP{k.options.Address.AsSlice()}}, key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(csr)
	o := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: offloadingv1beta1.VirtualKubeletName + "-" + hex.EncodeToString(sum[:8])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	requests := k.home.certificates
	if err := requests.Post().Resource("certificatesigningrequests").Body(o).Do(ctx).Error(); err != nil {
		return nil, fmt.Errorf("create CertificateSigningRequest %s: %w", o.Name, err)
	}
	tick := time.NewTicker(approvalEvery)
	defer tick.Stop()
	for until := time.Now().Add(approvalTimeout); time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		if !k.registered(node) {
			return nil, fmt.Errorf("the node %s is kept no more", node)
		}
		now := new(certificatesv1.CertificateSigningRequest)
		err := requests.Get().Resource("certificatesigningrequests").Name(o.Name).Do(ctx).Into(now)
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("CertificateSigningRequest %s was deleted", o.Name)
		case err != nil:
			continue
		}
		for _, c := range now.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return nil, fmt.Errorf("CertificateSigningRequest %s is %s: %.200s", o.Name, c.Type, c.Message)
			}
		}
		if len(now.Status.Certificate) > 0 {
			return issued(now.Status.Certificate, key)
		}
	}
	return nil, fmt.Errorf("CertificateSigningRequest %s was not approved within %v", o.Name, approvalTimeout)
}

// issued is a certificate with its key. It must be one of that key, and of now.
func issued(chain []byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	c := &tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			c.Certificate = append(c.Certificate, block.Bytes)
		}
	}
	if len(c.Certificate) == 0 {
		return nil, errors.New("the certificate that was issued does not parse")
	}
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("the certificate that was issued does not parse: %w", err)
	}
	if public, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the certificate that was issued is of another key")
	}
	c.Leaf = leaf
	return c, nil
}

// renewCertificates asks for serving certificates. One is for one node, as the signer wants it, and good for all, since API
// servers verify the address, which they share. So it is asked for in the name of a node whose Node is there, and if it
// is not issued in the name of the next one: one node whose name is somebody else's must not keep logs from the others. A new
// one is asked for when four fifths of its life are over, and after a failure later and later.
func (k *Kubelet) renewCertificates(ctx context.Context, shown *atomic.Pointer[tls.Certificate]) {
	pause := approvalEvery
	last := ""
	for {
		next := pause
		if node := k.nextNode(last); node != "" {
			last = node
			got, err := k.request(ctx, node)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				k.log.Warn("no serving certificate of the cluster: an API server that verifies kubelets gets no logs and no exec", "error", err)
				pause = min(2*pause, approvalTimeout)
				next = pause
			default:
				shown.Store(got)
				last = ""
				k.log.Info("serving certificate issued", "until", got.Leaf.NotAfter)
				pause = approvalEvery
				next = max(time.Minute, time.Until(got.Leaf.NotBefore.Add(got.Leaf.NotAfter.Sub(got.Leaf.NotBefore)*4/5)))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

// nextNode is the name of the first node whose Node is there, after one or, if there is none after it, of all; empty: there
// is none.
func (k *Kubelet) nextNode(after string) (first string) {
	for _, n := range k.all() {
		switch {
		case !n.isRegistered():
		case n.name > after:
			return n.name
		case first == "":
			first = n.name
		}
	}
	return first
}

// registered tells whether a node is kept whose Node is there.
func (k *Kubelet) registered(name string) bool {
	n := k.node(name)
	return n != nil && n.isRegistered()
}

// Serve answers the API server on l, the address of the nodes, until ctx ends. It needs Run beside it.
func (k *Kubelet) Serve(ctx context.Context, l net.Listener) error {
	first, err := selfSigned("virtual-kubelet", k.options.Address)
	if err != nil {
		return err
	}
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(first)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { k.renewCertificates(ctx, &shown) })
	return k.serve(ctx, l, &shown)
}
