package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/sluice-net/sluice/controlplane/fabric"
	"github.com/sluice-net/sluice/controlplane/hostnet"
)

func TestMetrics(t *testing.T) {
	for name, status := range map[string]func() report{"metrics-standalone.txt": standaloneReport, "metrics-cluster.txt": clusterReport, "metrics-starting.txt": startingReport} {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(metricsOf(status))
		path := filepath.Join(t.TempDir(), "metrics")
		if err := prometheus.WriteToTextfile(path, r); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, string(text))
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
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
