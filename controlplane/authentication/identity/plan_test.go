package identity

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// certificate is one of a key, valid until a moment.
func certificate(t *testing.T, key credentials.Key, until time.Time) []byte {
	t.Helper()
	public, err := key.Public()
	if err != nil {
		t.Fatal(err)
	}
	return credentialtest.Certificate(t, public, credentials.ControlPlaneSubject("rome"), until.Add(-time.Hour), until)
}

// TestPlan: what an Identity becomes, and what its condition says when it becomes nothing.
func TestPlan(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	key := credentialtest.Key(t)
	valid := certificate(t, key, now.Add(time.Hour))
	for _, c := range []struct {
		name         string
		change       func(*authv1beta1.IdentitySpec)
		reason, says string
	}{
		{"no ID of a cluster", func(s *authv1beta1.IdentitySpec) { s.ClusterID = "../x" }, authv1beta1.ReasonClusterIDInvalid, `"../x"`},
		{"no certificate", func(s *authv1beta1.IdentitySpec) { s.AuthParams.SignedCRT = nil }, authv1beta1.ReasonCredentialsMissing, "has not signed"},
		{"a user of AWS", func(s *authv1beta1.IdentitySpec) {
			s.AuthParams = authv1beta1.AuthParams{AwsConfig: &authv1beta1.AwsConfig{}}
		}, authv1beta1.ReasonCredentialsMissing, "EKS"},
		{"garbage", func(s *authv1beta1.IdentitySpec) { s.AuthParams.SignedCRT = []byte("x") }, authv1beta1.ReasonCertificateInvalid, "authParams.signedCRT"},
		{"of another key", func(s *authv1beta1.IdentitySpec) {
			s.AuthParams.SignedCRT = certificate(t, credentialtest.Key(t), now.Add(time.Hour))
		}, authv1beta1.ReasonCertificateInvalid, "not for the key of this cluster"},
		{"expired", func(s *authv1beta1.IdentitySpec) { s.AuthParams.SignedCRT = certificate(t, key, now) }, authv1beta1.ReasonCertificateExpired, now.UTC().Format(time.RFC3339)},
		{"no API server", func(s *authv1beta1.IdentitySpec) { s.AuthParams.APIServer = "ftp://x" }, authv1beta1.ReasonKubeconfigInvalid, "no kubeconfig can be made"},
		{"well", func(*authv1beta1.IdentitySpec) {}, authv1beta1.ReasonIdentityReady, "Secret kubeconfig-controlplane-milan"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &authv1beta1.Identity{
				ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "controlplane-milan", UID: "1", Labels: map[string]string{"liqo.io/resourceslice-name": "slice"}},
				Spec: authv1beta1.IdentitySpec{
					ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity, Namespace: new("liqo-tenant-rome"),
					AuthParams: authv1beta1.AuthParams{SignedCRT: valid, APIServer: "https://milan.example.org:6443"},
				},
			}
			c.change(&i.Spec)
			secret, got, again := plan(i, key, now)
			if got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
				t.Fatalf("%s: %s; want %s: %s", got.Reason, got.Message, c.reason, c.says)
			}
			if ready := c.reason == authv1beta1.ReasonIdentityReady; (secret != nil) != ready || (got.Status == metav1.ConditionTrue) != ready {
				t.Fatalf("condition %s, Secret %v", got.Status, secret)
			}
			if secret == nil {
				return
			}
			if again != time.Hour {
				t.Errorf("looked at again after %v, want when the certificate expires", again)
			}
			want := map[string]string{"liqo.io/managed": "true", "liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane", "liqo.io/resourceslice-name": "slice"}
			if diff := cmp.Diff(want, secret.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if got := secret.Annotations["liqo.io/remote-tenant-namespace"]; got != "liqo-tenant-rome" {
				t.Errorf("the namespace at the provider is %q", got)
			}
			if cfg, err := credentials.ReadKubeconfig(secret.Data["kubeconfig"]); err != nil || cfg.Host != i.Spec.AuthParams.APIServer {
				t.Errorf("the kubeconfig is for %v, %v", cfg, err)
			}
		})
	}
}
