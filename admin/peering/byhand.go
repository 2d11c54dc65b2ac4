package peering

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// The steps of Authenticate one at a time, each in one cluster, for operators who can each reach only their own:
//
//	provider: CreateNonce, ReadNonce    consumer: ProveTenant    provider: GrantIdentity

// CreateNonce lets the controller of the provider create a nonce for a consumer.
func CreateNonce(ctx context.Context, provider *access.Cluster, consumerID string, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := prepareAlone(ctx, provider, consumerID, &o, tell, func(e *end) []access.Permission { return e.rightsToSign(authv1beta1.NonceSecret) })
	if err != nil {
		return err
	}
	var p plan
	space := p.add(nil, e.tenantNamespace())
	p.add(after(space), &step{
		in: e.Cluster, waiting: "Waiting for the nonce", done: "Nonce generated successfully", clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			_, missing, err = e.makeNonce(ctx)
			return missing, err
		},
	})
	return p.run(ctx, tell)
}

// ReadNonce returns the nonce that CreateNonce has created.
func ReadNonce(ctx context.Context, provider *access.Cluster, consumerID string) ([]byte, error) {
	e, err := prepareAlone(ctx, provider, consumerID, &Options{}, nil, nil)
	if err != nil {
		return nil, err
	}
	s, err := e.secretNamed(ctx, authv1beta1.NonceSecret)
	if err != nil {
		return nil, err
	}
	if s == nil || len(s.Data[authv1beta1.NonceKey]) == 0 {
		return nil, e.Errorf("there is no nonce for cluster %s: create one with 'liqoctl create nonce --remote-cluster-id %s'", consumerID, consumerID)
	}
	if err := judgeNonce(s); err != nil {
		return nil, e.Errorf("%w", err)
	}
	return s.Data[authv1beta1.NonceKey], nil
}

// judgeNonce refuses what is none in the Secret of a nonce. A peering user may write there, and the nonce is for a terminal.
func judgeNonce(s *corev1.Secret) error {
	if credentials.ValidNonce(s.Data[authv1beta1.NonceKey]) {
		return nil
	}
	return &complaint{fmt.Sprintf("%s of Secret %s/%s is not a nonce, and no consumer signs it: delete the Secret, and 'liqoctl create nonce' or 'liqoctl authenticate' creates another one",
		authv1beta1.NonceKey, s.Namespace, s.Name)}
}

// Proof says what a consumer proves itself with, and to whom.
type Proof struct {
	// ProviderID is the ID of the provider, Namespace the tenant namespace there; empty: the default one.
	ProviderID, Namespace string
	// Nonce is the provider's; empty: the one that was signed before.
	Nonce []byte
	// ProxyURL is the proxy by which the consumer wants to reach the provider's API server; nil: none.
	ProxyURL *string
}

// ProveTenant lets the controller of the consumer sign a nonce, and returns the Tenant for the provider to apply. It holds
// no secret.
func ProveTenant(ctx context.Context, consumer *access.Cluster, proof Proof, o Options, tell progress.Func) (*authv1beta1.Tenant, error) {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := prepareAlone(ctx, consumer, proof.ProviderID, &o, tell, func(e *end) []access.Permission { return e.rightsToSign(authv1beta1.SignedNonceSecret) })
	if err != nil {
		return nil, err
	}
	h := &handshake{consumer: e, provider: e.peer, nonceText: proof.Nonce}
	if len(h.nonceText) == 0 {
		s, err := e.secretNamed(ctx, authv1beta1.SignedNonceSecret)
		if err != nil {
			return nil, err
		}
		if s == nil || len(s.Data[authv1beta1.NonceKey]) == 0 {
			return nil, e.Errorf("no nonce of cluster %s has been signed yet: pass it with --nonce; 'liqoctl get nonce --remote-cluster-id %s' prints it in that cluster", proof.ProviderID, e.id)
		}
		h.nonceText = s.Data[authv1beta1.NonceKey]
	}
	var p plan
	space := p.add(nil, e.tenantNamespace())
	p.add(after(space), h.signature())
	if err := p.run(ctx, tell); err != nil {
		return nil, err
	}
	m := Metadata{Name: h.consumer.id, Namespace: cmp.Or(proof.Namespace, TenantNamespaceName(e.id)), RemoteClusterID: e.id, Labels: o.Labels, Annotations: o.Annotations}
	return newTenant(m, h.proof, proof.ProxyURL), nil
}

