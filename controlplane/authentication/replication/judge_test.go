package replication

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// TestJudge: what each fault of an identity's Secret is called, and that its text names the piece.
func TestJudge(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	valid := credentialtest.Kubeconfig(t, now.Add(time.Hour))
	good := func() *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "milan-here", Name: "identity", UID: "1", CreationTimestamp: metav1.NewTime(now),
				Labels:      map[string]string{"liqo.io/identity-type": "ControlPlane", "liqo.io/remote-cluster-id": "milan"},
				Annotations: map[string]string{"liqo.io/remote-tenant-namespace": "rome-there"},
			},
			Data: map[string][]byte{"kubeconfig": valid},
		}
	}
	another := func(change func(*corev1.Secret)) []corev1.Secret {
		o := good()
		o.Name, o.UID, o.CreationTimestamp = "other", "2", metav1.NewTime(now.Add(-time.Minute))
		change(o)
		return []corev1.Secret{*good(), *o}
	}
	none := func(*corev1.Secret) {}
	for _, c := range []struct {
		name         string
		change       func(*corev1.Secret)
		all          []corev1.Secret
		reason, says string // empty: it is accepted
	}{
		{"well", none, nil, "", ""},
		{"no provider", func(s *corev1.Secret) { delete(s.Labels, "liqo.io/remote-cluster-id") }, nil, authv1beta1.ReasonClusterIDInvalid, "liqo.io/remote-cluster-id"},
		{"this cluster", func(s *corev1.Secret) { s.Labels["liqo.io/remote-cluster-id"] = "rome" }, nil, authv1beta1.ReasonClusterIDInvalid, `"rome"`},
		{"no namespace", func(s *corev1.Secret) { s.Annotations = nil }, nil, authv1beta1.ReasonAnnotationMissing, "liqo.io/remote-tenant-namespace is missing"},
		{"no name of a namespace", func(s *corev1.Secret) { s.Annotations["liqo.io/remote-tenant-namespace"] = "../kube-system" }, nil,
			authv1beta1.ReasonAnnotationMissing, "not the name of a namespace"},
		{"no kubeconfig", func(s *corev1.Secret) { s.Data = nil }, nil, authv1beta1.ReasonKubeconfigInvalid, "data.kubeconfig"},
		{"one that runs a program", func(s *corev1.Secret) {
			s.Data["kubeconfig"] = bytes.Replace(valid, []byte("client-key-data"), []byte("exec: {command: sh}\n    client-key-data"), 1)
		}, nil, authv1beta1.ReasonKubeconfigInvalid, "data.kubeconfig"},
		{"an expired certificate", func(s *corev1.Secret) { s.Data["kubeconfig"] = credentialtest.Kubeconfig(t, now) }, nil,
			authv1beta1.ReasonCertificateExpired, now.UTC().Format(time.RFC3339)},
		{"an older one", none, another(none), authv1beta1.ReasonDuplicateIdentity, "Secret milan-here/other, which is older"},
		{"an older one that goes", none, another(func(s *corev1.Secret) { s.DeletionTimestamp = new(metav1.NewTime(now)) }), "", ""},
		{"an older one for another provider", none, another(func(s *corev1.Secret) { s.Labels["liqo.io/remote-cluster-id"] = "naples" }), "", ""},
		{"an older one that is no identity", none, another(func(s *corev1.Secret) { delete(s.Labels, "liqo.io/identity-type") }), "", ""},
		{"a newer one", none, another(func(s *corev1.Secret) { s.CreationTimestamp = metav1.NewTime(now.Add(time.Minute)) }), "", ""},
		{"one of the same second", none, another(func(s *corev1.Secret) { s.CreationTimestamp = metav1.NewTime(now) }), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			c.change(s)
			p, cfg, reason, why := judge(s, c.all, "rome", now)
			if reason != c.reason || !strings.Contains(why, c.says) {
				t.Fatalf("%s: %s; want %s: %s", reason, why, c.reason, c.says)
			}
			if reason == "" && (p != between || cfg.Host != "https://milan.example.org:6443") {
				t.Errorf("between %+v, by %v", p, cfg)
			}
			if reason != "" && (p != peer{} || cfg != nil) {
				t.Errorf("refused, and still between %+v, by %v", p, cfg)
			}
		})
	}
}
