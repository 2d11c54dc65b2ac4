package servingcert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/offloading/servingcert"
)

// scene is a request that is approved. Each test makes one thing in it wrong.
type scene struct {
	csr   x509.CertificateRequest
	key   any
	spec  certificatesv1.CertificateSigningRequestSpec
	facts servingcert.Facts
}

func newScene(t *testing.T) *scene {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &scene{
		key: key,
		csr: x509.CertificateRequest{
			Subject:     pkix.Name{CommonName: "system:node:virtual", Organization: []string{"system:nodes"}},
			IPAddresses: []net.IP{net.IPv4(10, 243, 0, 7)},
		},
		spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: "system:serviceaccount:suppliers:virtual-kubelet",
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature},
			Extra: map[string]certificatesv1.ExtraValue{
				"authentication.kubernetes.io/pod-name": {"virtual-kubelet-1"}, "authentication.kubernetes.io/pod-uid": {"uid-1"},
			},
		},
		facts: servingcert.Facts{
			Peer:        "milan",
			VirtualNode: &offloadingv1beta1.VirtualNode{Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}},
			Node:        &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan"}}},
			Pod: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: "uid-1", Labels: map[string]string{"offloading.liqo.io/component": "virtual-kubelet", "liqo.io/remote-cluster-id": "milan"}},
				Spec:       corev1.PodSpec{ServiceAccountName: "virtual-kubelet"},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.243.0.7"}, {IP: "fd00::7"}}},
			},
		},
	}
}

