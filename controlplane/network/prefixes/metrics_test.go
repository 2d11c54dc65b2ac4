package prefixes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	m, err := newMetrics(registry) // of a second manager
	if err != nil {
		t.Fatal(err)
	}
	l := ledgerOf(t, installation()...)
	l.decide(network("rome", "a", "10.0.0.0/8", 1), installation())
	l.decide(network("rome", "b", "172.16.0.0/12", 1), installation())
	m.set(l)
	l.decide(network("rome", "c", "10.243.0.0/16", 1), installation())
	l.forget("rome/a")
	m.set(l)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			got[f.GetName()+" "+s.GetLabel()[0].GetValue()] = s.GetGauge().GetValue()
		}
	}
	const largest = "sluice_ipam_pool_largest_free_addresses_log2 "
	want := map[string]float64{
		"sluice_ipam_networks " + string(ipamv1alpha1.ReasonAllocated): 6,
		"sluice_ipam_networks " + string(ipamv1alpha1.ReasonRemapped):  1,
		"sluice_ipam_networks " + string(ipamv1alpha1.ReasonExhausted): 0,
		largest + "10.0.0.0/8": 22, largest + "192.168.0.0/16": 15, largest + "172.16.0.0/12": -1, largest + "fd50:52ea::/32": 96,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
