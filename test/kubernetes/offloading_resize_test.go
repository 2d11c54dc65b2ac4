package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testOffloadedResized resizes the pod on the virtual node by the pod of a: the kubelet of b does it, or the Quota has no room.
func testOffloadedResized(t *testing.T, o *offloaded) {
	p := o.onVirtual()
	before := p.Status.ContainerStatuses
	resize := func(requests string) {
		t.Helper()
		o.kubectl(t, o.a, "patch", "pod", "-n", offloadedHere, p.Name, "--subresource=resize", "-p", `{"spec":{"containers":[{"name":"web","resources":{"requests":`+requests+`}}]}}`)
	}
	// has waits until the pod has these resources in both clusters, by the word of the kubelet, and nothing is left to be done.
	has := func(cpu, memory string) {
		t.Helper()
		want := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
		for c, namespace := range map[*kubelab.Cluster]string{o.b: offloadedThere, o.a: offloadedHere} {
			lab.Eventually(t, patience, fmt.Sprintf("the pod has %s of cpu and %s in %s", cpu, memory, c.Name), func() error {
				var p corev1.Pod
				if err := c.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: o.there.Name}, &p); err != nil {
					return err
				}
				at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == "web" })
				if at < 0 || p.Status.ContainerStatuses[at].Resources == nil {
					return fmt.Errorf("its containers are %+v", p.Status.ContainerStatuses)
				}
				spec, set := p.Spec.Containers[0].Resources.Requests, p.Status.ContainerStatuses[at].Resources.Requests
				if diff := cmp.Diff(want, spec) + cmp.Diff(want, set); diff != "" {
					return fmt.Errorf("spec and status (-want +got)\n%s", diff)
				}
				for _, c := range p.Status.Conditions {
					if strings.HasPrefix(string(c.Type), "PodResize") {
						return fmt.Errorf("%s: %s %s", c.Type, c.Reason, c.Message)
					}
				}
				return nil
			})
		}
	}
	resize(`{"cpu":"20m","memory":"24Mi"}`)
	has("20m", "24Mi")
	// Another pod has most of what was granted, though no node has room for it.
	o.large(t, "19990m")
	o.says(t, "large", "QuotaExceeded", "19990m of cpu are asked for")
	resize(`{"cpu":"10m"}`)
	has("10m", "24Mi")
	lab.Eventually(t, patience, "the other pod has the room that was left", func() error {
		_, err := o.b.Kubectl("get", "pod", "-n", offloadedThere, "large")
		return err
	})
	resize(`{"cpu":"30m"}`)
	o.says(t, p.Name, "QuotaExceeded", "30m of cpu are asked for; of 20, which are granted, other pods have 19990m")
	lab.Eventually(t, patience, "the pod says that it waits for resources", func() error {
		out, err := o.a.Kubectl("get", "pod", "-n", offloadedHere, p.Name, "-o", `jsonpath={.status.conditions[?(@.type=="PodResizePending")].reason}`)
		if err == nil && strings.TrimSpace(out) != corev1.PodReasonDeferred {
			err = fmt.Errorf("PodResizePending: %q", out)
		}
		return err
	})
	o.kubectl(t, o.a, "delete", "pod", "-n", offloadedHere, "large", "--wait=true", "--timeout="+patience.String())
	has("30m", "24Mi")
	resize(`{"cpu":"10m","memory":"16Mi"}`)
	has("10m", "16Mi")
	if err := o.check(t.Context()); err != nil {
		t.Errorf("a resize ends pods: %v", err)
	}
	for i, s := range o.onVirtual().Status.ContainerStatuses {
		if s.ContainerID != before[i].ContainerID || s.RestartCount != before[i].RestartCount {
			t.Errorf("container %s is %s after %d restarts, which was %s after %d", s.Name, s.ContainerID, s.RestartCount, before[i].ContainerID, before[i].RestartCount)
		}
	}
}

// large makes a pod of that name which asks for so much, past the scheduler, which would not let it.
func (o *offloaded) large(t *testing.T, cpu string) {
	t.Helper()
	manifest{o.a, offloadedHere, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: large}, spec: {nodeName: %s, terminationGracePeriodSeconds: 1,
tolerations: [{operator: Exists}], securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}},
containers: [{name: web, image: %q, imagePullPolicy: Never, resources: {requests: {cpu: %s}}, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`, virtualNode, webImage, cpu)}.apply(t)
}

// testOffloadedQuota asks for more than was granted.
func testOffloadedQuota(t *testing.T, o *offloaded) {
	o.large(t, "21")
	lab.Eventually(t, patience, "the provider says why the pod is pending", func() error {
		var list eventsv1.EventList
		if err := o.b.Client().List(t.Context(), &list, client.InNamespace(offloadedThere)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == "large" && e.Reason == "QuotaExceeded" && strings.Contains(e.Note, "cpu") {
				return nil
			}
		}
		return errors.New("there is no such event")
	})
	if got := o.kubectl(t, o.a, "get", "pod", "-n", offloadedHere, "large", "-o", "jsonpath={.status.phase}"); got != "Pending" {
		t.Errorf("the pod is %s", got)
	}
	o.kubectl(t, o.a, "delete", "pod", "-n", offloadedHere, "large", "--wait=true", "--timeout="+patience.String())
}
