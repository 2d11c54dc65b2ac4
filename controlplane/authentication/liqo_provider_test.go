package authentication_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// liqoRole is the ClusterRole of Liqo 1.2 for the control plane of a consumer.
const liqoRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: liqo-remote-controlplane, labels: {app.kubernetes.io/name: remote-controlplane}}
rules:
- apiGroups: [authentication.liqo.io]
  resources: [renews, renews/status, resourceslices, resourceslices/status]
  verbs: [create, delete, deletecollection, get, list, patch, update, watch]
- apiGroups: [offloading.liqo.io]
  resources: [namespacemaps, namespacemaps/status]
  verbs: [create, delete, deletecollection, get, list, patch, update, watch]
`

// liqoProvider is milan with Liqo, which the test plays: none of our controllers run there.
type liqoProvider struct{ *site }

// grant has a certificate signed as Liqo does, and returns the credentials. One that is not to last gets ten minutes.
func (p *liqoProvider) grant(request []byte, lasts bool) string {
	t := p.t
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "liqo-identity-", Labels: map[string]string{"liqo.io/remote-tenant-csr": "true"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Groups: []string{"system:authenticated"}, SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: request,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}
	if !lasts {
		csr.Spec.ExpirationSeconds = new(int32(600))
	}
	p.Create(t, csr)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "IdentityManagerApproval"}}
	csr, err := p.Clientset.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), csr.Name, csr, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the certificate is signed", func(ctx context.Context) error {
		if err := p.Client.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err
		}
		if len(csr.Status.Certificate) == 0 {
			return fmt.Errorf("it has %+v", csr.Status.Conditions)
		}
		return nil
	})
	text, err := json.Marshal(authv1beta1.AuthParams{CA: p.Config.CAData, SignedCRT: csr.Status.Certificate, APIServer: p.Config.Host})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// copied waits for a copy of an object of rome, which has the labels of one, and perhaps more.
func (p *liqoProvider) copied(name string, into client.Object) {
	p.t.Helper()
	controlplanetest.Eventually(p.t, fmt.Sprintf("there is a copy of %T %s", into, name), func(ctx context.Context) error {
		return p.Get(ctx, p.tenant, name, into)
	})
	labels := maps.Clone(into.GetLabels())
	delete(labels, "team")
	if diff := cmp.Diff(liqoLabels("rome", "milan"), labels); diff != "" || len(into.GetFinalizers())+len(into.GetOwnerReferences()) > 0 {
		p.t.Errorf("the copy of %s has finalizers %v, owners %v, labels (-want +got):\n%s", name, into.GetFinalizers(), into.GetOwnerReferences(), diff)
	}
}

// answer writes the status of a copy.
func (p *liqoProvider) answer(kind, name, format string, args ...any) {
	p.t.Helper()
	controlplanetest.Eventually(p.t, "the status is written", func(ctx context.Context) error {
		o := object(p.t, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": %q}`, kind)
		if err := p.Get(ctx, p.tenant, name, o); err != nil {
			return err
		}
		o.Object["status"] = object(p.t, format, args...).Object
		return p.Client.Status().Update(ctx, o)
	})
}

// accepted is the status of a slice to which Liqo gives what it asks for.
const accepted = `{"authParams": %s, "resources": {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}, "nodeLabels": {"region": "eu"},
"storageClasses": [{"storageClassName": "fast", "default": true}, {"storageClassName": "slow"}], "conditions": [
{"type": "Authentication", "status": %q, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "ResourceSliceAuthentication%[2]s", "message": "ResourceSlice authentication"},
{"type": "Resources", "status": "Accepted", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "ResourceSliceResourcesAccepted", "message": "ResourceSlice resources accepted"}]}`

