package prefixes

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what an operator wants an alarm for: that a Network gets nothing,
// and, before that, that a pool runs out.
type metrics struct {
	networks, largest *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		networks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_ipam_networks", Help: "Networks by the reason of their condition Allocated.",
		}, []string{"reason"}),
		largest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_ipam_pool_largest_free_addresses_log2",
			Help: "Addresses in the largest free prefix of a pool, as a power of two: 16 is an IPv4 /16; -1 when nothing is free.",
		}, []string{"pool"}),
	}
	for _, g := range []**prometheus.GaugeVec{&m.networks, &m.largest} {
		err := registry.Register(*g)
		if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			// A second manager in one process, one after the other or for another cluster.
			*g, err = there.ExistingCollector.(*prometheus.GaugeVec), nil
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) set(l *ledger) {
	for reason, n := range l.reasons {
		if reason == "" {
			continue // for a moment
		}
		m.networks.WithLabelValues(string(reason)).Set(float64(n))
	}
	for _, pool := range l.allocator.Pools() {
		free := -1
		if bits, ok := l.allocator.LargestFree(pool); ok {
			free = pool.Addr().BitLen() - bits
		}
		m.largest.WithLabelValues(pool.String()).Set(float64(free))
	}
}
