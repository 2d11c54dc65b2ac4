package main

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/cmd/internal/daemontest"
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

// Liqo's names stay as its dashboards want them.
func TestMetrics(t *testing.T) { daemontest.Metrics(t, "metrics.txt", metricsOf(busyReport), "liqo_") }

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

// TestMetricsHoldNoKeys: who may scrape learns neither keys nor addresses, of which the report is full.
func TestMetricsHoldNoKeys(t *testing.T) {
	secret := regexp.MustCompile(`[A-Za-z0-9+/]{43}=|\b\d{1,3}(\.\d{1,3}){3}\b|[0-9a-f]{1,4}::[0-9a-f]`)
	report, err := json.Marshal(busyReport())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(secret.FindAll(report, -1)); n < 10 {
		t.Fatalf("the report holds %d of them", n)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metricsOf(busyReport))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if found := secret.FindString(f.String()); found != "" {
			t.Errorf("%s tells %s", f.GetName(), found)
		}
	}
}

func TestLatencyHistogram(t *testing.T) {
	h := newLatencyHistogram()
	h.WithLabelValues(driver, "milan").Observe(850)
	if n := count(t, h); n["liqo_peer_latency_histogram_us"] != 1 {
		t.Errorf("series: %v", n)
	}
}

// TestMetricsCommand: whoever may run commands in the pod can read its metrics.
func TestMetricsCommand(t *testing.T) { daemontest.MetricsCommand(t, run) }