// judge makes the request and has it judged.
func (s *scene) judge(t *testing.T) (servingcert.Request, *servingcert.Refusal) {
	t.Helper()
	if s.spec.Request == nil {
		der, err := x509.CreateCertificateRequest(rand.Reader, &s.csr, s.key)
		if err != nil {
			t.Fatal(err)
		}
		s.spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	r, refused := servingcert.Read(&s.spec)
	if refused == nil {
		refused = servingcert.Judge(r, s.facts)
	}
	return r, refused
}

func TestApproved(t *testing.T) {
	for _, address := range []string{"10.243.0.7", "fd00::7"} {
		s := newScene(t)
		s.csr.IPAddresses = []net.IP{net.ParseIP(address)}
		want := servingcert.Request{Namespace: "suppliers", Pod: "virtual-kubelet-1", UID: "uid-1", Node: "virtual", Address: netip.MustParseAddr(address)}
		if got, refused := s.judge(t); refused != nil || got != want {
			t.Errorf("%+v, %+v", got, refused)
		}
	}
	s := newScene(t)
	s.facts.Node = nil
	if _, refused := s.judge(t); refused != nil {
		t.Errorf("before there is a Node: %+v", refused)
	}
}

// TestRefused makes each field wrong, one at a time.
func TestRefused(t *testing.T) {
	now := metav1.Now()
	extension := func(kind asn1.ObjectIdentifier, names ...asn1.RawValue) pkix.Extension {
		value, err := asn1.Marshal(names)
		if err != nil {
			t.Fatal(err)
		}
		return pkix.Extension{Id: kind, Value: value}
	}
	alternativeNames := asn1.ObjectIdentifier{2, 5, 29, 17}
	address := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 7, Bytes: []byte{10, 243, 0, 7}}
	for _, tt := range []struct {
		name   string
		reason string
		wait   bool
		spoil  func(s *scene)
	}{
		{"by a user", "RequesterForbidden", false, func(s *scene) { s.spec.Username = "virtual-kubelet" }},
		{"by a node", "RequesterForbidden", false, func(s *scene) { s.spec.Username = "system:node:virtual" }},
		{"by another account", "RequesterForbidden", false, func(s *scene) { s.spec.Username = "system:serviceaccount:suppliers:default" }},
		{"by an account whose name goes on", "RequesterForbidden", false, func(s *scene) { s.spec.Username += ":more" }},
		{"by nobody's account", "RequesterForbidden", false, func(s *scene) { s.spec.Username = "system:serviceaccount::virtual-kubelet" }},
		{"by a token of no pod", "RequesterForbidden", false, func(s *scene) { s.spec.Extra = nil }},
		{"by a token of no UID", "RequesterForbidden", false, func(s *scene) { delete(s.spec.Extra, "authentication.kubernetes.io/pod-uid") }},
		{"by a token of two pods", "RequesterForbidden", false, func(s *scene) {
			s.spec.Extra["authentication.kubernetes.io/pod-name"] = certificatesv1.ExtraValue{"virtual-kubelet-1", "other"}
		}},
		{"for a client too", "UsagesForbidden", false, func(s *scene) { s.spec.Usages = append(s.spec.Usages, certificatesv1.UsageClientAuth) }},
		{"for less", "UsagesForbidden", false, func(s *scene) { s.spec.Usages = s.spec.Usages[:1] }},
		{"no PEM", "RequestInvalid", false, func(s *scene) { s.spec.Request = []byte("no") }},
		{"a key that is too short", "RequestInvalid", false, func(s *scene) {
			key, err := rsa.GenerateKey(rand.Reader, 1024)
			if err != nil {
				t.Fatal(err)
			}
			s.key = key
		}},
		{"no node", "SubjectForbidden", false, func(s *scene) { s.csr.Subject.CommonName = "virtual" }},
		{"an empty node", "SubjectForbidden", false, func(s *scene) { s.csr.Subject.CommonName = "system:node:" }},
		{"no group", "SubjectForbidden", false, func(s *scene) { s.csr.Subject.Organization = nil }},
		{"another group", "SubjectForbidden", false, func(s *scene) { s.csr.Subject.Organization = []string{"system:masters"} }},
		{"two groups", "SubjectForbidden", false, func(s *scene) { s.csr.Subject.Organization = []string{"system:nodes", "system:masters"} }},
		{"another attribute", "SubjectForbidden", false, func(s *scene) { s.csr.Subject.OrganizationalUnit = []string{"a"} }},
		{"two names", "SubjectForbidden", false, func(s *scene) {
			commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
			s.csr.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: commonName, Value: "system:node:real"}, {Type: commonName, Value: "system:node:virtual"}}
		}},
		{"no address", "NamesForbidden", false, func(s *scene) { s.csr.IPAddresses = nil }},
		{"two addresses", "NamesForbidden", false, func(s *scene) { s.csr.IPAddresses = append(s.csr.IPAddresses, net.IPv4(10, 96, 0, 1)) }},
		{"a DNS name", "NamesForbidden", false, func(s *scene) { s.csr.DNSNames = []string{"kubernetes.default"} }},
		{"an e-mail address", "NamesForbidden", false, func(s *scene) { s.csr.EmailAddresses = []string{"a@example.org"} }},
		{"a URI", "NamesForbidden", false, func(s *scene) { s.csr.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}} }},
		{"a name of a kind that Go does not show", "NamesForbidden", false, func(s *scene) {
			s.csr.IPAddresses = nil
			s.csr.ExtraExtensions = []pkix.Extension{extension(alternativeNames, address, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 8, Bytes: []byte{42, 3}})}
		}},
		{"another extension", "NamesForbidden", false, func(s *scene) {
			s.csr.ExtraExtensions = []pkix.Extension{extension(asn1.ObjectIdentifier{2, 5, 29, 19})}
		}},
		{"no tenant namespace", "NamespaceNotTenant", false, func(s *scene) { s.facts.Peer = "" }},
		{"no VirtualNode", "VirtualNodeMissing", true, func(s *scene) { s.facts.VirtualNode = nil }},
		{"a VirtualNode of another cluster", "VirtualNodeMissing", true, func(s *scene) { s.facts.VirtualNode.Spec.ClusterID = "naples" }},
		{"a VirtualNode that goes", "VirtualNodeMissing", true, func(s *scene) { s.facts.VirtualNode.DeletionTimestamp = &now }},
		{"the name of a real node", "NodeNameTaken", false, func(s *scene) { s.facts.Node.Labels = nil }},
		{"the name of a node of another cluster", "NodeNameTaken", false, func(s *scene) { s.facts.Node.Labels["liqo.io/remote-cluster-id"] = "naples" }},
		{"a pod that is gone", "PodForbidden", false, func(s *scene) { s.facts.Pod = nil }},
		{"a pod of the same name", "PodForbidden", false, func(s *scene) { s.facts.Pod.UID = "uid-2" }},
		{"a pod of another account", "PodForbidden", false, func(s *scene) { s.facts.Pod.Spec.ServiceAccountName = "default" }},
		{"a pod of another kind", "PodForbidden", false, func(s *scene) { delete(s.facts.Pod.Labels, "offloading.liqo.io/component") }},
		{"a pod for another cluster", "PodForbidden", false, func(s *scene) { s.facts.Pod.Labels["liqo.io/remote-cluster-id"] = "naples" }},
		{"a pod with the address of a node", "PodForbidden", false, func(s *scene) { s.facts.Pod.Spec.HostNetwork = true }},
		{"a pod that has ended", "PodForbidden", false, func(s *scene) { s.facts.Pod.Status.Phase = corev1.PodFailed }},
		{"a pod without an address", "AddressForbidden", true, func(s *scene) { s.facts.Pod.Status.PodIPs = nil }},
		{"the address of something else", "AddressForbidden", false, func(s *scene) { s.csr.IPAddresses = []net.IP{net.IPv4(192, 168, 50, 11)} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t)
			tt.spoil(s)
			_, refused := s.judge(t)
			if refused == nil || refused.Reason != tt.reason || refused.Wait != tt.wait || refused.Message == "" {
				t.Errorf("got %+v, want %s", refused, tt.reason)
			}
		})
	}
}

// TestForged changes what is signed.
func TestForged(t *testing.T) {
	s := newScene(t)
	s.judge(t)
	block, _ := pem.Decode(s.spec.Request)
	at := strings.Index(string(block.Bytes), "virtual")
	copy(block.Bytes[at:], "forgery")
	s.spec.Request = pem.EncodeToMemory(block)
	if _, refused := s.judge(t); refused == nil || refused.Reason != "RequestInvalid" {
		t.Errorf("%+v", refused)
	}
	s = newScene(t)
	s.judge(t)
	s.spec.Request = slices.Concat(s.spec.Request, s.spec.Request)
	if _, refused := s.judge(t); refused == nil || refused.Reason != "RequestInvalid" {
		t.Errorf("two requests: %+v", refused)
	}
}
