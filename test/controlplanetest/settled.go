package controlplanetest

import (
	"context"
	"fmt"
	"testing"

	metricsregistry "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Total sums up the values of a metric of a controller of this process, as
// controller-runtime names them.
func Total(tb testing.TB, controller, metric string) (sum int) {
	tb.Helper()
	families, err := metricsregistry.Registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" && l.GetValue() == controller {
					sum += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
				}
			}
		}
	}
	return sum
}

// Settled calls do and waits until n reconciles of a controller of this process
// came of it and no more are to come. Nothing must be under way before. A queue that was stopped leaves its
// length behind. A controller that goes on is slow, and has not failed.
func Settled(tb testing.TB, controller string, n int, do func()) {
	tb.Helper()
	before, left := Total(tb, controller, "controller_runtime_reconcile_total"), Total(tb, controller, "workqueue_depth")
	done := func() int { return Total(tb, controller, "controller_runtime_reconcile_total") - before }
	do()
	eventually(tb, "the controller has nothing to do", done, func(context.Context) error {
		done, waiting, busy := done(), Total(tb, controller, "workqueue_depth")-left, Total(tb, controller, "controller_runtime_active_workers")
		if done < n || waiting > 0 || busy > 0 {
			return fmt.Errorf("%d of %d are done, %d wait, %d are at work", done, n, waiting, busy)
		}
		return nil
	})
}
