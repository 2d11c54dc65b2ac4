// Package renewal brings a consumer the newest certificate of its control plane.
//
//	consumer: Identity (ControlPlane) -> Renew of its name, to be copied; status.authParams -> Identity
//	provider: copy of a Renew         -> status.authParams, those of the consumer's Tenant, with which it goes
//
// The provider signs in good time by itself (package issue); a Renew is the way by which the consumer hears of it.
package renewal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=renews,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=renews/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=list

// SetupWithManager adds the reconcilers of both sides to mgr.
func SetupWithManager(mgr ctrl.Manager, cluster identify.Cluster) error {
	c, p := &consumer{Client: mgr.GetClient(), Cluster: cluster}, &provider{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()}
	return errors.Join(
		controllers.New(mgr, "renewal-consumer", controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
			For(&authv1beta1.Identity{}).
			Owns(&authv1beta1.Renew{}).
			Complete(apply.RequeueOnConflict(c)),
		controllers.New(mgr, "renewal-provider", controllers.Options{NewQueue: fairqueue.ByNamespace[ctrl.Request]}).
			For(&authv1beta1.Renew{}, builder.WithPredicates(predicate.NewPredicateFuncs(isCopy))).
			Watches(&authv1beta1.Tenant{}, handler.EnqueueRequestsFromMapFunc(p.ofTenant)).
			Complete(apply.RequeueOnConflict(p)),
	)
}

// consumer asks, and passes on the answer.
type consumer struct {
	client.Client
	Cluster identify.Cluster
}

// Reconcile keeps the Renew of one Identity.
func (r *consumer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	i := new(authv1beta1.Identity)
	if err := r.Get(ctx, req.NamespacedName, i); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !i.DeletionTimestamp.IsZero() || i.Spec.Type != authv1beta1.ControlPlaneIdentity || i.Spec.Namespace == nil {
		return ctrl.Result{}, nil
	}
	id, err := r.Cluster.ID(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	renew := new(authv1beta1.Renew)
	if err := client.IgnoreNotFound(r.Get(ctx, req.NamespacedName, renew)); err != nil {
		return ctrl.Result{}, err
	}
	want, err := r.request(ctx, i, renew, id)
	if err != nil {
		return ctrl.Result{}, err
	}
	if _, err := apply.Object(ctx, r.Client, nil, want); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.pass(ctx, i, renew)
}

// request is the Renew of an Identity. The request of the one that is there is kept while it is good.
func (r *consumer) request(ctx context.Context, i *authv1beta1.Identity, there *authv1beta1.Renew, id string) (*authv1beta1.Renew, error) {
	key, err := r.Cluster.Key(ctx)
	if err != nil {
		return nil, err
	}
	public, err := key.Public()
	if err != nil {
		return nil, err
	}
	text, err := key.MarshalPublic()
	if err != nil {
		return nil, err
	}
	subject, csr := credentials.ControlPlaneSubject(id), there.Spec.CSR
	if credentials.JudgeRequest(csr, subject, public) != nil {
		if csr, err = key.Request(subject); err != nil {
			return nil, err
		}
	}
	return &authv1beta1.Renew{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Namespace, Name: i.Name,
			Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: string(i.Spec.ClusterID),
				authv1beta1.LabelReplication: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationDestination: string(i.Spec.ClusterID),
			},
			OwnerReferences: apply.Controller(i, authv1beta1.GroupVersion.WithKind("Identity")),
		},
		Spec: authv1beta1.RenewSpec{
			ConsumerClusterID: authv1beta1.ClusterID(id), PublicKey: text, CSR: csr, IdentityType: authv1beta1.ControlPlaneIdentity,
		},
	}, nil
}

