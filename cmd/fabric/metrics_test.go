package main

import (
	"testing"

	"github.com/sluice-net/sluice/cmd/internal/daemontest"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
)

func TestMetrics(t *testing.T) {
	for name, status := range map[string]func() report{"metrics-standalone.txt": standaloneReport, "metrics-cluster.txt": clusterReport, "metrics-starting.txt": startingReport} {
		daemontest.Metrics(t, name, metricsOf(status), "")
	}
}

func TestChoice(t *testing.T) {
	for _, tt := range []struct {
		want string
		link fabric.LinkChoice
	}{
		{"flag", fabric.LinkChoice{Kind: hostnet.KindGeneve, Forced: true}},
		{"best", fabric.LinkChoice{Kind: hostnet.KindGeneve}},
		{"unsupported_by_kernel", fabric.LinkChoice{Kind: hostnet.KindVXLAN}},
		{"unsupported_by_kernel", fabric.LinkChoice{}},
		{"refused_by_kernel", fabric.LinkChoice{Kind: hostnet.KindTUN, Failed: map[hostnet.Kind]string{hostnet.KindVXLAN: "busy"}}},
	} {
		if got := choice(tt.link); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.link, got, tt.want)
		}
	}
}

// TestMetricsCommand: whoever may run commands in the pod can read its metrics.
func TestMetricsCommand(t *testing.T) { daemontest.MetricsCommand(t, run) }