// TestLiqoProvider has a cluster of ours ask one with Liqo.
func TestLiqoProvider(t *testing.T) {
	t.Parallel()
	rome := newSite(t, "rome", "milan", "liqo-tenant-milan")
	milan := &liqoProvider{&site{Cluster: controlplanetest.Start(t), t: t, id: "milan", tenant: "liqo-tenant-rome"}}
	milan.Apply(liqoRole)
	milan.Namespace(t, milan.tenant, liqoNamespaceLabels("rome"))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "liqo-binding-liqo-remote-controlplane", Labels: peering("rome")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "rome"}},
	}
	milan.Create(t, binding.DeepCopy())

	// Liqo's liqoctl has the nonce signed, and makes the rest of the Tenant itself, of the keys in the namespace of Liqo.
	nonce := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("n"), 64))
	rome.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "liqo-signed-nonce", Labels: peering("milan", "liqo.io/signed-nonce", "true")},
		StringData: map[string]string{"nonce": nonce},
	})
	signature := rome.secret("liqo-signed-nonce", "signedNonce")
	keys := new(corev1.Secret)
	rome.Read(t, controlplanetest.LiqoNamespace, "authentication-keys", keys)
	private, public := parsed(t, keys.Data["privateKey"], x509.ParsePKCS8PrivateKey), parsed(t, keys.Data["publicKey"], x509.ParsePKIXPublicKey)
	key, is := private.(ed25519.PrivateKey)
	if !is || !key.Public().(ed25519.PublicKey).Equal(public) || !ed25519.Verify(public.(ed25519.PublicKey), []byte(nonce), signature) {
		t.Fatalf("the keys are %T and %T, and the signature is not theirs", private, public)
	}
	identity := object(t, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Identity",
"metadata": {"name": "controlplane-milan", "namespace": %q, "creationTimestamp": null, "labels": {"liqo.io/remote-cluster-id": "milan"}},
"spec": {"clusterID": "milan", "type": "ControlPlane", "authParams": %s, "namespace": %q}, "status": {}}`,
		rome.tenant, milan.grant(liqoRequest(t, key, "rome", "liqo.io"), false), milan.tenant)
	rome.Create(t, identity)
	controlplanetest.Eventually(t, "the status of the Identity is filled", func(ctx context.Context) error {
		if err := rome.Client.Get(ctx, client.ObjectKeyFromObject(identity), identity); err != nil {
			return err
		}
		if name, _, _ := unstructured.NestedString(identity.Object, "status", "kubeconfigSecretRef", "name"); name != "kubeconfig-controlplane-milan" {
			return fmt.Errorf("it is %v", identity.Object["status"])
		}
		return nil
	})
	first := rome.secret("kubeconfig-controlplane-milan", "kubeconfig")
	if _, is := who(t, first); is.Username != "rome" || !slices.Contains(is.Groups, "liqo.io") {
		t.Errorf("milan knows rome as %+v", is)
	}

	renew := new(authv1beta1.Renew)
	milan.copied("controlplane-milan", renew)
	if renew.Spec.ConsumerClusterID != "rome" || renew.Spec.IdentityType != authv1beta1.ControlPlaneIdentity {
		t.Errorf("rome has renewed %+v", renew.Spec)
	}
	milan.answer("Renew", "controlplane-milan", `{"authParams": %s}`, milan.grant(liqoRequest(t, key, "rome", "liqo.io"), true))
	controlplanetest.Eventually(t, "rome has the renewed certificate", func(context.Context) error {
		if bytes.Equal(rome.secret("kubeconfig-controlplane-milan", "kubeconfig"), first) {
			return errors.New("it has the first one")
		}
		return nil
	})

	s := slice(rome, "milan", "cpu", "2")
	s.Annotations = map[string]string{"liqo.io/create-virtual-node": "true"}
	rome.Create(t, s)
	copied := new(authv1beta1.ResourceSlice)
	controlplanetest.Eventually(t, "the copy is complete: Liqo looks at no other", func(ctx context.Context) error {
		if err := milan.Get(ctx, milan.tenant, "milan", copied); err != nil {
			return err
		}
		if len(copied.Spec.CSR) == 0 {
			return errors.New("it has no request")
		}
		return nil
	})
	milan.copied("milan", copied)
	if copied.Annotations["liqo.io/create-virtual-node"] != "true" || copied.Spec.Class != "default" || *copied.Spec.ConsumerClusterID != "rome" || *copied.Spec.ProviderClusterID != "milan" {
		t.Errorf("asked for: %+v", copied)
	}
	request := parsed(t, copied.Spec.CSR, x509.ParseCertificateRequest)
	if got := request.Subject; got.CommonName != liqoUser("milan", "rome") || !slices.Equal(got.Organization, []string{"rome"}) || !key.Public().(ed25519.PublicKey).Equal(request.PublicKey) {
		t.Errorf("the request is for %s, with a key %T", got, request.PublicKey)
	}
	milan.answer("ResourceSlice", "milan", accepted, milan.grant(copied.Spec.CSR, true), "Accepted")
	got := rome.sliceBecomes("milan", "ResourceSliceAuthenticationAccepted", "ResourceSliceResourcesAccepted")
	if len(got.Status.StorageClasses) != 2 || got.Status.NodeLabels["region"] != "eu" || len(got.Status.Resources) != 4 {
		t.Errorf("granted: %+v", got.Status)
	}
	if _, is := who(t, rome.secret("kubeconfig-resourceslice-milan", "kubeconfig")); is.Username != liqoUser("milan", "rome") || !slices.Contains(is.Groups, "rome") {
		t.Errorf("milan knows the slice as %+v", is)
	}

	t.Run("cordoned", func(t *testing.T) {
		milan.copied("milan", copied)
		copied.Annotations["liqo.io/cordon-tenant"] = "true"
		milan.update(copied)
		got.Labels["team"] = "network"
		rome.update(got)
		controlplanetest.Eventually(t, "the label is copied", func(ctx context.Context) error {
			if err := milan.Get(ctx, milan.tenant, "milan", copied); err != nil {
				return err
			}
			if copied.Labels["team"] == "" {
				return fmt.Errorf("it has %v", copied.Labels)
			}
			return nil
		})
		if copied.Annotations["liqo.io/cordon-tenant"] != "true" {
			t.Errorf("rome has uncordoned it: %v", copied.Annotations)
		}
	})
	t.Run("denied", func(t *testing.T) {
		milan.answer("ResourceSlice", "milan", accepted, "null", "Denied")
		rome.sliceBecomes("milan", "ResourceSliceAuthenticationDenied", "ResourceSliceResourcesAccepted")
		rome.Gone(t, &authv1beta1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "resourceslice-milan"}})
	})
	t.Run("drained, and active again", func(t *testing.T) {
		milan.Delete(t, binding)
		milan.Delete(t, copied)
		rome.changeCPU("milan", "3") // which is not to be had now
		rome.event("kubeconfig-controlplane-milan", "RoleBindingMissing", "liqo-remote-controlplane")
		binding.ResourceVersion = ""
		milan.Create(t, binding)
		milan.copied("milan", copied)
	})
	t.Run("the end", func(t *testing.T) {
		rome.Delete(t, identity)
		milan.copies()
		milan.Gone(t, renew)
	})
}

// parsed is what a PEM block has, as the parser reads it.
func parsed[T any](t *testing.T, text []byte, parse func([]byte) (T, error)) T {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		t.Fatalf("%q is not one PEM block", text)
	}
	v, err := parse(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
