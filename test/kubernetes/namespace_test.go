package kubernetes

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testNamespaces ends a connection the hard way: with the namespaces in which all
// of it lies. Nothing stays, and nobody waits for a successor that can never come.
func testNamespaces(t *testing.T, w *world) {
	w.connect(t)
	w.joined = false
	start := time.Now()
	if err := w.deleteTenants(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the namespaces are gone after %v", time.Since(start).Round(100*time.Millisecond))
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		lab.Eventually(t, patience, "nothing is left in "+c.Name, func() error {
			if err := left(t.Context(), c); err != nil {
				return fmt.Errorf("after the end of its namespace: %w", err)
			}
			return nil
		})
	}
}
