package authentication_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestRenewal uses an identity all the time while its certificates, of ten minutes, are replaced: no request fails. The
// clock of the provider is so far ahead that two thirds of their life are over as soon as they are signed, and the last
// third is not, so that there are new ones all the time.
func TestRenewal(t *testing.T) {
	t.Parallel()
	const renewals = 4
	rome := newSite(t, "rome", "milan", "liqo-tenant-milan")
	milan := newSite(t, "milan", "rome", "liqo-tenant-rome", func(o *authentication.Options) {
		o.CertificateLifetime = 10 * time.Minute
		o.Now = func() time.Time { return time.Now().Add(7 * time.Minute) }
	})
	milan.Create(t, prove(t, rome, milan))
	params := milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady).Status.AuthParams
	rome.Create(t, &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "controlplane-milan", Labels: peering("milan")},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity, AuthParams: *params, Namespace: new(milan.tenant)},
	})
	rome.secret("kubeconfig-controlplane-milan", "kubeconfig")
	rome.Create(t, slice(rome, "before", "cpu", "1"))

	asked := make(chan []byte) // the kubeconfig with which milan was asked
	controlplanetest.Repeat(t, 50*time.Millisecond, func(ctx context.Context) {
		var s corev1.Secret
		if err := rome.Get(ctx, rome.tenant, "kubeconfig-controlplane-milan", &s); err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		if err := ask(ctx, s.Data["kubeconfig"], milan.tenant); err != nil && ctx.Err() == nil {
			t.Errorf("milan does not serve the identity: %v", err)
		}
		select {
		case asked <- s.Data["kubeconfig"]:
		case <-ctx.Done():
		}
	})
	first := <-asked
	last, kept := first, rome.secret("liqo-copies", "milan."+milan.tenant)
	for n := 0; n < renewals; {
		select {
		case now := <-asked:
			if !bytes.Equal(now, last) {
				n, last = n+1, now
			}
		case <-time.After(controlplanetest.Patience):
			t.Fatalf("nothing was asked after %d renewals", n)
		}
	}
	go func() { // the rest is asked by nobody here
		for range asked {
		}
	}()
	if err := ask(t.Context(), first, milan.tenant); err != nil {
		t.Errorf("the first certificate has not expired: %v", err)
	}
	for _, name := range []string{"before", "after"} {
		if name == "after" {
			rome.Create(t, slice(rome, name, "cpu", "1"))
		}
		rome.sliceBecomes(name, authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	}
	controlplanetest.Eventually(t, "copies can be taken back with newer credentials", func(context.Context) error {
		if bytes.Equal(rome.secret("liqo-copies", "milan."+milan.tenant), kept) {
			return errors.New("those of the beginning are kept")
		}
		return nil
	})
	var events eventsv1.EventList
	if err := rome.Client.List(t.Context(), &events, client.InNamespace(rome.tenant)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && e.Regarding.Name == "kubeconfig-controlplane-milan" {
			t.Errorf("event %s: %s", e.Reason, e.Note)
		}
	}
}

// ask is a request by a client of its own.
func ask(ctx context.Context, kubeconfig []byte, namespace string) error {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		return fmt.Errorf("new client: %w", err)
	}
	return c.List(ctx, &authv1beta1.ResourceSliceList{}, client.InNamespace(namespace))
}
