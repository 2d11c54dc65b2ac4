// Package scheduling lets pods run on virtual nodes that were made before their namespace was offloaded. New pods are
// changed by a MutatingAdmissionPolicy, which is part of the chart.
package scheduling

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/reserved"
	"github.com/sluice-net/sluice/reflection"
)

// reasonFailedReflection is that of Events by which virtual kubelets refuse a pod.
const reasonFailedReflection = "FailedReflection"

// Reconciler adds tolerations to the waiting pods of a namespace.
type Reconciler struct {
	client.Client
	// Reader reads past the cache, which does not hold whole pods.
	Reader   client.Reader
	Recorder events.EventRecorder
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string

	mu sync.Mutex
	// told are the pods of each namespace that were told why they do not run.
	told map[string]map[types.UID]bool
}

// A policy of the chart holds the controller to the tolerations of pods in offloaded namespaces.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=namespaces;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings;virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ns := new(metav1.PartialObjectMetadata)
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Get(ctx, client.ObjectKey{Name: req.Namespace}, ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	o := new(offloadingv1beta1.NamespaceOffloading)
	if err := r.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: offloadingv1beta1.NamespaceOffloadingName}, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.InNamespace(req.Namespace)); err != nil {
		return ctrl.Result{}, err
	}
	kept := reserved.FromOffloading(ns.Name, ns.Labels, r.LiqoNamespace)
	errs := []error{r.tell(ctx, o, kept, pods.Items)}
	// Without the label new pods are not changed either, and the label wakes this.
	if !labelled(ns) || !Tolerate(o, kept, nodes) {
		return ctrl.Result{}, errors.Join(errs...)
	}
	for i := range pods.Items {
		if Waits(&pods.Items[i]) {
			errs = append(errs, r.tolerate(ctx, client.ObjectKeyFromObject(&pods.Items[i])))
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// tell tells the pods that can run neither here nor there why, each once.
func (r *Reconciler) tell(ctx context.Context, o *offloadingv1beta1.NamespaceOffloading, kept string, pods []corev1.Pod) error {
	r.mu.Lock()
	told := r.told[o.Namespace]
	r.mu.Unlock()
	now := map[types.UID]bool{}
	var errs []error
	for i := range pods {
		p := &pods[i]
		if !Hopeless(p, o, kept) {
			continue
		}
		if !told[p.UID] {
			live := new(corev1.Pod)
			if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(p), live); err != nil || live.UID != p.UID {
				errs = append(errs, client.IgnoreNotFound(err))
				continue
			}
			if why := reflection.Refused(&live.Spec); why != nil {
				apply.Event(r.Recorder, live, corev1.EventTypeWarning, reasonFailedReflection, "Schedule", why.Error())
			}
		}
		now[p.UID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]map[types.UID]bool{}
	}
	if r.told[o.Namespace] = now; len(now) == 0 {
		delete(r.told, o.Namespace)
	}
	return errors.Join(errs...)
}

// tolerate adds the toleration to a pod, if it still waits.
func (r *Reconciler) tolerate(ctx context.Context, name client.ObjectKey) error {
	p := new(corev1.Pod)
	if err := r.Reader.Get(ctx, name, p); err != nil || !Waits(p) {
		return client.IgnoreNotFound(err)
	}
	before := p.DeepCopy()
	p.Spec.Tolerations = append(p.Spec.Tolerations, Added)
	err := r.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("add a toleration to pod %s: %w", name, err)
	}
	log.FromContext(ctx).Info("a pod that was made before its namespace was offloaded tolerates virtual nodes now", "pod", name)
	return nil
}

func (r *Reconciler) nodes(ctx context.Context) (all []placement.Node, err error) {
	var virtual offloadingv1beta1.VirtualNodeList
	var nodes corev1.NodeList
	if err := r.List(ctx, &virtual, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy, client.MatchingLabels{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual}); err != nil {
		return nil, err
	}
	for i := range virtual.Items {
		all = append(all, placement.NodeOf(&virtual.Items[i], nodes.Items))
	}
	return all, nil
}

// SetupWithManager adds the reconciler to mgr; liqoNamespace is where the installation lives.
func SetupWithManager(mgr ctrl.Manager, liqoNamespace string) error {
	r := &Reconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"), LiqoNamespace: liqoNamespace}
	namespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace()}}}
	})
	noUpdates := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return controllers.New(mgr, "scheduling", controllers.Options{}).
		Watches(new(offloadingv1beta1.NamespaceOffloading), namespace, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(new(corev1.Namespace), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetName()}}}
		}), builder.WithPredicates(predicate.NewPredicateFuncs(labelled), predicate.LabelChangedPredicate{})).
		// One that was admitted while its namespace was being offloaded.
		Watches(new(corev1.Pod), namespace, builder.WithPredicates(noUpdates, predicate.NewPredicateFuncs(func(o client.Object) bool {
			p, ok := o.(*corev1.Pod)
			return ok && concerns(p)
		}))).
		// With the last virtual node that a selector leaves out its pods may run on all.
		Watches(new(offloadingv1beta1.VirtualNode), handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(apply.RequeueOnConflict(r))
}

func labelled(ns client.Object) bool {
	return ns.GetLabels()[offloadingv1beta1.LabelSchedulingEnabled] == networkingv1beta1.LabelTrue
}

// all are the requests for every offloaded namespace.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	return enqueue.Each(ctx, r, new(offloadingv1beta1.NamespaceOffloadingList), func(o client.Object) types.NamespacedName {
		return types.NamespacedName{Namespace: o.GetNamespace()}
	})
}
