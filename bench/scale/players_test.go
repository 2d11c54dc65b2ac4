package scale

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// fewWorkers is how many nodes the pods of a cluster run on.
const fewWorkers = 4

// ends is an annotation of pods that end by themselves as soon as they have run.
const ends = "scale.test/ends"

// players stand for the scheduler and the kubelets of a cluster. A pod without a node gets the one that assign says, and a pod
// on a worker runs at once, until it is deleted. They take the place of kwok and of a scheduler, which as
// processes would take more of the machine than what is measured.
type players struct {
	w      *world
	assign func(*corev1.Pod) string
	// saw is told of every pod as it came, changed or went.
	saw func(p *corev1.Pod, gone bool)

	pods  cache.Store
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	given atomic.Int64 // addresses
}

// play runs players until the test ends. saw may be nil.
func (w *world) play(assign func(*corev1.Pod) string, saw func(*corev1.Pod, bool)) *players {
	if saw == nil {
		saw = func(*corev1.Pod, bool) {}
	}
	p := &players{w: w, assign: assign, saw: saw, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())}
	informer := informers.NewSharedInformerFactory(w.core, 0).Core().V1().Pods().Informer()
	p.pods = informer.GetStore()
	tell := func(o any, gone bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if pod, ok := o.(*corev1.Pod); ok {
			p.saw(pod, gone)
			p.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { tell(o, false) }, UpdateFunc: func(_, o any) { tell(o, false) }, DeleteFunc: func(o any) { tell(o, true) },
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	for range 16 {
		wg.Go(func() {
			for p.next(ctx) {
			}
		})
	}
	w.t.Cleanup(func() {
		cancel()
		p.queue.ShutDown()
		wg.Wait()
	})
	return p
}

func (p *players) next(ctx context.Context) bool {
	at, end := p.queue.Get()
	if end {
		return false
	}
	defer p.queue.Done(at)
	if err := p.step(ctx, at); err != nil && !apierrors.IsNotFound(err) {
		p.queue.AddRateLimited(at)
		return true
	}
	p.queue.Forget(at)
	return true
}

// step does what is next with a pod.
func (p *players) step(ctx context.Context, at cache.ObjectName) error {
	o, ok, err := p.pods.GetByKey(at.String())
	if err != nil || !ok {
		return err
	}
	pod := o.(*corev1.Pod)
	api := p.w.core.CoreV1().Pods(at.Namespace)
	switch over := pod.Annotations[ends] != ""; {
	case pod.Spec.NodeName == "":
		if node := p.assign(pod); node != "" && pod.DeletionTimestamp == nil {
			return api.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
		}
	case !strings.HasPrefix(pod.Spec.NodeName, workerPrefix):
	case pod.DeletionTimestamp != nil:
		return api.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Status.Phase == corev1.PodPending:
		pod = pod.DeepCopy()
		p.run(pod)
		_, err := api.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	case pod.Status.Phase == corev1.PodRunning && over:
		_, err := api.Patch(ctx, pod.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Succeeded"}}`, pod.UID), metav1.PatchOptions{}, "status")
		return err
	}
	return nil
}

// run makes the status of a pod that runs.
func (p *players) run(pod *corev1.Pod) {
	n, now := p.given.Add(1)%60_000, metav1.Now()
	ip := fmt.Sprintf("10.243.%d.%d", n/250, 1+n%250)
	s := &pod.Status
	s.Phase, s.PodIP, s.PodIPs, s.HostIP, s.StartTime = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}, "172.18.0.2", &now
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Started: new(true), Image: c.Image, ImageID: "registry.example/team/server@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
}
