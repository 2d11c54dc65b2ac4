package authentication_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// These tests play Liqo 1.2 in the other cluster. They write what its controllers and its liqoctl write, with no field that
// is ours, and go on when there is what those wait for.

// liqoNamespaceLabels are those of a tenant namespace that Liqo makes.
func liqoNamespaceLabels(peer string) map[string]string {
	return map[string]string{
		"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": peer,
		"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/audit": "privileged", "pod-security.kubernetes.io/warn": "privileged",
	}
}

// liqoLabels are those of a copy that Liqo's replicator makes of an object of the consumer at the provider.
func liqoLabels(consumer, provider string) map[string]string {
	return map[string]string{
		"liqo.io/replication": "false", "liqo.io/replicated": "true", "liqo.io/originID": consumer, "liqo.io/remoteID": provider,
		"liqo.io/remote-cluster-id": consumer,
	}
}

// liqoRequest is a certificate signing request as Liqo makes it.
func liqoRequest(t *testing.T, key crypto.Signer, user, group string) []byte {
	t.Helper()
	subject, err := asn1.Marshal(pkix.Name{CommonName: user, Organization: []string{group}}.ToRDNSequence())
	if err != nil {
		t.Fatal(err)
	}
	algorithm := x509.PureEd25519
	if _, is := key.(*rsa.PrivateKey); is {
		algorithm = x509.SHA256WithRSA
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{RawSubject: subject, SignatureAlgorithm: algorithm}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// liqoUser is the user of Liqo's certificate for a slice.
func liqoUser(slice, consumer string) string {
	sum := sha256.Sum256([]byte(consumer))
	return fmt.Sprintf("%s-%x", slice, sum[:6])
}

// object is what a manifest in JSON says. A value that is bytes is written as base64.
func object(t *testing.T, format string, args ...any) *unstructured.Unstructured {
	t.Helper()
	for i, a := range args {
		if b, is := a.([]byte); is {
			args[i] = base64.StdEncoding.EncodeToString(b)
		}
	}
	o := new(unstructured.Unstructured)
	if err := json.Unmarshal(fmt.Appendf(nil, format, args...), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// liqoConsumer is a cluster with Liqo that asks milan.
type liqoConsumer struct {
	*site // milan, with the namespace for this consumer
	id    string
	key   crypto.Signer
}

// kubeconfig is that of an identity, as Liqo writes it.
func (c *liqoConsumer) kubeconfig(identity string, p *authv1beta1.AuthParams) []byte {
	c.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		Kind: "Config", APIVersion: "v1", CurrentContext: "default-context",
		Clusters: map[string]*clientcmdapi.Cluster{"milan": {Server: p.APIServer, CertificateAuthorityData: p.CA}},
		Contexts: map[string]*clientcmdapi.Context{"default-context": {Cluster: "milan", AuthInfo: identity, Namespace: c.tenant}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{identity: {
			ClientCertificateData: p.SignedCRT, ClientKeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// authenticate does what Liqo's liqoctl does, and returns what that takes from the Tenant. public is what the Tenant has as
// the consumer's key.
func (c *liqoConsumer) authenticate(public []byte) *authv1beta1.AuthParams {
	t := c.t
	t.Helper()
	c.Namespace(t, c.tenant, liqoNamespaceLabels(c.id))
	c.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.tenant, Name: "liqo-nonce", Labels: peering(c.id, "liqo.io/nonce", "true")}})
	nonce := c.secret("liqo-nonce", "nonce")
	if text, err := base64.StdEncoding.DecodeString(string(nonce)); err != nil || len(text) != 64 {
		t.Errorf("the nonce is %q", nonce)
	}
	text, hash := nonce, crypto.Hash(0)
	if _, is := c.key.(*rsa.PrivateKey); is {
		digest := sha256.Sum256(nonce)
		text, hash = digest[:], crypto.SHA256
	}
	signature, err := c.key.Sign(rand.Reader, text, hash)
	if err != nil {
		t.Fatal(err)
	}
	c.Create(t, object(t, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Tenant",
"metadata": {"name": %[1]q, "namespace": %[2]q, "creationTimestamp": null, "labels": {"liqo.io/remote-cluster-id": %[1]q}},
"spec": {"clusterID": %[1]q, "publicKey": %[3]q, "csr": %[4]q, "signature": %[5]q}, "status": {}}`,
		c.id, c.tenant, public, liqoRequest(t, c.key, c.id, "liqo.io"), signature))
	tenant := new(authv1beta1.Tenant)
	controlplanetest.Eventually(t, "the status of the Tenant is filled", func(ctx context.Context) error {
		if err := c.Get(ctx, c.tenant, c.id, tenant); err != nil {
			return err
		}
		if tenant.Status.AuthParams == nil || tenant.Status.TenantNamespace == "" {
			return fmt.Errorf("it is %+v", tenant.Status)
		}
		return nil
	})
	if tenant.Status.TenantNamespace != c.tenant || len(tenant.Status.AuthParams.CA) == 0 || tenant.Status.AuthParams.AwsConfig != nil {
		t.Errorf("granted: %+v", tenant.Status)
	}
	return tenant.Status.AuthParams
}

// TestLiqoConsumer has clusters with Liqo ask one of ours.
func TestLiqoConsumer(t *testing.T) {
	t.Parallel()
	milan := newSite(t, "milan", "nobody", "liqo-tenant-nobody")
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rivest, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, id string
		key      crypto.Signer
		raw      bool
	}{
		{"Ed25519", "rome", edwards, false},
		{"RSA, as in TLS compatibility mode", "oslo", rivest, false},
		{"the key in 32 bytes, as before 1.0.2", "riga", edwards, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := *milan
			of.t, of.tenant = t, "liqo-tenant-"+tt.id
			c := &liqoConsumer{site: &of, id: tt.id, key: tt.key}
			der, err := x509.MarshalPKIXPublicKey(tt.key.Public())
			if err != nil {
				t.Fatal(err)
			}
			public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
			if tt.raw {
				public = edwards.Public().(ed25519.PublicKey)
			}
			params := c.authenticate(public)
			cfg, err := clientcmd.RESTConfigFromKubeConfig(c.kubeconfig("controlplane-milan", params))
			if err != nil {
				t.Fatal(err)
			}
			replicator, err := client.NewWithWatch(cfg, client.Options{Scheme: kinds.Scheme()})
			if err != nil {
				t.Fatal(err)
			}
			testLiqoReplicator(t, c, replicator, params)
		})
	}
}

// testLiqoReplicator does what Liqo's replicator does with an identity.
func testLiqoReplicator(t *testing.T, c *liqoConsumer, replicator client.WithWatch, params *authv1beta1.AuthParams) {
	ctx := t.Context()
	for _, kind := range []string{"authentication.liqo.io/v1beta1 ResourceSlice", "authentication.liqo.io/v1beta1 Renew", "offloading.liqo.io/v1beta1 NamespaceMap"} {
		list := new(unstructured.UnstructuredList)
		var version, name string
		if _, err := fmt.Sscan(kind, &version, &name); err != nil {
			t.Fatal(err)
		}
		list.SetAPIVersion(version)
		list.SetKind(name + "List")
		of := []client.ListOption{client.InNamespace(c.tenant), client.MatchingLabels{"liqo.io/originID": c.id, "liqo.io/replicated": "true"}}
		if err := replicator.List(ctx, list, of...); err != nil {
			t.Errorf("list: %v", err)
		}
		w, err := replicator.Watch(ctx, list, of...)
		if err != nil {
			t.Errorf("watch: %v", err)
			continue
		}
		w.Stop()
	}
	text, err := json.Marshal(liqoLabels(c.id, "milan"))
	if err != nil {
		t.Fatal(err)
	}
	labels, user := string(text), liqoUser("milan", c.id)
	request := liqoRequest(t, c.key, user, c.id)
	renew := `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "Renew", "metadata": {"name": %q, "namespace": %q, "labels": %s}, "spec": {"consumerClusterID": %q, "identityType": %q%s}}`
	// An earlier Liqo asks for the certificates of slices, too. Those come back with the slices: its answer is not that of
	// the control plane.
	of := object(t, renew, "resourceslice-milan", c.tenant, labels, c.id, "ResourceSlice", fmt.Sprintf(`, "csr": %q, "resourceSliceRef": {"name": "milan"}`, base64.StdEncoding.EncodeToString(request)))
	// One in the name of another cluster gets nothing.
	another := object(t, renew, "another", c.tenant, labels, "naples", "ControlPlane", "")
	for _, o := range []client.Object{
		of, another, object(t, renew, "controlplane-milan", c.tenant, labels, c.id, "ControlPlane", ""),
		object(t, `{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "milan", "namespace": %q, "labels": %s, "annotations": {"liqo.io/create-virtual-node": "true"}},
"spec": {"class": "default", "consumerClusterID": %q, "providerClusterID": "milan", "csr": %q, "resources": {"cpu": "2"}}}`, c.tenant, labels, c.id, request),
	} {
		if err := replicator.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	controlplanetest.Eventually(t, "the Renew has the credentials of the Tenant", func(ctx context.Context) error {
		got := new(authv1beta1.Renew)
		if err := c.Get(ctx, c.tenant, "controlplane-milan", got); err != nil {
			return err
		}
		if got.Status.AuthParams == nil || !bytes.Equal(got.Status.AuthParams.SignedCRT, params.SignedCRT) {
			return fmt.Errorf("its status is %+v", got.Status)
		}
		return nil
	})
	slice := c.sliceBecomes("milan", "ResourceSliceAuthenticationAccepted", "ResourceSliceResourcesAccepted")
	if slice.Status.AuthParams == nil {
		t.Fatal("a slice that is accepted has no credentials")
	}
	if _, is := who(t, c.kubeconfig("resourceslice-milan", slice.Status.AuthParams)); is.Username != user || !slices.Contains(is.Groups, c.id) {
		t.Errorf("milan knows the slice as %+v, want %s", is, user)
	}
	// A change of the spec is written with all else as it was read.
	controlplanetest.Eventually(t, "the slice is changed", func(ctx context.Context) error {
		copied := new(authv1beta1.ResourceSlice)
		if err := replicator.Get(ctx, client.ObjectKeyFromObject(slice), copied); err != nil {
			return err
		}
		copied.Spec.Resources[corev1.ResourceCPU] = resource.MustParse("3")
		return replicator.Update(ctx, copied)
	})
	controlplanetest.Eventually(t, "the change is granted", func(ctx context.Context) error {
		if err := c.Get(ctx, c.tenant, "milan", slice); err != nil {
			return err
		}
		if cpu := slice.Status.Resources[corev1.ResourceCPU]; cpu.String() != "3" {
			return fmt.Errorf("granted: %+v", slice.Status.Resources)
		}
		return nil
	})
	for _, o := range []*unstructured.Unstructured{of, another} {
		if err := replicator.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.Object["status"] != nil {
			t.Errorf("the Renew %s is answered: %+v, %v", o.GetName(), o.Object["status"], err)
		}
	}
	for _, o := range []client.Object{slice, of, another} {
		if err := replicator.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
		if err := replicator.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("after it was deleted: %v", err)
		}
	}
}
