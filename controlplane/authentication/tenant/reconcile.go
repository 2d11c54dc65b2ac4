package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
)

const (
	// recheck is how soon a Tenant that lacks something is looked at again: not all that it may lack wakes us.
	recheck = 5 * time.Second
	// recheckUnlabelled is how soon RoleBindings without the label of a peering are looked at again. All RoleBindings of
	// a cluster, which can be ten thousands, are not watched for their sake.
	recheckUnlabelled = time.Minute
	// bindingName is the RoleBinding of a consumer that has proved itself.
	bindingName = "liqo-binding-" + authv1beta1.RemoteControlPlaneRole
	// usedNonceKey, in the Secret of the nonce, keeps the one before, to tell a replay from a wrong signature.
	usedNonceKey = "usedNonce"
	// annotationHandshake, on it, remembers which proof was accepted.
	annotationHandshake = "authentication.liqo.io/handshake"
)

// Reconciler answers Tenants.
type Reconciler struct {
	client.Client
	// Reader reads past the cache: Secrets and RoleBindings of others are not in it.
	Reader   client.Reader
	Recorder events.EventRecorder
	Cluster  identify.Cluster
	Issuer   *issue.Issuer
}

// The consumer's role is bound by us, so we must hold what it grants, or be allowed to bind it.
//
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=resourcequotas,verbs=create
// +kubebuilder:rbac:groups="",resources=resourcequotas,resourceNames=liqo-consumer,verbs=get;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-remote-controlplane,verbs=bind
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile decides on one Tenant.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	t := new(authv1beta1.Tenant)
	switch err := r.Get(ctx, req.NamespacedName, t); {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.Issuer.Forget(ctx, req.Namespace, "")
	case err != nil:
		return ctrl.Result{}, err
	}
	if !t.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	f, err := r.gather(ctx, t)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := judge(f)
	params, again, err := r.grant(ctx, t, f, &d)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.status(ctx, t, d, params); err != nil {
		return ctrl.Result{}, err
	}
	if again == 0 {
		if again = d.again; !d.ready() && d.reason != authv1beta1.ReasonTenantDrained {
			again = recheck
		}
	}
	again = sooner(again, d.quotaAgain)
	if len(f.elsewhere) > 0 {
		again = sooner(again, recheck) // a Tenant elsewhere that is in nobody's way may get its namespace, of which no event tells
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

func (r *Reconciler) gather(ctx context.Context, t *authv1beta1.Tenant) (facts, error) {
	f := facts{tenant: t}
	var err error
	if f.own, err = r.Cluster.ID(ctx); err != nil {
		return f, err
	}
	if f.namespace, err = r.namespace(ctx, t.Namespace); err != nil {
		return f, err
	}
	var others authv1beta1.TenantList
	if err := r.List(ctx, &others, client.UnsafeDisableDeepCopy); err != nil {
		return f, fmt.Errorf("list Tenants: %w", err)
	}
	f.others, f.elsewhere = others.Items, map[string]*corev1.Namespace{}
	for i := range f.others {
		o := &f.others[i]
		if _, read := f.elsewhere[o.Namespace]; read || o.Namespace == t.Namespace || !claims(o, string(t.Spec.ClusterID)) {
			continue
		}
		if f.elsewhere[o.Namespace], err = r.namespace(ctx, o.Namespace); err != nil {
			return f, err
		}
	}
	var nonce corev1.Secret
	switch err := r.Reader.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: authv1beta1.NonceSecret}, &nonce); {
	case err == nil:
		f.nonce, f.usedNonce = nonce.Data[authv1beta1.NonceKey], nonce.Data[usedNonceKey]
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("get the nonce: %w", err)
	}
	var bindings rbacv1.RoleBindingList
	if err := r.Reader.List(ctx, &bindings, client.InNamespace(t.Namespace)); err != nil {
		return f, fmt.Errorf("list RoleBindings: %w", err)
	}
	f.bindings = bindings.Items
	for i := range f.bindings {
		if b := &f.bindings[i]; b.Name == bindingName && metav1.IsControlledBy(b, t) {
			f.accepted = b.Annotations[annotationHandshake]
		}
	}
	return f, nil
}

