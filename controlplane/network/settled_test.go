package network_test

import (
	"context"
	"fmt"
	"testing"

	metricsregistry "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-net/sluice/controlplane/controlplanetest"
)

// total sums up the values of a metric of the controller.
func total(t testing.TB, metric string) (sum int) {
	t.Helper()
	families, err := metricsregistry.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" && l.GetValue() == "network" {
					sum += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
				}
			}
		}
	}
	return sum
}

// settled calls do and waits until n reconciles came of it and no more are to
// come. Nothing must be under way before. A queue that was stopped leaves its
// length behind.
func settled(t testing.TB, n int, do func()) {
	t.Helper()
	before, left := total(t, "controller_runtime_reconcile_total"), total(t, "workqueue_depth")
	do()
	controlplanetest.Eventually(t, "the controller has nothing to do", func(context.Context) error {
		done := total(t, "controller_runtime_reconcile_total") - before
		waiting, busy := total(t, "workqueue_depth")-left, total(t, "controller_runtime_active_workers")
		if done < n || waiting > 0 || busy > 0 {
			return fmt.Errorf("%d of %d are done, %d wait, %d are at work", done, n, waiting, busy)
		}
		return nil
	})
}