// GrantIdentity returns the Identity for a consumer to apply, once the Tenant of that is ready. namespace is the tenant
// namespace there; empty: the default one. It holds no secret: the certificate is of use only with the consumer's key.
func GrantIdentity(ctx context.Context, provider *access.Cluster, consumerID, namespace string, o Options, tell progress.Func) (*authv1beta1.Identity, error) {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := prepareAlone(ctx, provider, consumerID, &o, tell, nil)
	if err != nil {
		return nil, err
	}
	t := new(authv1beta1.Tenant)
	ready := &step{
		in: e.Cluster, waiting: "Waiting for the Tenant to be ready", done: "Tenant status is filled", clues: e.controllerClues,
		try: func(ctx context.Context) (missing string, err error) {
			if t, err = e.tenantOf(ctx); err != nil {
				return "", err
			}
			if t == nil {
				return "", &complaint{"namespace " + e.namespace + " has no Tenant for cluster " + consumerID + ": apply the one that 'liqoctl generate tenant' prints in that cluster"}
			}
			if missing, err := tenantNotReady(t); missing != "" || err != nil {
				return missing, err
			}
			if t.Status.AuthParams == nil {
				return "", &complaint{"Tenant " + t.Name + " has no credentials: with authzPolicy " + string(authv1beta1.TolerateNoHandshake) + " they are provided by other means"}
			}
			return e.addressMissing(ctx, t.Name, t.Status.AuthParams)
		},
	}
	if err := ready.runAlone(ctx, tell); err != nil {
		return nil, err
	}
	m := Metadata{Name: identityName(e.id), Namespace: cmp.Or(namespace, TenantNamespaceName(e.id)), RemoteClusterID: e.id, Labels: o.Labels, Annotations: o.Annotations}
	return newIdentity(m, t.Status.AuthParams, e.namespace), nil
}

// ReadKubeconfig returns the kubeconfig of an Identity for a provider. It holds a private key.
func ReadKubeconfig(ctx context.Context, consumer *access.Cluster, providerID, identity string) ([]byte, error) {
	e, err := prepareAlone(ctx, consumer, providerID, &Options{}, nil, nil)
	if err != nil {
		return nil, err
	}
	var i authv1beta1.Identity
	switch err := e.Client.Get(ctx, e.named(identity), &i); {
	case apierrors.IsNotFound(err):
		return nil, e.Errorf("there is no Identity %s/%s: 'kubectl get identities -A' lists the existing ones", e.namespace, identity)
	case err != nil:
		return nil, e.Explain("read Identity "+identity, err)
	case i.Status.KubeconfigSecretRef == nil:
		if _, err := notReady("Identity "+identity, i.Generation, i.Status.Conditions); err != nil {
			return nil, e.Errorf("%w", err)
		}
		return nil, e.Errorf("Identity %s has no kubeconfig yet", identity)
	}
	s, err := e.secretNamed(ctx, i.Status.KubeconfigSecretRef.Name)
	if err != nil {
		return nil, err
	}
	if s == nil || len(s.Data[authv1beta1.KubeconfigKey]) == 0 {
		return nil, e.Errorf("Secret %s/%s has no %s: the controller will restore it in a moment", e.namespace, i.Status.KubeconfigSecretRef.Name, authv1beta1.KubeconfigKey)
	}
	return s.Data[authv1beta1.KubeconfigKey], nil
}

// prepareAlone finds out all that stands in the way of identities in one cluster. rights returns what it takes; nil: no
// more than to read.
func prepareAlone(ctx context.Context, c *access.Cluster, peerID string, o *Options, tell progress.Func, rights func(*end) []access.Permission) (*end, error) {
	ends := alone(c, peerID, o)
	if rights == nil {
		rights = func(*end) []access.Permission { return nil }
	}
	if err := ends.prepareIdentities(ctx, tell, rights); err != nil {
		return nil, err
	}
	return ends[0], nil
}

// secretNamed reads a Secret of the tenant namespace; nil: there is none.
func (e *end) secretNamed(ctx context.Context, name string) (*corev1.Secret, error) {
	return e.readSecret(ctx, e.named(name))
}

func (e *end) readSecret(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	s := new(corev1.Secret)
	err := e.Client.Get(ctx, name, s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s, e.Explain("read Secret "+name.Name, err)
}

// tenantOf is the Tenant of the peer, under any name; nil: there is none.
func (e *end) tenantOf(ctx context.Context) (*authv1beta1.Tenant, error) {
	var list authv1beta1.TenantList
	if err := e.Client.List(ctx, &list, client.InNamespace(e.namespace)); err != nil {
		return nil, e.Explain("list Tenants", err)
	}
	for i := range list.Items {
		if t := &list.Items[i]; string(t.Spec.ClusterID) == e.peer.id && t.DeletionTimestamp == nil {
			return t, nil
		}
	}
	return nil, nil
}
