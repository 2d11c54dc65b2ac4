package peering

import (
	"bytes"
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// Liqo's controllers differ from ours in a handshake:
//
//	consumer   they write the signature of the nonce, and neither the public key nor the request beside it
//	provider   they write no condition into a Tenant: it is ready when it has what was asked for
//	consumer   nor into an Identity: it is ready when it names the Secret

// LiqoRuns tells whether Liqo's controllers run in a cluster, with or without ours. Peering users may not list Deployments,
// but may read the ConfigMap that comes with our chart, and see with Liqo that there is none.
func LiqoRuns(ctx context.Context, c *access.Cluster) (bool, error) {
	var list appsv1.DeploymentList
	err := c.Client.List(ctx, &list, client.InNamespace(c.LiqoNamespace))
	if !apierrors.IsForbidden(err) {
		return slices.ContainsFunc(list.Items, func(d appsv1.Deployment) bool {
			return survey.LiqosProgram(&d.ObjectMeta, &d.Spec.Template.Spec) == survey.LiqosControllers
		}), c.Explain("list Deployments in "+c.LiqoNamespace, err)
	}
	installed, unread := c.Installation(ctx)
	if apierrors.IsForbidden(unread) {
		return false, c.Errorf("it cannot be seen whether Liqo runs there, which takes other objects: get the right to list Deployments in namespace %s, or to get its ConfigMap %s: %w",
			c.LiqoNamespace, access.InstallationConfigMap, err)
	}
	return unread == nil && (installed.Adopted || installed.Version == ""), unread
}

// proofOfLiqo completes what Liqo's controller of the consumer has signed by what Liqo's own liqoctl reads the key of the
// cluster for. It is nil while the signature is that of an earlier nonce.
func (e *end) proofOfLiqo(ctx context.Context, signed map[string][]byte) (map[string][]byte, error) {
	name := types.NamespacedName{Namespace: e.LiqoNamespace, Name: authv1beta1.KeysSecret}
	s, err := e.readSecret(ctx, name)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, e.Errorf("there is no Secret %s, which has the key with which the controllers sign", name)
	}
	key, err := credentials.ParseKey(s.Data[authv1beta1.PrivateKey])
	if err != nil {
		return nil, e.Errorf("%s of Secret %s: %w", authv1beta1.PrivateKey, name, err)
	}
	public, err := key.Public()
	if err != nil {
		return nil, e.Errorf("%s of Secret %s: %w", authv1beta1.PrivateKey, name, err)
	}
	proof := map[string][]byte{authv1beta1.NonceKey: signed[authv1beta1.NonceKey], authv1beta1.SignedNonceKey: signed[authv1beta1.SignedNonceKey]}
	if !credentials.Verify(public, proof[authv1beta1.NonceKey], proof[authv1beta1.SignedNonceKey]) {
		return nil, nil
	}
	if proof[authv1beta1.PublicKey], err = key.MarshalPublic(); err != nil {
		return nil, err
	}
	proof[authv1beta1.RequestKey], err = key.Request(credentials.ControlPlaneSubject(e.id))
	return proof, err
}

// tenantNotReady is what a Tenant waits for. The credentials that Liqo grants say by themselves whether they are those that
// were asked for.
func tenantNotReady(t *authv1beta1.Tenant) (missing string, err error) {
	what := "Tenant " + t.Name
	if !t.JudgedByLiqo() {
		return notReady(what, t.Generation, t.Status.Conditions)
	}
	a := t.Status.AuthParams
	switch {
	case t.Spec.AuthzPolicy == authv1beta1.TolerateNoHandshake:
		return "", nil
	case a != nil && a.AwsConfig != nil:
		return "", nil
	case a != nil && equality.Semantic.DeepEqual(a.ProxyURL, t.Spec.ProxyURL):
		if c, err := credentials.ParseCertificate(a.SignedCRT); err == nil && c.For(t.Spec.CSR) {
			return "", nil
		}
	}
	return "no controller has granted credentials to the latest version of " + what + " yet", nil
}

// identityNotReady is what an Identity waits for.
func identityNotReady(i *authv1beta1.Identity) (missing string, err error) {
	if len(i.Status.Conditions) == 0 && i.Status.KubeconfigSecretRef != nil {
		return "", nil
	}
	return notReady("Identity "+i.Name, i.Generation, i.Status.Conditions)
}

// asksOtherwise tells whether a Tenant is to be written again.
func asksOtherwise(t, wanted *authv1beta1.Tenant) bool {
	return !bytes.Equal(t.Spec.Signature, wanted.Spec.Signature) || // which Liqo makes anew of the same nonce, and alike
		wanted.Spec.ProxyURL != nil && !equality.Semantic.DeepEqual(t.Spec.ProxyURL, wanted.Spec.ProxyURL)
}
