package trace

import (
	"testing"

	"github.com/sluice-net/sluice/admin/survey"
)

// TestGatewayOfLiqoIsNoneToAsk: no command of ours runs in it.
func TestGatewayOfLiqoIsNoneToAsk(t *testing.T) {
	for of, want := range map[bool]string{false: "a/b", true: "/"} {
		pods := []survey.Pod{{Namespace: "a", Name: "b", Active: true, OfLiqo: of}}
		s := &sideReader{Side: Side{Peer: &survey.Peer{Gateway: &survey.Gateway{Pods: pods}}}}
		if got := s.gatewayPod().String(); got != want {
			t.Errorf("of Liqo: %t: %q, want %q", of, got, want)
		}
	}
}
