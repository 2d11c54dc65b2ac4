package resourceslice

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	// Reader reads past the cache.
	Reader   client.Reader
	Recorder events.EventRecorder
	Cluster  identify.Cluster

	// told is what the author of a slice was told last, a string by client.ObjectKey. Several slices are reconciled at once.
	told sync.Map
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=list

// Reconcile fills in what the user need not write: who asks whom, and the request for a certificate.
func (r *consumer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(authv1beta1.ResourceSlice)
	if err := r.Get(ctx, req.NamespacedName, s); err != nil {
		r.told.Delete(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() || isCopy(s) {
		return ctrl.Result{}, nil
	}
	if s.Labels[authv1beta1.LabelReplication] != networkingv1beta1.LabelTrue {
		r.tell(s, authv1beta1.ReasonNotReplicated, fmt.Sprintf("the slice is not copied to the provider: set its label %s to %s", authv1beta1.LabelReplication, networkingv1beta1.LabelTrue))
		return ctrl.Result{}, nil
	}
	provider := authv1beta1.ClusterID(s.Labels[authv1beta1.LabelReplicationDestination])
	if provider == "" || s.Labels[networkingv1beta1.LabelRemoteClusterID] != string(provider) {
		r.tell(s, authv1beta1.ReasonConsumerInvalid, fmt.Sprintf("the labels %s and %s must both be the ID of the provider", authv1beta1.LabelReplicationDestination, networkingv1beta1.LabelRemoteClusterID))
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
		OwnerReferences: apply.Controller(s, authv1beta1.GroupVersion.WithKind("ResourceSlice")),
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
	return r.unanswered(ctx, s)
}

// unanswered tells the author of a slice that nobody copies it, if that is why there is no answer.
func (r *consumer) unanswered(ctx context.Context, s *authv1beta1.ResourceSlice) error {
	var identities corev1.SecretList
	provider := s.Labels[authv1beta1.LabelReplicationDestination]
	err := r.Reader.List(ctx, &identities, client.InNamespace(s.Namespace), client.Limit(1), client.MatchingLabels{
		authv1beta1.LabelIdentityType: string(authv1beta1.ControlPlaneIdentity), networkingv1beta1.LabelRemoteClusterID: provider,
	})
	switch {
	case err != nil:
		return fmt.Errorf("look for the identity: %w", err)
	case len(identities.Items) == 0:
		r.tell(s, authv1beta1.ReasonNotReplicated, fmt.Sprintf("the slice is not copied to cluster %s: this namespace has no Secret with the labels %s=%s and %s=%[1]s, the identity that liqoctl authenticate makes",
			provider, authv1beta1.LabelIdentityType, authv1beta1.ControlPlaneIdentity, networkingv1beta1.LabelRemoteClusterID))
	default:
		r.told.Delete(client.ObjectKeyFromObject(s))
	}
	return nil
}

// tell records an event about a slice, unless it is what was told last.
func (r *consumer) tell(s *authv1beta1.ResourceSlice, reason, text string) {
	if before, _ := r.told.Swap(client.ObjectKeyFromObject(s), text); before == text {
		return
	}
	apply.Event(r.Recorder, s, corev1.EventTypeWarning, reason, "Complete", text)
}

func authenticated(s *authv1beta1.ResourceSlice) authv1beta1.ResourceSliceConditionStatus {
	for _, c := range s.Status.Conditions {
		if c.Type == authv1beta1.SliceAuthentication {
			return c.Status
		}
	}
	return ""
}
