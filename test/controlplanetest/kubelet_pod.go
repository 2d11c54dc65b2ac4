package controlplanetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podWorker runs one pod from the moment it is seen to the end of its object.
// It looks at the state of things again and again; what fails because the API
// server is away is done when it is back.
type podWorker struct {
	k               *Kubelet
	namespace, name string
	uid             types.UID
	first           *corev1.Pod // as it was first: containers and volumes stay so
	dir             string      // of its volumes
	wake            chan struct{}
	volumes         *volumes // run only

	mu         sync.Mutex
	pod        *corev1.Pod // as seen last; nil: deleted
	nodeName   string
	ip         netip.Addr
	containers []*container
	stopped    time.Time // when it was asked to end
	since      metav1.Time
	reported   *corev1.PodStatus
}

// podTick is how often a pod is looked at when nothing wakes its worker.
const podTick = 100 * time.Millisecond

func newPodWorker(k *Kubelet, p *corev1.Pod, dir string) *podWorker {
	w := &podWorker{
		k: k, namespace: p.Namespace, name: p.Name, uid: p.UID, first: p, dir: dir, wake: make(chan struct{}, 1),
		pod: p, nodeName: p.Spec.NodeName, since: metav1.Now(),
	}
	for i := range p.Spec.Containers {
		w.containers = append(w.containers, newContainer(w, &p.Spec.Containers[i]))
	}
	return w
}

// set tells what the pod is now.
func (w *podWorker) set(p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pod = p
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *podWorker) address() netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ip
}

func (w *podWorker) node() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodeName
}

// current is the pod as seen last, or as it was first when it is deleted.
func (w *podWorker) current() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pod != nil {
		return w.pod
	}
	return w.first
}

func (w *podWorker) kill() {
	for _, c := range w.containers {
		c.kill()
	}
}

func (w *podWorker) pids() (pids []int) {
	for _, c := range w.containers {
		if p := c.running(); p != nil {
			pids = append(pids, p.ID())
		}
	}
	return pids
}

// run is the life of the pod.
func (w *podWorker) run(ctx context.Context) {
	probes, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		w.kill()
		for _, c := range w.containers {
			c.forget()
		}
		os.RemoveAll(w.dir)
	}()
	for _, c := range w.containers {
		wg.Go(func() { c.watch(probes) })
	}
	tick := time.NewTicker(podTick)
	defer tick.Stop()
	for {
		if done, err := w.step(ctx); done {
			return
		} else if err != nil && ctx.Err() == nil {
			w.complain(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-tick.C:
		}
	}
}

