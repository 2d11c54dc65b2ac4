package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testOffloadedApart takes the clusters apart: nothing is deleted and nothing is started twice. Kubernetes leaves pods on a node
// that is lost for five minutes, and the tokens of service accounts are valid for an hour.
func testOffloadedApart(d time.Duration) func(*testing.T, *offloaded) {
	return func(t *testing.T, o *offloaded) { o.takeApart(t, d) }
}

func (o *offloaded) takeApart(t *testing.T, d time.Duration) {
	pods := func() []string {
		t.Helper()
		var all []string
		for c, namespace := range map[*kubelab.Cluster]string{o.a: offloadedHere, o.b: offloadedThere} {
			all = append(all, linesOf(o.kubectl(t, c, "get", "pods", "-n", namespace,
				"-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp} {.status.containerStatuses[*].restartCount}{"\n"}{end}`))...)
		}
		slices.Sort(all)
		return all
	}
	before := pods()
	if len(before) != 4 {
		t.Fatalf("the pods are %q, want three of %s and one of %s", before, o.a.Name, o.b.Name)
	}
	t.Cleanup(o.Mend)
	start := time.Now()
	over := time.After(d)
	o.Isolate()
	lab.Eventually(t, patience, "the virtual node is not ready", func() error { return o.nodeIs(corev1.ConditionFalse) })
	t.Logf("the virtual node is not ready after %v", time.Since(start).Round(10*time.Millisecond))
	lab.Eventually(t, patience, "its pod is not ready", func() error {
		p := new(corev1.Pod)
		if err := o.a.Client().Get(t.Context(), client.ObjectKeyFromObject(o.onVirtual()), p); err != nil {
			return err
		}
		if ready(p) || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s, %+v", p.Status.Phase, p.Status.Conditions)
		}
		return nil
	})
	<-over
	if diff := cmp.Diff(before, pods()); diff != "" {
		t.Errorf("pods of both clusters after %v (-want +got)\n%s", d, diff)
	}
	start = time.Now()
	o.Mend()
	lab.Eventually(t, patience, "the virtual node is ready", func() error { return o.nodeIs(corev1.ConditionTrue) })
	t.Logf("the virtual node is ready again after %v", time.Since(start).Round(10*time.Millisecond))
	o.wait(t)
	t.Logf("all pods are ready again after %v", time.Since(start).Round(10*time.Millisecond))
	if diff := cmp.Diff(before, pods()); diff != "" {
		t.Errorf("pods of both clusters afterwards (-want +got)\n%s", diff)
	}
	testOffloadedTraffic(t, o)
	lab.Eventually(t, patience, "the client in the pod knows the API server of its cluster, and is known there", func() error {
		_, err := o.askAPI(offloadedHere)
		return err
	})
}

// testOffloadedChangesApart deletes the pod in both clusters while they do not see each other. The provider runs it again, as it
// knows of nothing else, and the consumer keeps it until the provider can say that it is gone; both agree when they can.
func testOffloadedChangesApart(t *testing.T, o *offloaded) {
	before, there := o.onVirtual(), o.there.Name
	t.Cleanup(o.Mend)
	o.Isolate()
	lab.Eventually(t, patience, "the virtual node is not ready", func() error { return o.nodeIs(corev1.ConditionFalse) })
	uid := func() (string, error) {
		return o.b.Kubectl("get", "pod", "-n", offloadedThere, there, "-o", "jsonpath={.metadata.uid} {.status.phase}")
	}
	first, err := uid()
	if err != nil {
		t.Fatal(err)
	}
	o.kubectl(t, o.a, "delete", "pod", "-n", offloadedHere, before.Name, "--wait=false")
	o.kubectl(t, o.b, "delete", "pod", "-n", offloadedThere, there, "--wait=true", "--timeout="+patience.String())
	lab.Eventually(t, patience, "the provider runs the pod again", func() error {
		now, err := uid()
		if err == nil && (now == first || !strings.HasSuffix(now, " Running")) {
			err = fmt.Errorf("it is %q", now)
		}
		return err
	})
	if got := o.kubectl(t, o.a, "get", "pod", "-n", offloadedHere, before.Name, "-o", "jsonpath={.metadata.uid}"); got != string(before.UID) {
		t.Errorf("the consumer has pod %q, want the one of before, %s", got, before.UID)
	}
	o.Mend()
	o.kubectl(t, o.a, "wait", "--for=delete", "pod/"+before.Name, "-n", offloadedHere, "--timeout="+patience.String())
	for _, what := range linesOf(o.kubectl(t, o.b, "get", "pods,shadowpods.offloading.liqo.io", "-n", offloadedThere, "-o", "name")) {
		if strings.HasSuffix(what, "/"+there) {
			t.Errorf("the pod is gone at the consumer, and the provider has %s", what)
		}
	}
	// The one in its place runs in a: the virtual node was not ready.
	lab.Eventually(t, patience, "the virtual node is ready", func() error { return o.nodeIs(corev1.ConditionTrue) })
	o.restarted(t)
}
