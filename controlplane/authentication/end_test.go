package authentication_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestEndByLiqosLiqoctl ends a peering as Liqo's liqoctl does: it deletes the Tenant and the Identity, and nothing else. What
// would be in the way of the next peering goes with them.
func TestEndByLiqosLiqoctl(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", "liqo-tenant-milan"), newSite(t, "milan", "rome", "liqo-tenant-rome")
	tenant := prove(t, rome, milan)
	milan.Create(t, tenant)
	params := milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady).Status.AuthParams
	identity := &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "controlplane-milan", Labels: peering("milan")},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity, AuthParams: *params, Namespace: new(milan.tenant)},
	}
	rome.Create(t, identity)
	signed, renew := &corev1.Secret{}, &authv1beta1.Renew{}
	controlplanetest.Eventually(t, "what goes is tied to what ends", func(ctx context.Context) error {
		if err := rome.Get(ctx, rome.tenant, "liqo-signed-nonce", signed); err != nil || len(signed.OwnerReferences) != 1 || signed.OwnerReferences[0].UID != identity.UID {
			return fmt.Errorf("the signed nonce has the owners %+v: %v", signed.OwnerReferences, err)
		}
		if err := milan.Get(ctx, milan.tenant, "controlplane-milan", renew); err != nil || len(renew.OwnerReferences) != 1 || renew.OwnerReferences[0].UID != tenant.UID {
			return fmt.Errorf("the Renew has the owners %+v: %v", renew.OwnerReferences, err)
		}
		return nil
	})
	// Nobody else's Secret is tied to an Identity: in other namespaces are one of no handshake, one for another peer, and one
	// that goes with something else.
	others := make(map[string]*corev1.Secret)
	for namespace, labels := range map[string]map[string]string{"unmarked": peering("milan"), "of-another": peering("naples", "liqo.io/signed-nonce", "true"), "owned": peering("milan", "liqo.io/signed-nonce", "true")} {
		rome.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
		rome.Create(t, owner)
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "liqo-signed-nonce", Labels: labels}}
		if namespace == "owned" {
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		}
		rome.Create(t, o)
		others[namespace] = o
		elsewhere := &authv1beta1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: identity.Name, Labels: peering("milan")}, Spec: identity.Spec}
		rome.Create(t, elsewhere)
	}
	// The Tenant first: then the consumer may delete its copies no more.
	if err := milan.Client.Delete(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if err := rome.Client.Delete(t.Context(), identity); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "nothing is left of the proof and of the copy", func(ctx context.Context) error {
		for s, o := range map[*site]client.Object{rome: signed, milan: renew} {
			if err := s.Get(ctx, o.GetNamespace(), o.GetName(), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is there, in %s: %v", o.GetName(), s.id, err)
			}
		}
		return nil
	})
	for namespace, before := range others { // their Identities have been looked at, as the one of their namespace came last
		now := new(corev1.Secret)
		if rome.Read(t, namespace, "liqo-signed-nonce", now); !equality.Semantic.DeepEqual(before.OwnerReferences, now.OwnerReferences) {
			t.Errorf("the Secret of somebody else in namespace %s has the owners %+v", namespace, now.OwnerReferences)
		}
	}
	// So the next peering begins as the first one did, with the nonce that the provider has now.
	rome.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "liqo-signed-nonce", Labels: peering("milan", "liqo.io/signed-nonce", "true")},
		Data:       map[string][]byte{"nonce": milan.secret("liqo-nonce", "nonce")},
	})
	milan.Create(t, &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "rome", Labels: peering("rome")},
		Spec: authv1beta1.TenantSpec{
			ClusterID: "rome", PublicKey: rome.secret("liqo-signed-nonce", "publicKey"), CSR: rome.secret("liqo-signed-nonce", "csr"),
			Signature: rome.secret("liqo-signed-nonce", "signedNonce"),
		},
	})
	milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady)
}
