// Package servingcert approves the serving certificates of virtual kubelets, so that an API server which verifies
// kubelets gets logs and exec of offloaded pods.
//
//	CertificateSigningRequest virtual-kubelet-... -> Read -> who asks, for which node and address
//	VirtualNode, Node, pod of the process         -> Judge -> approved, or an event that says why not
//
// A request is approved only if all of it is as the virtual kubelet of that namespace would ask: anybody may make one of
// the name. None is denied, as somebody else may have a reason to approve it. Requests of other names and for other
// signers are not looked at: they are those of kubelets. One that was approved here is deleted when its certificate has
// been there for a while.
package servingcert

import (
	"context"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/controllers"
)

const (
	// settle is how long what a request depends on may be late, before an event says that it is missing.
	settle = 10 * time.Second
	// recheck is how soon such a request is looked at again.
	recheck = time.Second
	// expiry is how long that goes on: virtual kubelets wait as long for a certificate.
	expiry = 10 * time.Minute
	// used is how long after its approval a request is of no use any more: a virtual kubelet reads the certificate within
	// seconds, and asks for another one if it has not.
	used = time.Minute
	// reasonApproved is that of the condition of the requests that are approved here.
	reasonApproved = "VirtualKubelet"
)

// reconciler judges one request.
type reconciler struct {
	client.Client
	// Requests sees the requests for serving certificates of kubelets.
	Requests client.Reader
	// Reader reads past the cache, which holds no labels of pods.
	Reader   client.Reader
	Recorder events.EventRecorder
	now      func() time.Time
}

// A ValidatingAdmissionPolicy of the chart holds the controller to requests of virtual kubelets.
//
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kubelet-serving,verbs=approve
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the reconciler to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	requests, err := requestCache(mgr)
	if err != nil {
		return err
	}
	r := &reconciler{Client: mgr.GetClient(), Requests: requests, Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), now: time.Now}
	return controllers.New(mgr, "servingcert", controllers.Options{}).
		WatchesRawSource(source.Kind(requests, new(certificatesv1.CertificateSigningRequest), &handler.TypedEnqueueRequestForObject[*certificatesv1.CertificateSigningRequest]{},
			predicate.NewTypedPredicateFuncs(func(c *certificatesv1.CertificateSigningRequest) bool {
				_, answered := issued(c)
				return answered || undecided(c)
			}))).
		Complete(apply.RequeueOnConflict(r))
}

// requestCache adds to mgr a cache of the requests for serving certificates of kubelets.
func requestCache(mgr ctrl.Manager) (cache.Cache, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			new(certificatesv1.CertificateSigningRequest): {Field: fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeletServingSignerName)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("new cache of CertificateSigningRequests: %w", err)
	}
	return c, mgr.Add(c)
}

// undecided tells whether c is a request for the certificate of a virtual kubelet that nobody has answered.
func undecided(c *certificatesv1.CertificateSigningRequest) bool {
	return strings.HasPrefix(c.Name, offloadingv1beta1.VirtualKubeletName+"-") && c.Spec.SignerName == certificatesv1.KubeletServingSignerName &&
		len(c.Status.Conditions) == 0 && len(c.Status.Certificate) == 0
}

// issued tells when c was approved here, if its certificate is there.
func issued(c *certificatesv1.CertificateSigningRequest) (approved time.Time, ok bool) {
	if !strings.HasPrefix(c.Name, offloadingv1beta1.VirtualKubeletName+"-") || c.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(c.Status.Certificate) == 0 {
		return approved, false
	}
	for _, s := range c.Status.Conditions {
		if s.Type == certificatesv1.CertificateApproved && s.Reason == reasonApproved {
			return s.LastUpdateTime.Time, true
		}
	}
	return approved, false
}

// Reconcile looks at one request.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := new(certificatesv1.CertificateSigningRequest)
	if err := r.Requests.Get(ctx, req.NamespacedName, c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if approved, ok := issued(c); ok {
		if left := approved.Add(used).Sub(r.now()); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
		return ctrl.Result{}, apply.Delete(ctx, r.Client, c)
	}
	if !undecided(c) {
		return ctrl.Result{}, nil
	}
	asked, refused := Read(&c.Spec)
	if refused == nil {
		facts, err := r.gather(ctx, asked)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("gather: %w", err)
		}
		refused = Judge(asked, facts)
	}
	if refused == nil {
		log.FromContext(ctx).Info("approve the serving certificate of a virtual kubelet", "namespace", asked.Namespace, "address", asked.Address)
		return ctrl.Result{}, client.IgnoreNotFound(issue.Approve(ctx, r.Client, c, reasonApproved, fmt.Sprintf("for virtual node %s, by pod %s/%s", asked.Node, asked.Namespace, asked.Pod), r.now()))
	}
	age := r.now().Sub(c.CreationTimestamp.Time)
	again := ctrl.Result{}
	if refused.Wait && age < expiry {
		again.RequeueAfter = recheck
		if age < settle {
			return again, nil
		}
	}
	apply.Event(r.Recorder, c, corev1.EventTypeWarning, refused.Reason, "Approve", "not approved: "+refused.Message)
	return again, nil
}

func (r *reconciler) gather(ctx context.Context, asked Request) (f Facts, err error) {
	ns := new(metav1.PartialObjectMetadata)
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Get(ctx, client.ObjectKey{Name: asked.Namespace}, ns); client.IgnoreNotFound(err) != nil {
		return f, err
	}
	if ns.Labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue {
		f.Peer = ns.Labels[networkingv1beta1.LabelRemoteClusterID]
	}
	if f.VirtualNode, err = get(ctx, r.Client, client.ObjectKey{Namespace: asked.Namespace, Name: asked.Node}, new(offloadingv1beta1.VirtualNode)); err != nil {
		return f, err
	}
	if f.Node, err = get(ctx, r.Client, client.ObjectKey{Name: asked.Node}, new(corev1.Node)); err != nil {
		return f, err
	}
	f.Pod, err = get(ctx, r.Reader, client.ObjectKey{Namespace: asked.Namespace, Name: asked.Pod}, new(corev1.Pod))
	return f, err
}

// get reads an object; nil: there is none.
func get[T client.Object](ctx context.Context, from client.Reader, key client.ObjectKey, into T) (T, error) {
	var none T
	if err := from.Get(ctx, key, into); err != nil {
		return none, client.IgnoreNotFound(err)
	}
	return into, nil
}
