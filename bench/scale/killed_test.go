package scale

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/reflection"
)

const (
	// still is a Deployment that nobody touches, moving those that are scaled and lose pods, job the label of pods that end by
	// themselves.
	still, moving, job = "still", "moving", "job"
	// stillPods is how many pods it has, movingSets how many of those there are.
	stillPods, movingSets = 5, 3
)

// killed is a pair under churn.
type killed struct {
	*pair
	r *rand.Rand

	mu sync.Mutex
	// runs are the pods that have run at the provider, by the UID of the one that each stands for.
	runs map[types.UID]map[types.UID]bool
	// gone are pods of the consumer that are there no more, stopped those that ran and then did not.
	gone    map[types.UID]string
	stopped []string
	running map[types.UID]bool
	jobs    int
	wg      sync.WaitGroup // of looks at the provider
}

// TestKilled kills the virtual kubelet, the controllers of the provider and the API servers of both clusters in turn while pods
// come and go. No pod is lost and none runs twice.
func TestKilled(t *testing.T) {
	if *kills == 0 {
		t.Skip("SKIPPED: takes minutes; -kills 50 runs it")
	}
	chosen := *seed
	if chosen == 0 {
		chosen = rand.Uint64()
	}
	t.Logf("-seed %d -kills %d", chosen, *kills)
	k := &killed{
		pair: newPair(t, "shop", "bank"), r: rand.New(rand.NewPCG(chosen, 0)),
		runs: map[types.UID]map[types.UID]bool{}, gone: map[types.UID]string{}, running: map[types.UID]bool{},
	}
	k.play(func(p *corev1.Pod) string { return provider }, k.sawHere)
	k.there.play(func(*corev1.Pod) string { return nodeName(0) }, k.sawThere)
	k.deploy(still, stillPods)
	for i := range movingSets {
		k.deploy(fmt.Sprintf("%s-%d", moving, i), 3)
	}
	k.settled()
	before := k.list(k.world, "shop", still)
	done := map[string]int{}
	for i := range *kills {
		for range 1 + k.r.IntN(6) {
			done[k.churn()]++
		}
		victim := i % 4
		if victim == 0 {
			t.Logf("%d kills, %v", i, done)
		}
		k.kill(victim)
	}
	t.Logf("changes: %v", done)
	k.settled()
	if diff := cmp.Diff(before, k.list(k.world, "shop", still)); diff != "" {
		t.Errorf("pods that nobody touched (-before +after):\n%s", diff)
	}
	k.wg.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, what := range k.stopped {
		t.Errorf("a pod that nobody touched runs no more: %s", what)
	}
	for _, uid := range before {
		if n := len(k.runs[uid]); n != 1 {
			t.Errorf("a pod that nobody touched ran %d times at the provider", n)
		}
	}
}

// deploy makes a Deployment in one of the namespaces.
func (k *killed) deploy(name string, replicas int32) {
	of := map[string]string{"app": name}
	spec := newPod(name, "").Spec
	spec.TerminationGracePeriodSeconds = new(int64(1))
	namespace := "bank"
	if name == still {
		namespace = "shop"
	}
	k.Create(k.t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: of}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: spec,
		}},
	})
}

// sawHere notes what becomes of pods of the consumer.
func (k *killed) sawHere(p *corev1.Pod, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case gone && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed:
		k.gone[p.UID] = p.Name
		k.wg.Go(func() { k.goneThere(p) })
	case p.Status.Phase == corev1.PodRunning:
		k.running[p.UID] = true
	case k.running[p.UID] && p.Labels["app"] == still:
		k.stopped = append(k.stopped, fmt.Sprintf("%s is %s: %s %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message))
	}
}

// goneThere has the provider, once it answers, say that a pod which is gone at the consumer runs there no more.
func (k *killed) goneThere(p *corev1.Pod) {
	for k.ctx.Err() == nil {
		there := new(corev1.Pod)
		switch err := k.there.Get(k.ctx, remoteNamespace(p.Namespace), p.Name, there); {
		case err == nil && there.Annotations[reflection.AnnotationOriginUID] == string(p.UID):
			k.t.Errorf("pod %s is gone at the consumer, and at the provider it is %s, deleted %v", p.Name, there.Status.Phase, there.DeletionTimestamp)
			return
		case err == nil || apierrors.IsNotFound(err):
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sawThere notes which pods run at the provider.
func (k *killed) sawThere(p *corev1.Pod, gone bool) {
	of := types.UID(p.Annotations[reflection.AnnotationOriginUID])
	k.mu.Lock()
	defer k.mu.Unlock()
	if gone || p.Status.Phase != corev1.PodRunning {
		return
	}
	if k.runs[of] == nil {
		k.runs[of] = map[types.UID]bool{}
	}
	if k.runs[of][p.UID] {
		return
	}
	k.runs[of][p.UID] = true
	if name, ok := k.gone[of]; ok {
		k.t.Errorf("pod %s starts at the provider after it was gone at the consumer", name)
	}
	if n := len(k.runs[of]); n > 1 && p.Labels[job] != "" {
		k.t.Errorf("%s runs for the %dth time", p.Name, n)
	}
}

// churn changes something, and says what. What cannot be changed now is left as it is: a server may be down.
func (k *killed) churn() string {
	bank := client.InNamespace("bank")
	switch k.r.IntN(4) {
	case 0:
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: fmt.Sprintf("%s-%d", moving, k.r.IntN(movingSets))}}
		if k.Client.Patch(k.ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, k.r.IntN(7)))) == nil {
			return "scaled"
		}
	case 1, 2:
		w, namespace := k.world, bank
		if k.r.IntN(2) == 0 {
			w, namespace = k.there, client.InNamespace(remoteNamespace("bank"))
		}
		var list corev1.PodList
		if w.Client.List(k.ctx, &list, namespace, client.HasLabels{"app"}) != nil || len(list.Items) == 0 {
			break
		}
		slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		if w.Client.Delete(k.ctx, &list.Items[k.r.IntN(len(list.Items))]) == nil {
			return map[bool]string{true: "deleted here", false: "deleted there"}[w == k.world]
		}
	case 3:
		p := newPod(fmt.Sprintf("job-%d", k.jobs), "")
		k.jobs++
		p.Namespace, p.Labels, p.Annotations = "bank", map[string]string{job: "true"}, map[string]string{ends: "true"}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		if k.Client.Create(k.ctx, p) == nil {
			return "jobs"
		}
	}
	return "not done"
}

