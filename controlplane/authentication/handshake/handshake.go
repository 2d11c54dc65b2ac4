// Package handshake serves the two Secrets by which a consumer proves to a provider who it is: it fills a nonce on the
// provider, and signs one on the consumer.
//
//	provider: Secret liqo-nonce, label liqo.io/nonce               -> data.nonce
//	consumer: Secret liqo-signed-nonce, label liqo.io/signed-nonce -> data.signedNonce, and data.publicKey and data.csr,
//	                                                                  of which the Tenant at the provider is made
//
// So nobody needs to read the private key of a cluster to make its Tenant.
//
// The signature is by the key of this cluster, so nothing but nonces is signed (package credentials), and only in
// tenant namespaces.
package handshake

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// recheck is how soon a Secret that cannot be served is looked at again: a label of its namespace wakes nobody.
const recheck = 10 * time.Second

// Reconciler fills and signs nonces.
type Reconciler struct {
	client.Client
	// Reader reads past the cache.
	Reader   client.Reader
	Secrets  client.Reader
	Recorder events.EventRecorder
	Cluster  identify.Cluster
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// SetupWithManager adds the reconciler to mgr. secrets sees the Secrets of peerings.
func SetupWithManager(mgr ctrl.Manager, secrets cache.Cache, cluster identify.Cluster) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Secrets: secrets, Recorder: mgr.GetEventRecorder("liqo-controller"), Cluster: cluster,
	}
	return controllers.New(mgr, "handshake", controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, s *corev1.Secret) []ctrl.Request {
				if !marked(s, authv1beta1.LabelNonce) && !marked(s, authv1beta1.LabelSignedNonce) {
					return nil
				}
				return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(s)}}
			}))).
		Complete(r)
}

func marked(s *corev1.Secret, label string) bool {
	return s.Labels[label] == networkingv1beta1.LabelTrue
}

// Reconcile serves one Secret.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(corev1.Secret)
	if err := r.Secrets.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	ns := new(corev1.Namespace)
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: s.Namespace}, ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	values, why, err := r.missing(ctx, ns, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why != "" {
		r.Recorder.Eventf(s, nil, corev1.EventTypeWarning, "NonceRefused", "Handshake", "%s", why)
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	if values == nil {
		return ctrl.Result{}, nil
	}
	before := s.DeepCopy()
	if s.Data == nil {
		s.Data = make(map[string][]byte, len(values))
	}
	maps.Copy(s.Data, values)
	err = r.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write the Secret: %w", err)
	}
	return ctrl.Result{}, nil
}

// missing returns what the Secret lacks, or why it cannot have it.
func (r *Reconciler) missing(ctx context.Context, ns *corev1.Namespace, s *corev1.Secret) (values map[string][]byte, why string, err error) {
	peer := s.Labels[networkingv1beta1.LabelRemoteClusterID]
	if ns.Labels[networkingv1beta1.LabelTenantNamespace] != networkingv1beta1.LabelTrue || ns.Labels[networkingv1beta1.LabelRemoteClusterID] != peer {
		return nil, fmt.Sprintf("namespace %s is not the tenant namespace of cluster %q: nonces are served nowhere else", ns.Name, peer), nil
	}
	nonce := s.Data[authv1beta1.NonceKey]
	if marked(s, authv1beta1.LabelNonce) {
		if len(nonce) > 0 {
			return nil, "", nil
		}
		return map[string][]byte{authv1beta1.NonceKey: credentials.NewNonce()}, "", nil
	}
	if len(nonce) == 0 {
		return nil, "data.nonce is empty: write the provider's nonce into it", nil
	}
	if !credentials.ValidNonce(nonce) {
		return nil, "data.nonce is not a nonce: it must be what the provider has in its Secret " + authv1beta1.NonceSecret, nil
	}
	k, err := r.Cluster.Key(ctx)
	if err != nil {
		return nil, "", err
	}
	public, err := k.Public()
	if err != nil || credentials.Verify(public, nonce, s.Data[authv1beta1.SignedNonceKey]) && len(s.Data[authv1beta1.RequestKey]) > 0 {
		return nil, "", err // it is signed
	}
	id, err := r.Cluster.ID(ctx)
	if err != nil {
		return nil, "", err
	}
	values = map[string][]byte{}
	for key, make := range map[string]func() ([]byte, error){
		authv1beta1.SignedNonceKey: func() ([]byte, error) { return k.Sign(nonce) },
		authv1beta1.PublicKey:      k.MarshalPublic,
		authv1beta1.RequestKey:     func() ([]byte, error) { return k.Request(credentials.ControlPlaneSubject(id)) },
	} {
		if values[key], err = make(); err != nil {
			return nil, "", err
		}
	}
	return values, "", nil
}
