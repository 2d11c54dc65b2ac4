package resourceslice

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
)

// identityPrefix begins the name of the Identity of a slice.
const identityPrefix = "resourceslice-"

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities,verbs=get;list;watch;create;patch;delete

// consumer completes the slices that are to be copied to a provider.
type consumer struct {
	client.Client
	Recorder events.EventRecorder
	Cluster  identify.Cluster
}

// Reconcile fills in what the user need not write: who asks whom, and the request for a certificate.
func (r *consumer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(authv1beta1.ResourceSlice)
	if err := r.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() || !isSource(s) {
		return ctrl.Result{}, nil
	}
	provider := authv1beta1.ClusterID(s.Labels[authv1beta1.LabelReplicationDestination])
	if provider == "" || s.Labels[networkingv1beta1.LabelRemoteClusterID] != string(provider) {
		r.Recorder.Eventf(s, nil, corev1.EventTypeWarning, authv1beta1.ReasonConsumerInvalid, "Complete",
			"the labels %s and %s must both be the ID of the provider", authv1beta1.LabelReplicationDestination, networkingv1beta1.LabelRemoteClusterID)
		return ctrl.Result{}, nil
	}
	id, err := r.Cluster.ID(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	own := authv1beta1.ClusterID(id)
	key, err := r.Cluster.Key(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	public, err := key.Public()
	if err != nil {
		return ctrl.Result{}, err
	}
	before, subject := s.DeepCopy(), credentials.SliceSubject(s.Name, id)
	// A request is made anew when the key has changed.
	complete := credentials.JudgeRequest(s.Spec.CSR, subject, public) == nil
	if !complete {
		if s.Spec.CSR, err = key.Request(subject); err != nil {
			return ctrl.Result{}, err
		}
	}
	if s.Spec.ConsumerClusterID == nil || s.Spec.ProviderClusterID == nil {
		s.Spec.ConsumerClusterID, s.Spec.ProviderClusterID, complete = &own, &provider, false
	}
	if complete {
		return ctrl.Result{}, r.identity(ctx, s)
	}
	err = r.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("complete: %w", err)
	}
	return ctrl.Result{}, nil
}

// identity keeps the Identity of a slice: there while the provider grants credentials for it.
func (r *consumer) identity(ctx context.Context, s *authv1beta1.ResourceSlice) error {
	i := &authv1beta1.Identity{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: identityPrefix + s.Name,
		Labels: map[string]string{
			networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: string(*s.Spec.ProviderClusterID),
			authv1beta1.LabelResourceSliceName: s.Name,
		},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, authv1beta1.GroupVersion.WithKind("ResourceSlice"))},
	}}
	switch authenticated(s) {
	case authv1beta1.SliceAccepted:
		if s.Status.AuthParams == nil {
			return nil
		}
		i.Spec = authv1beta1.IdentitySpec{ClusterID: *s.Spec.ProviderClusterID, Type: authv1beta1.ResourceSliceIdentity, AuthParams: *s.Status.AuthParams}
		_, err := apply.Object(ctx, r.Client, nil, i)
		if theirs := new(apply.ForeignError); errors.As(err, &theirs) {
			r.Recorder.Eventf(s, nil, corev1.EventTypeWarning, authv1beta1.ReasonIdentityInTheWay, "Complete", "%v", theirs)
		}
		return err // also then: nothing else has it tried again
	case authv1beta1.SliceDenied:
		there := new(authv1beta1.Identity)
		if err := r.Get(ctx, client.ObjectKeyFromObject(i), there); err != nil || !metav1.IsControlledBy(there, s) {
			return client.IgnoreNotFound(err)
		}
		return apply.Delete(ctx, r.Client, there)
	}
	return nil // no answer yet
}

func authenticated(s *authv1beta1.ResourceSlice) authv1beta1.ResourceSliceConditionStatus {
	for _, c := range s.Status.Conditions {
		if c.Type == authv1beta1.SliceAuthentication {
			return c.Status
		}
	}
	return ""
}

// isSource tells whether a slice is one that the user of this cluster wrote, to be copied.
func isSource(s *authv1beta1.ResourceSlice) bool {
	return s.Labels[authv1beta1.LabelReplication] == networkingv1beta1.LabelTrue && !isCopy(s)
}
