// Package quota keeps a Quota for each ResourceSlice that this cluster has granted: what the pods of the slice's user may
// take. A Quota goes with its slice.
package quota

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
	"github.com/sluice-net/sluice/controlplane/objectname"
)

// reconciler keeps the Quota of one slice.
type reconciler struct {
	client.Client
	enforcement offloadingv1beta1.LimitsEnforcement
}

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=quotas,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices,verbs=get;list;watch

// SetupWithManager adds the reconciler to mgr. enforcement is that of the Quotas.
func SetupWithManager(mgr ctrl.Manager, enforcement offloadingv1beta1.LimitsEnforcement) error {
	return controllers.New(mgr, "quota", controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
		For(&authv1beta1.ResourceSlice{}).
		Owns(&offloadingv1beta1.Quota{}).
		Complete(apply.RequeueOnConflict(&reconciler{Client: mgr.GetClient(), enforcement: enforcement}))
}

// Reconcile makes the Quota of a slice what the slice grants.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(authv1beta1.ResourceSlice)
	if err := r.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // its owner is gone
	}
	if !s.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	want := wanted(s, r.enforcement)
	var list offloadingv1beta1.QuotaList
	if err := r.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Quotas: %w", err)
	}
	for i := range list.Items {
		if q := &list.Items[i]; metav1.IsControlledBy(q, s) && (want == nil || q.Name != want.Name) {
			if err := apply.Delete(ctx, r.Client, q); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	if want == nil {
		return ctrl.Result{}, nil
	}
	wrote, err := apply.Object(ctx, r.Client, nil, want)
	if why, refused := apply.Refusal(err); refused {
		log.FromContext(ctx).Info("a Quota is not made", "why", why)
		return ctrl.Result{}, nil
	}
	if wrote {
		log.FromContext(ctx).Info("granted", "user", want.Spec.User, "cordoned", *want.Spec.Cordoned)
	}
	return ctrl.Result{}, err
}

// wanted is the Quota of a slice; nil: it has none.
//
//	slice                                  Quota
//	no copy, or no resources granted       none: its pods stay until they are deleted, and no more are made
//	granted                                what is granted
//	granted, and it or the Tenant cordoned  the same, cordoned
func wanted(s *authv1beta1.ResourceSlice, enforcement offloadingv1beta1.LimitsEnforcement) *offloadingv1beta1.Quota {
	consumer := s.Labels[authv1beta1.LabelReplicationOrigin]
	if s.Labels[authv1beta1.LabelReplicated] != networkingv1beta1.LabelTrue || len(validation.IsDNS1123Label(consumer)) > 0 ||
		len(s.Status.Resources) == 0 || !granted(s) || s.Spec.ConsumerClusterID == nil || string(*s.Spec.ConsumerClusterID) != consumer {
		return nil
	}
	user := credentials.SliceSubject(s.Name, consumer).CommonName
	return &offloadingv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: objectname.Shorten(user, validation.DNS1123SubdomainMaxLength),
			Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: consumer,
				offloadingv1beta1.LabelCreatorUser: objectname.Shorten(user, validation.LabelValueMaxLength),
			},
			OwnerReferences: apply.Controller(s, authv1beta1.GroupVersion.WithKind("ResourceSlice")),
		},
		Spec: offloadingv1beta1.QuotaSpec{
			User: user, Resources: s.Status.Resources, LimitsEnforcement: enforcement, Cordoned: new(cordoned(s)),
		},
	}
}

func granted(s *authv1beta1.ResourceSlice) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == authv1beta1.SliceResources {
			return c.Status == authv1beta1.SliceAccepted
		}
	}
	return false
}

// cordoned tells whether the slice keeps what it has and gets no more, by its own annotation or by that of its Tenant.
func cordoned(s *authv1beta1.ResourceSlice) bool {
	tenant, ok := s.Annotations[authv1beta1.AnnotationCordonTenant]
	return s.Cordoned() || ok && tenant != "false"
}
