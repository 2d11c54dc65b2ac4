package reflection_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/reflection"
)

// hostilePod is a pod with much in every part that is read.
func hostilePod(r *rand.Rand, size int) *corev1.Pod {
	long := func() string { return strings.Repeat("x", r.IntN(size)) }
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", UID: "there", Labels: map[string]string{"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": long(), "app": long()},
		Annotations: map[string]string{reflection.AnnotationOriginUID: "here", "other": long()},
	}}
	p.Spec.NodeName = long()
	p.Status = corev1.PodStatus{Phase: corev1.PodPhase([]string{"Running", "Pending", "Failed", long()}[r.IntN(4)]), Reason: long(), Message: long(), PodIP: "10.0.0.1", NominatedNodeName: long()}
	for range 50 {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(long()), Message: long()},
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionStatus(long()), Reason: long(), Message: long()},
			corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: long(), Message: long()})
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: long()}, corev1.PodIP{IP: fmt.Sprintf("10.0.0.%d", r.IntN(255))})
	}
	p.Status.AllocatedResources, p.Status.Resources = corev1.ResourceList{}, &corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
	for j := range r.IntN(60) {
		p.Status.AllocatedResources[corev1.ResourceName(fmt.Sprint("example.org/r", j))] = resource.MustParse("1")
		p.Status.Resources.Requests[corev1.ResourceName(fmt.Sprint("example.org/r", j))] = resource.MustParse("1")
	}
	for i := range 200 {
		c := corev1.ContainerStatus{Name: fmt.Sprint("c", i), Image: long(), ImageID: long(), ContainerID: long(), AllocatedResources: corev1.ResourceList{}, Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: long(), Message: long()}
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: long(), Message: long(), ContainerID: long()}
		for j := range r.IntN(60) {
			c.AllocatedResources[corev1.ResourceName(fmt.Sprint("example.org/r", j))] = resource.MustParse("1")
			c.Resources.Limits[corev1.ResourceName(fmt.Sprint("example.org/r", j))] = resource.MustParse("1")
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, c)
	}
	return p
}

// What is held of a pod is as much as its status here is made of, and no more.
func TestHeldPod(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	here := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "here"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c0"}, {Name: "c99"}}}}
	for range 100 {
		there := hostilePod(r, 3000)
		held := reflection.HeldPod(there.DeepCopy())
		o := reflection.StatusOptions{Now: metav1.NewTime(time.Unix(1, 0))}
		if diff := cmp.Diff(reflection.PodStatus(here, there, o), reflection.PodStatus(here, held, o)); diff != "" {
			t.Fatalf("another status (-of the pod +of what is held)\n%s", diff)
		}
		if reflection.IsOfAnother(here, held) || held.Labels["offloading.liqo.io/origin"] != "rome" || len(held.Labels) > 2 || len(held.Annotations) > 1 {
			t.Fatalf("metadata %+v", held.ObjectMeta)
		}
	}
	if n := hostilePod(r, 100_000).Size(); n < 20<<20 {
		t.Fatalf("the pod has only %d bytes", n)
	}
	if n := reflection.HeldPod(hostilePod(r, 100_000)).Size(); n > 2<<20 {
		t.Errorf("%d bytes are held", n)
	}
}

// The same of an Event.
func TestHeldEvent(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, e := range []*corev1.Event{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"liqo.io/skip-reflection": "true", "a": long}}, Type: "Warning", Reason: long, Message: long,
			Source: corev1.EventSource{Component: long, Host: long}, LastTimestamp: metav1.NewTime(time.Unix(5, 0)), Count: 3, Action: long,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", UID: types.UID("u"), FieldPath: long},
		},
		{ReportingController: "kubelet", EventTime: metav1.NewMicroTime(time.Unix(7, 0)), Series: &corev1.EventSeries{Count: 4, LastObservedTime: metav1.NewMicroTime(time.Unix(8, 0))}},
	} {
		held := reflection.HeldEvent(e)
		about := corev1.ObjectReference{Name: "web"}
		if diff := cmp.Diff(reflection.Event(e, about), reflection.Event(held, about)); diff != "" {
			t.Errorf("another Event (-of it +of what is held)\n%s", diff)
		}
		if held.InvolvedObject.Kind != e.InvolvedObject.Kind || held.InvolvedObject.UID != e.InvolvedObject.UID || held.InvolvedObject.Name != e.InvolvedObject.Name {
			t.Errorf("about %+v", held.InvolvedObject)
		}
		if reflection.DenyList.Reflects(e.Annotations) != reflection.DenyList.Reflects(held.Annotations) {
			t.Errorf("annotations %+v", held.Annotations)
		}
		if n := held.Size(); n > 8<<10 {
			t.Errorf("%d bytes are held", n)
		}
	}
}
