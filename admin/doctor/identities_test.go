package doctor

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
)

// tenant gives milan a Tenant for rome.
func (w *world) tenant(ready metav1.ConditionStatus, reason, message string) *authv1beta1.Tenant {
	w.server.tenants.items = []authv1beta1.Tenant{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome"}, Spec: authv1beta1.TenantSpec{ClusterID: "rome"},
		Status: authv1beta1.TenantStatus{Conditions: []metav1.Condition{{Type: authv1beta1.ConditionReady, Status: ready, Reason: reason, Message: message}}},
	}}
	return &w.server.tenants.items[0]
}

// identity gives rome an identity in milan, and an event of it.
func (w *world) identity(until time.Time, reason, message string) *corev1.Secret {
	w.client.secrets.items = []corev1.Secret{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-milan", Name: "identity", Annotations: map[string]string{authv1beta1.AnnotationRemoteTenantNamespace: "liqo-tenant-rome"},
		},
		Data: map[string][]byte{authv1beta1.KubeconfigKey: kubeconfig(until)},
	}}
	w.rome.events.items = append(w.rome.events.items, event("liqo-tenant-milan", "Secret", "identity", reason, message))
	return &w.client.secrets.items[0]
}

// kubeconfig is one with a certificate. Its key is the same each time, so that findings are.
func kubeconfig(until time.Time) []byte {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rome", Organization: []string{"liqo.io"}}, NotBefore: until.Add(-24 * time.Hour), NotAfter: until,
	}
	certificate, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		panic(err) // nothing in it varies
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	text := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "https://milan.example.org:6443"}}],
users: [{name: u, user: {client-certificate-data: %s, client-key-data: %s}}]}`, text("CERTIFICATE", certificate), text("PRIVATE KEY", private))
}
