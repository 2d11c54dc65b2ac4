package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/exec"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
)

// TestDropsErrors: a gateway that keeps no drops is said to be old.
func TestDropsErrors(t *testing.T) {
	s := dropsSource{cluster: &access.Cluster{Options: access.Options{Name: access.Local}}, pod: types.NamespacedName{Namespace: "a", Name: "b"}}
	exit := exec.CodeExitError{Err: errors.New("command terminated with exit code 1"), Code: 1}
	old := s.cluster.Explain("run x", fmt.Errorf("gateway: unknown command \"drops\"; the commands are: capture: %w", exit))
	if got := survey.DropsError(s.cluster, s.pod, old).Error(); got != "(local) pod a/b: this gateway is of an older version, which keeps no dropped packets" {
		t.Error(got)
	}
	other := errors.New("the gateway went away")
	if got := survey.DropsError(s.cluster, s.pod, other); got != other {
		t.Error(got)
	}
	got := liqoctl(t.Context(), "network", "drops", "--kubeconfig", "nowhere", "--reason", "Naples")
	if got.code == 0 || !strings.Contains(got.stderr, `--reason: unknown reason "Naples"; the reasons are DropEncapsulation, `) {
		t.Errorf("%+v", got)
	}
}