// pass gives an Identity the certificate that came back, if it is newer than its own. Only the certificate is taken:
// where the API server is was agreed on by people, and a provider that tells another address could have our
// credentials sent elsewhere.
func (r *consumer) pass(ctx context.Context, i *authv1beta1.Identity, renew *authv1beta1.Renew) error {
	if renew.Status.AuthParams == nil || !newer(renew.Status.AuthParams.SignedCRT, i.Spec.AuthParams.SignedCRT) {
		return nil
	}
	key, err := r.Cluster.Key(ctx)
	if err != nil {
		return err
	}
	if c, err := credentials.ParseCertificate(renew.Status.AuthParams.SignedCRT); err != nil || !c.Of(key) {
		log.FromContext(ctx).Info("a renewed certificate is not for the key of this cluster", "clusterID", i.Spec.ClusterID)
		return nil
	}
	before := i.DeepCopy()
	i.Spec.AuthParams.SignedCRT = renew.Status.AuthParams.SignedCRT
	if len(renew.Status.AuthParams.CA) > 0 {
		i.Spec.AuthParams.CA = renew.Status.AuthParams.CA
	}
	err = r.Patch(ctx, i, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("renew the Identity: %w", err)
	}
	return nil
}

// newer tells whether certificate a is valid for longer than b.
func newer(a, b []byte) bool {
	x, err := credentials.ParseCertificate(a)
	if err != nil {
		return false
	}
	y, err := credentials.ParseCertificate(b)
	return err != nil || x.NotAfter.After(y.NotAfter)
}

// recheck is how soon a copy without a Tenant is looked at again at first, lastRecheck when it has been there for long.
const recheck, lastRecheck = 10 * time.Second, 10 * time.Minute

// provider answers copies of Renews.
type provider struct {
	client.Client
	// Reader reads past the cache, which does not hold all RoleBindings.
	Reader client.Reader
}

// Reconcile answers one copy: who is not the Tenant of its namespace gets nothing.
func (r *provider) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	renew := new(authv1beta1.Renew)
	if err := r.Get(ctx, req.NamespacedName, renew); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// Those of slices, which Liqo once asked for, come back with the slices.
	if !renew.DeletionTimestamp.IsZero() || !isCopy(renew) || renew.Spec.IdentityType != authv1beta1.ControlPlaneIdentity {
		return ctrl.Result{}, nil
	}
	var list authv1beta1.TenantList
	if err := r.List(ctx, &list, client.InNamespace(req.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Tenants: %w", err)
	}
	if len(list.Items) == 0 {
		return r.removeOrphan(ctx, renew)
	}
	var params *authv1beta1.AuthParams
	for i := range list.Items {
		t := &list.Items[i]
		if t.Status.TenantNamespace != req.Namespace || t.Spec.ClusterID != renew.Spec.ConsumerClusterID {
			continue
		}
		// Without a Tenant the consumer may not delete its copy any more.
		if err := apply.TieTo(ctx, r.Client, t, renew); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if t.Spec.AuthzPolicy == authv1beta1.KeysExchange {
			params = t.Status.AuthParams
		}
	}
	if equality.Semantic.DeepEqual(renew.Status.AuthParams, params) {
		return ctrl.Result{}, nil
	}
	_, err := apply.Status(ctx, r.Client, renew, func() { renew.Status.AuthParams = params })
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// removeOrphan deletes a copy without a Tenant, which serves nobody: the consumer may have made it again while it was deleted
// with the Tenant. As long as somebody has a consumer's rights, it would be made again; by rights that are not seen here, not
// more often than once in recheck.
func (r *provider) removeOrphan(ctx context.Context, renew *authv1beta1.Renew) (ctrl.Result, error) {
	var bindings rbacv1.RoleBindingList
	if err := r.Reader.List(ctx, &bindings, client.InNamespace(renew.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list RoleBindings: %w", err)
	}
	mayWrite := slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool { return b.RoleRef.Name == authv1beta1.RemoteControlPlaneRole })
	if age := time.Since(renew.CreationTimestamp.Time); mayWrite || age < recheck {
		return ctrl.Result{RequeueAfter: min(max(recheck, age/10), lastRecheck)}, nil
	}
	err := r.Delete(ctx, renew, client.Preconditions{UID: new(renew.UID), ResourceVersion: new(renew.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("delete a Renew without a Tenant: %w", err)
	}
	return ctrl.Result{}, nil
}

// ofTenant returns the copies in the namespace of a Tenant.
func (r *provider) ofTenant(ctx context.Context, t client.Object) []ctrl.Request {
	return enqueue.Each(ctx, r, new(authv1beta1.RenewList), client.ObjectKeyFromObject, client.InNamespace(t.GetNamespace()))
}

func isCopy(o client.Object) bool {
	l := o.GetLabels()
	return l[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue && l[authv1beta1.LabelReplicationOrigin] != ""
}
