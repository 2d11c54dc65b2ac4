package addresses_test

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

// BenchmarkConverge starts the controller in a cluster where 1000 IPs have no
// address, and waits until all have one. Run it with -benchtime=1x: each round
// needs a control plane.
func BenchmarkConverge(b *testing.B) {
	const ips = 1000
	for b.Loop() {
		b.StopTimer()
		w := &world{Cluster: controlplanetest.Start(b), tb: b}
		w.grant(b, w.network(b, liqo, "external-cidr", "10.70.0.0/16", 1), "10.70.0.0/16")
		w.Namespace(b, "many", nil)
		var wg sync.WaitGroup
		for part := range 10 {
			wg.Go(func() {
				for i := part; i < ips; i += 10 {
					w.Create(b, newIP("many", fmt.Sprintf("ip-%d", i), "10.42.0.1", ""))
				}
			})
		}
		wg.Wait()
		writes := w.Patches(b, "ips")

		b.StartTimer()
		start := time.Now()
		controlplanetest.Settled(b, "ip", ips, w.run)
		b.StopTimer()
		var list ipamv1alpha1.IPList
		if err := w.Client.List(context.Background(), &list, client.InNamespace("many")); err != nil {
			b.Fatal(err)
		}
		for _, o := range list.Items {
			if o.Status.IP == "" {
				b.Errorf("%s has none: %+v", o.Name, o.Status.Conditions)
			}
		}
		b.ReportMetric(time.Since(start).Seconds(), "s-to-converge")
		b.ReportMetric(float64(w.Patches(b, "ips")-writes)/ips, "writes/ip")
		b.StartTimer()
	}
}
