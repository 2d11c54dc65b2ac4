package main

import (
	"strings"
	"testing"
)

// TestRemovalsTakeSkipValidation: scripts that give the flag to all commands of the network may do so here, where nothing
// is validated.
func TestRemovalsTakeSkipValidation(t *testing.T) {
	for _, verb := range []string{"disconnect", "reset"} {
		got := liqoctl(t.Context(), "network", verb, "--skip-validation", "--skip-confirm", "--remote-cluster-id", "milan", "--kubeconfig", kubeconfigFor(t, "http://127.0.0.1:1"))
		if got.code != 1 || !strings.HasPrefix(got.stderr, " ERRO   reach the cluster: the API server http://127.0.0.1:1 cannot be reached: ") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}
