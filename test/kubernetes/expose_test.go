package kubernetes

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testExpose has pods of a reach a Service of b by a Service of the same name, and goes
// on asking while all pods behind it are replaced: nothing in a has to change.
func testExpose(t *testing.T, w *world) {
	const name = "web"
	w.connect(t)
	before := w.servers(t, w.b, 2)
	from := w.clients(t, w.a, 2)[0]
	w.kubectl(t, w.b, "-n", appNamespace, "expose", "deployment", name, "--port=80", fmt.Sprintf("--target-port=%d", webPort))
	t.Cleanup(func() { // the context of the test is over
		for c, objects := range map[*kubelab.Cluster][]string{w.a: {"service/" + name}, w.b: {"service/" + name, "ip.ipam.liqo.io/" + name}} {
			if out, err := c.Kubectl(append([]string{"-n", appNamespace, "delete", "--ignore-not-found"}, objects...)...); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
	w.liqoctl(t, w.between(w.b, w.a, "expose", "service", name, "-n", appNamespace)...)

	var service corev1.Service
	if err := w.a.Client().Get(t.Context(), client.ObjectKey{Namespace: appNamespace, Name: name}, &service); err != nil {
		t.Fatal(err)
	}
	addr, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil {
		t.Fatalf("the Service has no ClusterIP: %+v", service.Spec)
	}
	at := netip.AddrPortFrom(addr, 80)
	old := make(map[string]bool)
	for _, p := range before {
		old[p.Name] = true
	}
	lab.Eventually(t, patience, "the Service of the other cluster answers", func() error {
		got, err := getAt(t.Context(), from, at)
		if err == nil && !old[got.Pod] {
			err = fmt.Errorf("somebody else answers: %+v", got)
		}
		return err
	})

	asking, enough := context.WithCancel(t.Context())
	var asks sync.WaitGroup
	var asked, failed int
	var last error
	asks.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for asking.Err() == nil {
			if _, err := getAt(asking, from, at); asking.Err() == nil {
				asked++
				if err != nil {
					failed, last = failed+1, err
				}
			}
			select {
			case <-asking.Done():
			case <-tick.C:
			}
		}
	})
	defer asks.Wait()
	defer enough()
	w.kubectl(t, w.b, "-n", appNamespace, "delete", "pods", "-l", "app="+name)
	w.servers(t, w.b, 2)
	lab.Eventually(t, patience, "only new pods answer, time and again", func() error {
		for range 10 {
			got, err := getAt(t.Context(), from, at)
			if err != nil {
				return err
			}
			if old[got.Pod] {
				return fmt.Errorf("one that was deleted answers: %+v", got)
			}
		}
		return nil
	})
	enough()
	asks.Wait()
	t.Logf("while all pods were replaced, %d of %d requests failed (%v)", failed, asked, last)
	if failed == asked {
		t.Errorf("none of %d requests was answered: %v", asked, last)
	}
}