// namespace reads a namespace; nil: there is none.
func (r *Reconciler) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	n := new(corev1.Namespace)
	err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return n, nil
}

// grant does what was decided. Rights that the user has given stay. It changes the decision if something is in the way.
func (r *Reconciler) grant(ctx context.Context, t *authv1beta1.Tenant, f facts, d *decision) (*authv1beta1.AuthParams, time.Duration, error) {
	if d.authorized {
		ready := meta.IsStatusConditionTrue(t.Status.Conditions, authv1beta1.ConditionReady)
		problem, again, err := r.bound(ctx, t, d.ready() && !ready)
		if err != nil || problem != nil {
			return nil, d.hold(problem), err
		}
		d.quotaAgain = again
	}
	if !d.issue {
		if f.accepted == "" {
			return nil, 0, nil // nothing of ours to take back
		}
		// Without its user, but with what was accepted: who becomes active again need not prove itself again.
		b := r.binding(t, f.accepted)
		b.Subjects = nil
		_, err := apply.Object(ctx, r.Client, r.Reader, b)
		return nil, 0, err
	}
	_, err := apply.Object(ctx, r.Client, r.Reader, r.binding(t, d.handshake))
	if theirs := new(apply.ForeignError); errors.As(err, &theirs) {
		*d = refuse(authv1beta1.ReasonRoleBindingInTheWay, "%v", theirs)
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if d.useNonce {
		if err := r.useNonce(ctx, t.Namespace, f.nonce); err != nil {
			return nil, 0, err
		}
	}
	params, again, problem, err := r.Issuer.Issue(ctx, issue.Grant{
		Owner: t, Consumer: string(t.Spec.ClusterID), Request: t.Spec.CSR,
		Subject: credentials.ControlPlaneSubject(string(t.Spec.ClusterID)), Proxy: t.Spec.ProxyURL,
	})
	if problem != nil {
		again = d.hold(problem)
	}
	return params, again, err
}

// hold has a decision wait for a problem to pass, and returns when to look again.
func (d *decision) hold(p *issue.Problem) (again time.Duration) {
	if p == nil {
		return 0
	}
	d.reason, d.message = p.Reason, p.Message
	return p.Retry
}

// binding lets the consumer ask.
func (r *Reconciler) binding(t *authv1beta1.Tenant, handshake string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Namespace, Name: bindingName,
			Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: string(t.Spec.ClusterID),
			},
			Annotations:     map[string]string{annotationHandshake: handshake},
			OwnerReferences: apply.Controller(t, authv1beta1.GroupVersion.WithKind("Tenant")),
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: authv1beta1.RemoteControlPlaneRole},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: string(t.Spec.ClusterID)}},
	}
}

// useNonce replaces a nonce that has served, so that the handshake cannot be repeated by who has seen it.
func (r *Reconciler) useNonce(ctx context.Context, namespace string, used []byte) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: authv1beta1.NonceSecret}}
	before := s.DeepCopy()
	s.Data = map[string][]byte{authv1beta1.NonceKey: credentials.NewNonce(), usedNonceKey: used}
	if err := client.IgnoreNotFound(r.Patch(ctx, s, client.MergeFrom(before), client.FieldOwner(apply.FieldOwner))); err != nil {
		return fmt.Errorf("replace the nonce: %w", err)
	}
	return nil
}

func (r *Reconciler) status(ctx context.Context, t *authv1beta1.Tenant, d decision, params *authv1beta1.AuthParams) error {
	wrote, err := apply.Status(ctx, r.Client, t, func() {
		t.Status.TenantNamespace = ""
		if d.authorized {
			t.Status.TenantNamespace = t.Namespace
		}
		t.Status.AuthParams = params
		status := metav1.ConditionFalse
		if d.ready() {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&t.Status.Conditions, metav1.Condition{
			Type: authv1beta1.ConditionReady, Status: status, Reason: d.reason, Message: d.message, ObservedGeneration: t.Generation,
		})
	})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if wrote {
		log.FromContext(ctx).Info("decided", "reason", d.reason, "clusterID", t.Spec.ClusterID)
		if !d.ready() && !authv1beta1.PassesByItself(d.reason) {
			apply.Event(r.Recorder, t, corev1.EventTypeWarning, d.reason, "Authorize", d.message)
		}
	}
	return nil
}
