package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/sluice-net/sluice/dataplane"
)

// count returns the number of series of each metric.
func count(t *testing.T, c prometheus.Collector) map[string]int {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]int)
	for _, f := range families {
		out[f.GetName()] = len(f.GetMetric())
	}
	return out
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metricsOf(busyReport))
	path := filepath.Join(t.TempDir(), "metrics")
	if err := prometheus.WriteToTextfile(path, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "metrics.txt", string(text))

	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		// Liqo's names stay as its dashboards want them.
		if !strings.HasPrefix(p.Metric, "liqo_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestMetricsOfAnIdleGateway(t *testing.T) {
	n := count(t, metricsOf(idleReport))
	if n["sluice_handshake_age_seconds"] != 0 {
		t.Error("there is an age of a handshake that was not")
	}
	// Every drop is there from the start.
	if want := 2*len(dataplane.Drops()) + len(tunnelDrops(idleReport().DataPlane.Tunnel)); n["sluice_drops_total"] != want {
		t.Errorf("%d drop counters, want %d", n["sluice_drops_total"], want)
	}
}

func TestLatencyHistogram(t *testing.T) {
	h := newLatencyHistogram()
	h.WithLabelValues(driver, "milan").Observe(850)
	if n := count(t, h); n["liqo_peer_latency_histogram_us"] != 1 {
		t.Errorf("series: %v", n)
	}
}
