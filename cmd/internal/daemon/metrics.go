package daemon

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Emit takes one value of a metric.
type Emit = func(v float64, labels ...string)

// Metric is one metric: its values are read from a report of type R when it is
// asked for.
type Metric[R any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(R, Emit)
}

// Counter returns a metric that only grows.
func Counter[R any](name, help string, value func(R, Emit), labels ...string) Metric[R] {
	return Metric[R]{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue, value}
}

// Gauge returns a metric that goes up and down.
func Gauge[R any](name, help string, value func(R, Emit), labels ...string) Metric[R] {
	return Metric[R]{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, value}
}

// Collector reads a report once for all metrics of a scrape, so that they fit
// together.
type Collector[R any] struct {
	Report  func() R
	Metrics []Metric[R]
}

// Describe implements prometheus.Collector.
func (c Collector[R]) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.Metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c Collector[R]) Collect(ch chan<- prometheus.Metric) {
	r := c.Report()
	for _, m := range c.Metrics {
		m.value(r, func(v float64, labels ...string) {
			for i, l := range labels {
				labels[i] = strings.ToValidUTF8(l, "?")
			}
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
		})
	}
}

// MetricsHandler serves /metrics, with those of the runtime and the process.
func MetricsHandler(cs ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(cs...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: 5 * time.Second}))
	return mux
}

// Bool is the value of a metric that is a switch.
func Bool(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