// complain writes an error where the pod's output goes.
func (w *podWorker) complain(err error) {
	f, openErr := os.OpenFile(w.containers[0].log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if openErr != nil {
		return // the log is for people only
	}
	defer f.Close()
	fmt.Fprintf(f, "kubelet %s: %v\n", time.Now().Format(time.TimeOnly), err)
}

// step does what is to be done now. It is done when the pod is over.
func (w *podWorker) step(ctx context.Context) (done bool, err error) {
	w.mu.Lock()
	pod := w.pod
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	switch {
	case pod == nil:
		return true, nil
	case w.k.isAway(w.node()):
		return false, nil
	case pod.DeletionTimestamp != nil:
		return w.end(ctx, pod)
	case w.node() == "":
		return false, w.bind(ctx, pod)
	}
	if !w.address().IsValid() {
		a := w.k.address(w.node())
		if pod.Spec.HostNetwork {
			a = w.k.node(w.node()).IP
		}
		w.mu.Lock()
		w.ip = a
		w.mu.Unlock()
	}
	if w.volumes == nil {
		w.volumes = &volumes{k: w.k, pod: pod, dir: w.dir}
	}
	if err = w.volumes.sync(ctx); err == nil {
		err = w.startContainers(ctx, pod)
	}
	if reportErr := w.report(ctx, pod); err == nil {
		err = reportErr
	}
	return false, err
}

// bind is the scheduler.
func (w *podWorker) bind(ctx context.Context, pod *corev1.Pod) error {
	node, err := w.k.choose(pod)
	if err != nil {
		return err
	}
	err = w.k.cluster.Clientset.CoreV1().Pods(w.namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace, UID: w.uid},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err == nil {
		w.mu.Lock()
		w.nodeName = node
		w.mu.Unlock()
	}
	return err
}

func (w *podWorker) startContainers(ctx context.Context, pod *corev1.Pod) error {
	for _, c := range w.containers {
		if err := c.start(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// end stops the containers, with patience, and removes the object.
func (w *podWorker) end(ctx context.Context, pod *corev1.Pod) (done bool, err error) {
	var grace time.Duration
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	w.mu.Lock()
	first := w.stopped.IsZero()
	if first {
		w.stopped = time.Now()
	}
	late := time.Since(w.stopped) >= grace
	w.mu.Unlock()
	over := true
	for _, c := range w.containers {
		over = c.stop(first, late) && over
	}
	if !over {
		return false, nil
	}
	if w.node() != "" {
		if err := w.report(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	err = w.k.cluster.Clientset.CoreV1().Pods(w.namespace).Delete(ctx, w.name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &w.uid}})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict: another pod of its name
		return true, nil
	}
	return false, err
}

// report writes the status if it has changed.
func (w *podWorker) report(ctx context.Context, pod *corev1.Pod) error {
	s := w.status(pod)
	w.mu.Lock()
	same := w.reported != nil && equalJSON(w.reported, s)
	w.mu.Unlock()
	if same {
		return nil
	}
	if err := w.patch(ctx, s); err != nil {
		return err
	}
	w.mu.Lock()
	w.reported = s
	w.mu.Unlock()
	return nil
}

func (w *podWorker) patch(ctx context.Context, s *corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.uid}, "status": s})
	if err != nil {
		return err
	}
	_, err = w.k.cluster.Clientset.CoreV1().Pods(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// status is what the pod looks like now.
func (w *podWorker) status(pod *corev1.Pod) *corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &w.since, ContainerStatuses: []corev1.ContainerStatus{}}
	if n := w.k.node(w.nodeName); n != nil {
		s.HostIP, s.HostIPs = n.IP.String(), []corev1.HostIP{{IP: n.IP.String()}}
	}
	if w.ip.IsValid() {
		s.PodIP, s.PodIPs = w.ip.String(), []corev1.PodIP{{IP: w.ip.String()}}
	}
	ready, ended, failed := true, pod.DeletionTimestamp != nil, false
	for _, c := range w.containers {
		cs := c.status()
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
		ready = ready && cs.Ready
		ended = ended && cs.State.Terminated != nil
		failed = failed || cs.State.Terminated != nil && cs.State.Terminated.ExitCode != 0
		if cs.State.Waiting != nil && cs.RestartCount == 0 {
			s.Phase = corev1.PodPending
		}
	}
	switch {
	case ended && failed:
		s.Phase = corev1.PodFailed
	case ended:
		s.Phase = corev1.PodSucceeded
	}
	for _, c := range []struct {
		t  corev1.PodConditionType
		on bool
	}{{corev1.PodScheduled, true}, {corev1.PodInitialized, true}, {corev1.ContainersReady, ready}, {corev1.PodReady, ready}} {
		s.Conditions = append(s.Conditions, w.conditionLocked(c.t, c.on))
	}
	return s
}

func (w *podWorker) conditionLocked(t corev1.PodConditionType, on bool) corev1.PodCondition {
	c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}
	if on {
		c.Status = corev1.ConditionTrue
	}
	if w.reported != nil {
		for _, old := range w.reported.Conditions {
			if old.Type == t && old.Status == c.Status {
				return old
			}
		}
	}
	return c
}