// kill kills one of them, lets things change meanwhile, and starts it again.
func (k *killed) kill(victim int) {
	pause := func() { time.Sleep(time.Duration(k.r.IntN(500)) * time.Millisecond) } // churn and death meet at any point
	pause()
	start := map[int]func(){0: k.startKubelet, 1: k.startProvider}[victim]
	switch victim {
	case 0:
		k.kubelet.kill()
	case 1:
		k.controllers.kill()
	default:
		w := []*world{k.world, k.there}[victim-2]
		w.StopAPIServer()
		start = func() { k.must(w.StartAPIServer()) }
	}
	for range k.r.IntN(4) {
		k.churn()
	}
	pause()
	start()
	pause()
}

// list are the UIDs of the living pods of an app, by name.
func (k *killed) list(w *world, namespace, app string) map[string]types.UID {
	k.t.Helper()
	var list corev1.PodList
	k.must(w.Client.List(k.ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": app}))
	out := map[string]types.UID{}
	for _, p := range list.Items {
		out[p.Name] = p.UID
	}
	return out
}

// settled waits until every Deployment has its pods, every pod that ends has ended, and the provider has exactly what stands
// for pods of the consumer.
func (k *killed) settled() {
	k.t.Helper()
	until(k.t, "both clusters have the same pods", func() error {
		var deployments appsv1.DeploymentList
		var here corev1.PodList
		if err := errors.Join(k.Client.List(k.ctx, &deployments), k.Client.List(k.ctx, &here)); err != nil {
			return err
		}
		living := map[string]int{}
		want := map[cache.ObjectName]types.UID{}
		var ended []cache.ObjectName
		for i := range here.Items {
			p := &here.Items[i]
			if !slices.Contains(k.namespaces, p.Namespace) {
				continue
			}
			at := cache.NewObjectName(remoteNamespace(p.Namespace), p.Name)
			switch {
			case p.DeletionTimestamp != nil:
				return fmt.Errorf("%s is being deleted", p.Name)
			case p.Labels[job] != "" && p.Status.Phase == corev1.PodSucceeded:
				ended = append(ended, at)
			case p.Labels[job] != "" || p.Status.Phase != corev1.PodRunning || !isReady(p, corev1.ConditionTrue):
				return fmt.Errorf("%s is %s: %s %s, %+v", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message, p.Status.Conditions)
			default:
				living[p.Labels["app"]]++
			}
			want[at] = p.UID
		}
		for _, d := range deployments.Items {
			if n := living[d.Name]; n != int(*d.Spec.Replicas) {
				return fmt.Errorf("%s has %d pods of %d", d.Name, n, *d.Spec.Replicas)
			}
		}
		return k.mirrored(want, ended)
	})
}

// mirrored tells whether the provider has a ShadowPod and a Pod for each of these and no others; those that have ended may
// have lost the Pod.
func (k *killed) mirrored(want map[cache.ObjectName]types.UID, ended []cache.ObjectName) error {
	var pods corev1.PodList
	var shadows offloadingv1beta1.ShadowPodList
	if err := errors.Join(k.there.Client.List(k.ctx, &pods), k.there.Client.List(k.ctx, &shadows)); err != nil {
		return err
	}
	origins := func(objects []client.Object) map[cache.ObjectName]types.UID {
		out := map[cache.ObjectName]types.UID{}
		for _, o := range objects {
			out[cache.MetaObjectToName(o)] = types.UID(o.GetAnnotations()[reflection.AnnotationOriginUID])
		}
		return out
	}
	var have, asked []client.Object
	for i := range pods.Items {
		have = append(have, &pods.Items[i])
	}
	for i := range shadows.Items {
		asked = append(asked, &shadows.Items[i])
	}
	if diff := cmp.Diff(want, origins(asked)); diff != "" {
		return fmt.Errorf("ShadowPods (-want +got):\n%s", diff)
	}
	there := origins(have)
	for _, at := range ended {
		if _, ok := there[at]; !ok {
			there[at] = want[at]
		}
	}
	if diff := cmp.Diff(want, there); diff != "" {
		return fmt.Errorf("pods of the provider (-want +got):\n%s", diff)
	}
	return nil
}
