package survey

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSilenceIsKnown(t *testing.T) {
	gone := errors.New(`unable to upgrade connection: container not found ("gateway")`)
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "p", nil)
	for _, test := range []struct {
		name string
		pods []Pod
		err  error
		want bool
	}{
		{"no active pod", nil, errNoActivePod, true},
		{"a pod that starts", []Pod{{Active: true}}, gone, true},
		{"a pod that runs", []Pod{{Active: true, Ready: true}}, gone, false},
		{"a pod that starts, of which the user may not ask", []Pod{{Active: true}}, denied, false},
	} {
		if got := (&Gateway{Pods: test.pods, ReportErr: test.err}).silenceIsKnown(); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}

func TestRollOutThatHangs(t *testing.T) {
	c := Component{Desired: 1, Ready: 1, Updated: 1, Outdated: 1}
	if want := "1 of 1 pods are ready, 1 of an earlier version: the roll-out is not over"; c.Healthy() || c.Readiness() != want {
		t.Errorf("healthy: %t, %q", c.Healthy(), c.Readiness())
	}
}
