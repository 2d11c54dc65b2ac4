package virtualkubelet_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// TestResize resizes a pod on a virtual node as its user does. Its ShadowPod follows, and what the provider's kubelet says of
// it is said here.
func TestResize(t *testing.T) {
	s := newScene(t)
	s.node("is ready", ready(corev1.ConditionTrue, "KubeletReady"))
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	p := s.bind("shop", "web", func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("1", "1Gi")}
		p.Spec.InitContainers = []corev1.Container{{Name: "starts", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: list("100m", "64Mi")}}}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("100m", "64Mi"), Limits: list("1", "1Gi")}
	})
	o := s.shadow(p)
	copied := s.play(o, "10.243.3.7")
	tell := func(change func(*corev1.PodStatus, *corev1.ContainerStatus)) {
		t.Helper()
		controlplanetest.EditStatus(t, s.milan, copied, func(p *corev1.Pod) { change(&p.Status, &p.Status.ContainerStatuses[0]) })
	}
	tell(func(_ *corev1.PodStatus, c *corev1.ContainerStatus) {
		c.Resources = &o.Spec.Pod.Containers[0].Resources
	})
	s.pod(p, "has the resources that it has at the provider", func(p *corev1.Pod) error {
		if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].Resources == nil {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	want := o.Spec.Pod.DeepCopy()
	want.Resources.Requests = list("2", "1Gi")
	want.InitContainers[0].Resources.Requests = list("200m", "64Mi")
	want.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("300m", "128Mi"), Limits: list("2", "1Gi")}
	const text = `{"spec":{"resources":{"requests":{"cpu":"2"}},"initContainers":[{"name":"starts","resources":{"requests":{"cpu":"200m"}}}],
"containers":[{"name":"web","resources":{"requests":{"cpu":"300m","memory":"128Mi"},"limits":{"cpu":"2"}}}]}}`
	if err := s.rome.Client.SubResource("resize").Patch(t.Context(), p.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(text))); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the ShadowPod has the resources, and nothing else", func(ctx context.Context) error {
		if err := s.milan.Get(ctx, o.Namespace, o.Name, o); err != nil {
			return err
		}
		if diff := cmp.Diff(want, &o.Spec.Pod); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	condition := func(what string, want corev1.PodConditionType) {
		t.Helper()
		s.pod(p, what, func(p *corev1.Pod) error {
			var has corev1.PodConditionType
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
					has = c.Type
				}
			}
			if has != want {
				return fmt.Errorf("conditions %+v", p.Status.Conditions)
			}
			return nil
		})
	}
	tell(func(s *corev1.PodStatus, _ *corev1.ContainerStatus) {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: cpu"})
	})
	condition("waits for its node", corev1.PodResizePending)
	tell(func(s *corev1.PodStatus, _ *corev1.ContainerStatus) {
		s.Conditions[len(s.Conditions)-1] = corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
	})
	condition("is being resized", corev1.PodResizeInProgress)
	tell(func(s *corev1.PodStatus, c *corev1.ContainerStatus) {
		s.Conditions = s.Conditions[:len(s.Conditions)-1]
		c.AllocatedResources, c.Resources = want.Containers[0].Resources.Requests, &want.Containers[0].Resources
	})
	condition("is not being resized any more", "")
	s.pod(p, "is resized", func(p *corev1.Pod) error {
		c := p.Status.ContainerStatuses[0]
		if diff := cmp.Diff([]any{want.Containers[0].Resources.Requests, &want.Containers[0].Resources}, []any{c.AllocatedResources, c.Resources}); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return runs(p)
	})
}
