package shadowpod

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
	"github.com/sluice-net/sluice/controlplane/requests"
	"github.com/sluice-net/sluice/reflection"
)

// Workers is how many ShadowPods are looked at at the same time: a Deployment that is scaled up makes many.
const Workers = 32

// SetupWithManager adds the reconciler to mgr. namespaces sees the namespaces that were made for consumers, whom queues serve
// in turn.
func SetupWithManager(mgr ctrl.Manager, namespaces cache.Cache, queues fairqueue.New[ctrl.Request]) error {
	pods, err := podCache(mgr)
	if err != nil {
		return err
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Pods: pods, Namespaces: namespaces, Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("liqo-controller"),
		ledger: newLedger(), waiting: map[string]map[types.NamespacedName]bool{}, told: map[types.NamespacedName]string{},
		room: make(chan event.TypedGenericEvent[*raw], 1),
	}
	counted, err := r.count(pods)
	if err != nil {
		return err
	}
	return controllers.New(mgr, "shadowpod", controllers.Options{MaxConcurrentReconciles: Workers, NewQueue: queues}).
		WatchesRawSource(counted).
		WatchesRawSource(source.Kind(pods, &raw{}, &handler.TypedEnqueueRequestForObject[*raw]{})).
		WatchesRawSource(source.Kind(pods, &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{})).
		WatchesRawSource(source.Channel(r.room, handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *raw) []ctrl.Request {
			return r.waitingIn("")
		}))).
		// Whether it is cordoned, and how much it is.
		Watches(&offloadingv1beta1.Quota{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, q client.Object) []ctrl.Request {
			return r.waitingIn(q.GetNamespace())
		})).
		// How the API servers of consumers are reached.
		Watches(&networkingv1beta1.Configuration{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, c client.Object) []ctrl.Request {
			return r.waitingIn(c.GetNamespace())
		})).
		Complete(apply.RequeueOnConflict(r))
}

// podCache adds to mgr a cache of ShadowPods, and of the Pods made of them.
func podCache(mgr ctrl.Manager) (cache.Cache, error) {
	s, err := scheme(corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: s, Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&raw{}:        {Transform: trim},
			&corev1.Pod{}: {Transform: trimPod, Label: labels.SelectorFromSet(labels.Set{offloadingv1beta1.LabelManagedBy: offloadingv1beta1.ManagedByShadowPod})},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("new cache of pods: %w", err)
	}
	return c, mgr.Add(c)
}

// trimPod keeps of a Pod whose it is, which spec it follows, how it is and what it takes.
func trimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
			OwnerReferences: p.OwnerReferences, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{Overhead: p.Spec.Overhead, Resources: p.Spec.Resources},
		Status: corev1.PodStatus{
			Phase: p.Status.Phase, AllocatedResources: p.Status.AllocatedResources,
			ContainerStatuses: taken(p.Status.ContainerStatuses), InitContainerStatuses: taken(p.Status.InitContainerStatuses),
		},
	}
	if spec, ok := p.Annotations[reflection.AnnotationFollowed]; ok {
		kept.Annotations = map[string]string{reflection.AnnotationFollowed: spec}
	}
	for _, c := range p.Spec.Containers {
		kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{Name: c.Name, Resources: c.Resources})
	}
	for _, c := range p.Spec.InitContainers {
		kept.Spec.InitContainers = append(kept.Spec.InitContainers, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return kept, nil
}

// taken keeps of containers what they have of their node.
func taken(list []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for _, s := range list {
		k := corev1.ContainerStatus{Name: s.Name, AllocatedResources: s.AllocatedResources}
		if s.Resources != nil {
			k.Resources = &corev1.ResourceRequirements{Requests: s.Resources.Requests}
		}
		kept = append(kept, k)
	}
	return kept
}

// counted is a source of nothing. No ShadowPod is looked at before all Pods of the start are in the ledger.
type counted struct{ synced toolscache.InformerSynced }

// Start implements [source.Source].
func (counted) Start(context.Context, workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	return nil
}

// WaitForSync implements [source.SyncingSource].
func (c counted) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), c.synced) && !errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("pods were not counted in time")
	}
	return nil
}

// count keeps the ledger, from the Pods that there are.
func (r *Reconciler) count(pods cache.Cache) (source.SyncingSource, error) {
	informer, err := pods.GetInformer(context.Background(), &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	countEvent := func(o any) {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		if ended(p.Status.Phase) {
			r.release(p)
			return
		}
		r.countPod(p)
	}
	counting, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: countEvent, UpdateFunc: func(_, o any) { countEvent(o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				r.release(p)
			}
		},
	})
	if err != nil {
		return nil, errors.Join(errors.New("watch pods"), err)
	}
	return counted{counting.HasSynced}, nil
}

// countPod counts a Pod, and has those looked at that wait for what it took and takes no more, as release does.
func (r *Reconciler) countPod(p *corev1.Pod) {
	if r.ledger.observe(client.ObjectKeyFromObject(p), p.UID, p.ResourceVersion, accountOf(p), requests.OfPod(p)) {
		r.wake()
	}
}

// release stops counting a Pod, and has those looked at that wait for what it took. That is done here, and not where the
// Pod's own ShadowPod is woken: they must be looked at after the Pod does not count any more.
func (r *Reconciler) release(p *corev1.Pod) {
	if r.ledger.forget(client.ObjectKeyFromObject(p), p.UID) {
		r.wake()
	}
}

// wake has all looked at that wait, unless that is about to happen anyway.
func (r *Reconciler) wake() {
	select {
	case r.room <- event.TypedGenericEvent[*raw]{Object: &raw{}}:
	default:
	}
}
