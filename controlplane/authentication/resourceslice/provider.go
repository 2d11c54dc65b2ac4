package resourceslice

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// Options say what this cluster offers.
type Options struct {
	// DefaultClass lets slices of class default be granted.
	DefaultClass bool
	// NodeLabels are those of the virtual nodes of this cluster.
	NodeLabels map[string]string
	// Volumes offers the storage classes of this cluster: consumers may have PersistentVolumeClaims.
	Volumes bool
	// IngressClasses are offered; none: all of this cluster.
	IngressClasses []Class
	// LoadBalancerClasses are offered. Kubernetes has no list of them.
	LoadBalancerClasses []Class
}

// provider answers copies.
type provider struct {
	client.Client
	// Reader reads past the cache.
	Reader   client.Reader
	Recorder events.EventRecorder
	Cluster  identify.Cluster
	Issuer   *issue.Issuer
	Options  Options
	// Began is when the first slice was looked at.
	Began func() time.Time

	// bounded is held while a decision about a bounded amount is made, until it is written: what one slice gets
	// another cannot have.
	bounded sync.Mutex
}

// fullRetry is when a slice for which there was not enough is looked at again.
const fullRetry = time.Minute

// judgedWithin is how long a Tenant may take to be judged, after it was made or this program began: a slice that was denied
// before would be accepted a moment later. One whose Tenant cannot be judged has to tell so in the end.
const judgedWithin = time.Minute

