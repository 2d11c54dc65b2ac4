package access

import (
	"strings"
	"testing"
)

// TestInterrupted: a takeover that has not come to its end is told, however little there is of it.
func TestInterrupted(t *testing.T) {
	policies, ended := []string{"ValidatingAdmissionPolicy p", "ValidatingAdmissionPolicyBinding p"}, []string{"DaemonSet liqo/liqo-fabric without nodes"}
	kept, programs := []string{"ConfigMap liqo/kept"}, []string{"Deployment liqo/liqo-controller", "DaemonSet liqo-fabric/liqo-fabric"}
	for _, tt := range []struct {
		name  string
		state takeoverState
		wants []string // none: there is nothing to tell
	}{
		{"nothing", takeoverState{missing: programs}, nil},
		{"Sluice on its own", takeoverState{}, nil},
		{"a network that was taken over", takeoverState{policies: policies, ended: ended, others: kept}, nil},
		{"images that are tried", takeoverState{others: []string{"Pod liqo/trial"}, missing: programs}, []string{"there is Pod liqo/trial; there is no Deployment liqo/liqo-controller, no DaemonSet"}},
		{"a policy without its binding", takeoverState{policies: policies[:1], missing: programs}, []string{"there is ValidatingAdmissionPolicy p;"}},
		{"policies alone", takeoverState{policies: policies, missing: programs}, []string{"PolicyBinding p;", "Liqo's controllers may write nothing of the network"}},
		{"before our controller", takeoverState{policies: policies, ended: ended, others: kept, missing: programs}, []string{"without nodes, ConfigMap liqo/kept"}},
		{"without our controller", takeoverState{policies: policies, ended: ended, others: kept, missing: programs[:1]}, []string{"may write nothing"}},
		{"without policies", takeoverState{ended: ended, others: kept, missing: programs[:1]}, []string{"there is DaemonSet liqo/liqo-fabric without nodes"}},
		{"Liqo's agents beside ours", takeoverState{policies: policies, others: kept}, []string{"interrupted"}},
		{"the end of the way back", takeoverState{others: kept, missing: programs}, []string{"there is ConfigMap liqo/kept"}},
	} {
		got := tt.state.interrupted()
		if len(tt.wants) == 0 && got != "" {
			t.Errorf("%s: %s", tt.name, got)
		}
		for _, want := range tt.wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", tt.name, got, want)
			}
		}
	}
}
