// Package authentication runs the controllers by which clusters get identities in each other and ask for resources.
//
//	provider: handshake, tenant, resourceslice, renewal      who may ask, and what is granted
//	consumer: handshake, identity, resourceslice, renewal    what is asked, and with which credentials
//	          replication                                    there and back
package authentication

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/handshake"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/authentication/identity"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/renewal"
	"github.com/sluice-net/sluice/controlplane/authentication/replication"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/authentication/tenant"
	"github.com/sluice-net/sluice/controlplane/finalizers"
)

// Options say what this cluster grants.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// APIServer is where consumers reach this cluster.
	APIServer issue.APIServer
	// CertificateLifetime is how long the certificates of consumers are to be valid; zero: as long as the signer likes.
	CertificateLifetime time.Duration
	// Now is the clock by which certificates are renewed; nil: time.Now.
	Now func() time.Time
	// NamespaceMaps has them copied to providers as well: there is offloading.
	NamespaceMaps bool
	// Slices say what is offered.
	Slices resourceslice.Options
}

// What finalizers of Liqo's are removed from:
//
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants;resourceslices;renews,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch

// SetupWithManager adds the controllers to mgr. peerings is that of [PeeringCache].
func SetupWithManager(mgr ctrl.Manager, peerings cache.Cache, o Options) error {
	cluster := identify.Cluster{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), LiqoNamespace: o.LiqoNamespace}
	issuer := &issue.Issuer{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), APIServer: o.APIServer, Lifetime: o.CertificateLifetime, Now: o.Now}
	if issuer.Now == nil {
		issuer.Now = time.Now
	}
	for _, c := range []struct {
		name string
		err  error
	}{
		{"handshake", handshake.SetupWithManager(mgr, peerings, cluster)},
		{"tenant", tenant.SetupWithManager(mgr, peerings, cluster, issuer)},
		{"resourceslice", resourceslice.SetupWithManager(mgr, cluster, issuer, o.Slices)},
		{"identity", identity.SetupWithManager(mgr, peerings, cluster)},
		{"renewal", renewal.SetupWithManager(mgr, cluster)},
		{"replication", replication.SetupWithManager(mgr, peerings, cluster, o.NamespaceMaps)},
		{"finalizers", finalizers.SetupWithManager(mgr,
			finalizers.Of{Kind: new(authv1beta1.Tenant), Finalizers: []string{authv1beta1.FinalizerTenant}},
			finalizers.Of{Kind: new(authv1beta1.ResourceSlice), Finalizers: []string{authv1beta1.FinalizerReplicated}},
			finalizers.Of{Kind: new(authv1beta1.Renew), Finalizers: []string{authv1beta1.FinalizerReplicated}},
			finalizers.Of{Kind: new(corev1.Secret), Finalizers: []string{authv1beta1.FinalizerReplicator}, Cache: peerings},
		)},
	} {
		if c.err != nil {
			return fmt.Errorf("set up %s: %w", c.name, c.err)
		}
	}
	return nil
}

// PeeringCache adds to mgr a cache of what has the label of a peering, which is little: Secrets and RoleBindings. Its own
// cache holds those of gateways.
func PeeringCache(mgr ctrl.Manager) (cache.Cache, error) {
	of, err := labels.NewRequirement(networkingv1beta1.LabelRemoteClusterID, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	labelled := cache.ByObject{Label: labels.NewSelector().Add(*of)}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: labelled, &rbacv1.RoleBinding{}: labelled},
	})
	if err != nil {
		return nil, fmt.Errorf("new cache of peerings: %w", err)
	}
	return c, mgr.Add(c)
}
