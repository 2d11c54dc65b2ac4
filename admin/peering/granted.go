package peering

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
)

// ready returns the Tenant's credentials, if the provider has granted them before and the consumer uses them.
func (h *handshake) ready(ctx context.Context) (*authv1beta1.AuthParams, error) {
	var t authv1beta1.Tenant
	err := h.provider.Client.Get(ctx, h.provider.named(h.consumer.id), &t)
	if err != nil {
		return nil, h.provider.Explain("read the Tenant", client.IgnoreNotFound(err))
	}
	if h.proxyURL != nil && (t.Spec.ProxyURL == nil || *t.Spec.ProxyURL != *h.proxyURL) {
		return nil, nil // the proxy has changed
	}
	if t.DeletionTimestamp != nil || !meta.IsStatusConditionTrue(t.Status.Conditions, authv1beta1.ConditionReady) {
		return nil, nil
	}
	if used, err := h.used(ctx, &t); !used || err != nil {
		return nil, err
	}
	return t.Status.AuthParams, nil
}

// used tells whether the consumer has an identity with the key of the Tenant. A consumer that was installed anew has another
// key, of which only a handshake tells: its Secret is not for everyone to read.
func (h *handshake) used(ctx context.Context, t *authv1beta1.Tenant) (bool, error) {
	var i authv1beta1.Identity
	if err := h.consumer.Client.Get(ctx, h.consumer.named(identityName(h.provider.id)), &i); err != nil {
		return false, h.consumer.Explain("read the Identity", client.IgnoreNotFound(err))
	}
	if missing, err := identityNotReady(&i); missing != "" || err != nil {
		return false, nil // a handshake mends it
	}
	c, err := credentials.ParseCertificate(i.Spec.AuthParams.SignedCRT)
	return err == nil && c.For(t.Spec.CSR), nil
}

// addressMissing says that the credentials of a Tenant do not have the address that is configured for the API server. After
// 'liqoctl install' it takes the controller a while to lead and to change the Tenants.
func (e *end) addressMissing(ctx context.Context, tenant string, granted *authv1beta1.AuthParams) (missing string, err error) {
	installed, err := e.Installation(ctx)
	switch configured := installed.APIServerAddress; {
	case apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", err
	case configured != "" && configured != granted.APIServer:
		return fmt.Sprintf("Tenant %s still has the address %s of the API server: the controller has not changed it to %s, which is configured", tenant, granted.APIServer, configured), nil
	}
	return "", nil
}