// Who may not delete an object may not tie it to an owner on OpenShift.
//
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes;pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile answers one copy.
func (r *provider) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(authv1beta1.ResourceSlice)
	switch err := r.Get(ctx, req.NamespacedName, s); {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.Issuer.Forget(ctx, req.Namespace, req.Name)
	case err != nil:
		return ctrl.Result{}, err
	}
	if !s.DeletionTimestamp.IsZero() || !isCopy(s) {
		return ctrl.Result{}, nil
	}
	own, err := r.Cluster.ID(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	tenant, wait, err := r.tenant(ctx, s.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if wait > 0 && len(s.Status.Conditions) == 0 { // what was granted to a former Tenant is taken back at once
		return ctrl.Result{RequeueAfter: wait}, nil // or when the Tenant wakes its slices
	}
	l, unlock, err := r.ledger(ctx, s)
	defer unlock()
	if err != nil {
		return ctrl.Result{}, err
	}
	status := s.Status.DeepCopy()
	again, err := r.decide(ctx, s, tenant, own, l, status)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.mark(ctx, s, tenant); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wrote, err := apply.Status(ctx, r.Client, s, func() { s.Status = *status })
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if wrote {
		r.tell(ctx, s)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// decide writes the answer into status.
func (r *provider) decide(ctx context.Context, s *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant, own string, l ledger, status *authv1beta1.ResourceSliceStatus) (again time.Duration, err error) {
	was := unauthenticated(status)
	v := judgeAuthentication(s, tenant, own)
	if v.status == authv1beta1.SliceAccepted {
		if v, again, err = r.credentials(ctx, s, tenant, status); err != nil || v.status == "" {
			return again, err // soon
		}
	}
	set(status, authv1beta1.SliceAuthentication, v)
	if v.status != authv1beta1.SliceAccepted {
		// A consumer that is not known gets nothing. What it had is kept by nobody else.
		status.AuthParams, status.Resources = nil, nil
		set(status, authv1beta1.SliceResources, v)
		return again, r.describe(ctx, status)
	}
	resources, granted, others := judgeResources(s, tenant, r.Options.DefaultClass, l)
	if others { // the controller of its class decides
		if was { // and has not yet
			status.Conditions = slices.DeleteFunc(status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool { return c.Type == authv1beta1.SliceResources })
		}
		return again, nil
	}
	set(status, authv1beta1.SliceResources, resources)
	if full := resources.reason; full == authv1beta1.ReasonQuotaExceeded || full == authv1beta1.ReasonQuotaInvalid || full == authv1beta1.ReasonResourcesUnavailable {
		again = min(again, fullRetry)
	}
	status.Resources = granted
	return again, r.describe(ctx, status)
}

// unauthenticated tells whether a slice was denied everything as its consumer was not known.
func unauthenticated(status *authv1beta1.ResourceSliceStatus) bool {
	denials := map[authv1beta1.ResourceSliceConditionType]string{}
	for _, c := range status.Conditions {
		if c.Status == authv1beta1.SliceDenied {
			denials[c.Type] = c.Message
		}
	}
	why, is := denials[authv1beta1.SliceAuthentication]
	return is && denials[authv1beta1.SliceResources] == why
}

// credentials writes those for a slice that may have some into status. Without a verdict there is one soon. A consumer that
// made no handshake may be given credentials by other means, where this cluster has none for it.
//
//	Tenant                request    certificate      Authentication
//	any                   there      signed           Accepted, with credentials
//	any                   there      may be, soon     none yet
//	KeysExchange          there      not to be had    Denied
//	TolerateNoHandshake   there      not to be had    Accepted, without
//	TolerateNoHandshake   missing    -                Accepted, without
func (r *provider) credentials(ctx context.Context, s *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant, status *authv1beta1.ResourceSliceStatus) (v verdict, again time.Duration, err error) {
	subject := credentials.SliceSubject(s.Name, string(tenant.Spec.ClusterID))
	if len(s.Spec.CSR) == 0 {
		status.AuthParams = nil
		return byOtherMeans(s, subject, "the slice has no certificate signing request"), 0, nil
	}
	var problem *issue.Problem
	status.AuthParams, again, problem, err = r.Issuer.Issue(ctx, issue.Grant{
		Owner: s, Consumer: string(tenant.Spec.ClusterID), Slice: s.Name, Request: s.Spec.CSR, Subject: subject, Proxy: tenant.Spec.ProxyURL,
	})
	switch {
	case err != nil:
		return v, 0, err
	case problem == nil:
		return verdict{authv1beta1.SliceAccepted, authv1beta1.ReasonSliceAuthenticationAccepted, "the credentials are in status.authParams"}, again, nil
	case problem.Retry <= time.Second: // it is about to pass
		return v, problem.Retry, nil
	case tenant.Spec.AuthzPolicy != authv1beta1.TolerateNoHandshake:
		return denied(problem.Reason, "%s", problem.Message), problem.Retry, nil
	case problem.Reason == authv1beta1.ReasonCertificatePending: // its message says for how long, and what has been done already
		return byOtherMeans(s, subject, "nobody has signed its certificate"), problem.Retry, nil
	}
	return byOtherMeans(s, subject, problem.Message), problem.Retry, nil
}

// byOtherMeans accepts a slice that this cluster has no credentials for.
func byOtherMeans(s *authv1beta1.ResourceSlice, subject credentials.Subject, why string) verdict {
	return verdict{authv1beta1.SliceAccepted, authv1beta1.ReasonCredentialsByUser, fmt.Sprintf(
		"the provider gives no credentials for the slice: %s. The consumer uses those that it is given by other means, of user %s in group %s: "+
			"a kubeconfig in a Secret of its tenant namespace with the labels %s=%s and %s=%s",
		why, subject.CommonName, subject.Organization, authv1beta1.LabelIdentityType, authv1beta1.ResourceSliceIdentity, authv1beta1.LabelResourceSliceName, s.Name)}
}

// tenant returns the Tenant of a namespace that may ask, drained or not; nil if there is none. If that is so because one is
// there that nobody has judged yet, wait is how much longer that may take.
func (r *provider) tenant(ctx context.Context, namespace string) (t *authv1beta1.Tenant, wait time.Duration, err error) {
	var list authv1beta1.TenantList
	if err := r.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, 0, fmt.Errorf("list Tenants: %w", err)
	}
	began := r.Began()
	for i := range list.Items {
		t := &list.Items[i]
		if t.Status.TenantNamespace == namespace {
			return t, 0, nil
		}
		if meta.FindStatusCondition(t.Status.Conditions, authv1beta1.ConditionReady) == nil {
			wait = max(wait, judgedWithin-min(time.Since(began), time.Since(t.CreationTimestamp.Time)))
		}
	}
	return nil, wait, nil
}

// mark ties a copy to its Tenant, with which it goes, and says whether it is cordoned.
func (r *provider) mark(ctx context.Context, s *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant) error {
	if tenant == nil {
		return nil
	}
	return apply.TieTo(ctx, r.Client, tenant, s, func() {
		if tenant.Spec.TenantCondition == authv1beta1.TenantCordoned {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, authv1beta1.AnnotationCordonTenant, networkingv1beta1.LabelTrue)
		} else {
			delete(s.Annotations, authv1beta1.AnnotationCordonTenant)
		}
	})
}

func (r *provider) tell(ctx context.Context, s *authv1beta1.ResourceSlice) {
	for _, c := range s.Status.Conditions {
		log.FromContext(ctx).Info("decided", "condition", c.Type, "status", c.Status, "reason", c.Reason)
		if c.Status == authv1beta1.SliceDenied {
			apply.Event(r.Recorder, s, corev1.EventTypeWarning, c.Reason, string(c.Type), c.Message)
		}
	}
}

// set sets a condition. Its time changes with its status only.
func set(status *authv1beta1.ResourceSliceStatus, kind authv1beta1.ResourceSliceConditionType, v verdict) {
	c := authv1beta1.ResourceSliceCondition{Type: kind, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	for i := range status.Conditions {
		if old := &status.Conditions[i]; old.Type == kind {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}

func isCopy(s *authv1beta1.ResourceSlice) bool {
	return s.Labels[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue && s.Labels[authv1beta1.LabelReplicationOrigin] != ""
}
