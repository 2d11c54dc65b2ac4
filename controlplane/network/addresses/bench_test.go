package addresses_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
		writes := w.patches(b)

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
		b.ReportMetric(float64(w.patches(b)-writes)/ips, "writes/ip")
		b.StartTimer()
	}
}

// patches counts what the API server was asked to write about IPs.
func (w *world) patches(t testing.TB) (sum int) {
	t.Helper()
	out, err := w.Kubectl("get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="ips"`) && strings.Contains(line, `verb="PATCH"`) {
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += int(n)
		}
	}
	return sum
}
