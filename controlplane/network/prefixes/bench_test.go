package prefixes_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// BenchmarkConverge starts the controller in a cluster where 1000 Networks, two
// of each of 500 peers with the same prefixes, have no answer, and waits until
// all have one; then it starts it again, when all have one. Run it with
// -benchtime=1x: each round needs a control plane.
func BenchmarkConverge(b *testing.B) {
	const peers = 500
	for b.Loop() {
		b.StopTimer()
		w := &world{Cluster: controlplanetest.Start(b), tb: b}
		for _, n := range installation() {
			w.create(b, n)
		}
		w.Namespace(b, "peers", nil)
		var wg sync.WaitGroup
		for part := range 10 {
			wg.Go(func() {
				for i := part; i < peers; i += 10 {
					w.create(b, newNetwork("peers", fmt.Sprintf("p%d-pod", i), "10.244.0.0/18"))
					w.create(b, newNetwork("peers", fmt.Sprintf("p%d-external", i), "fd00:70::/64"))
				}
			})
		}
		wg.Wait()
		writes := w.Patches(b, "networks")

		b.StartTimer()
		start := time.Now()
		controlplanetest.Settled(b, "network", 2*peers, w.run)
		b.StopTimer()
		var list ipamv1alpha1.NetworkList
		if err := w.Client.List(context.Background(), &list, client.InNamespace("peers")); err != nil {
			b.Fatal(err)
		}
		for _, n := range list.Items {
			if n.Status.CIDR == "" {
				b.Errorf("%s has none: %+v", n.Name, n.Status.Conditions)
			}
		}
		b.ReportMetric(time.Since(start).Seconds(), "s-to-converge")
		b.ReportMetric(float64(w.Patches(b, "networks")-writes)/(2*peers), "writes/network")

		w.stop()
		writes = w.Patches(b, "networks")
		start = time.Now()
		controlplanetest.Settled(b, "network", 2*peers, w.run)
		b.ReportMetric(time.Since(start).Seconds(), "s-to-restart")
		b.ReportMetric(float64(w.Patches(b, "networks")-writes), "writes-after-restart")
		b.StartTimer()
	}
}
