package kubernetes

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/kubelab"
)

// shell runs commands of a document as the administrator of one cluster does: on
// the WAN, with kubectl and liqoctl in the PATH, in a folder. Administrators with
// the same folder hand over files there.
type shell struct {
	w          *world
	dir        string
	kubeconfig string
	vars       []string
}

func (w *world) newShell(c *kubelab.Cluster, dir string) *shell {
	return &shell{w: w, dir: dir, kubeconfig: c.Kubeconfig, vars: w.environment()}
}

// set sets a variable for the commands to come.
func (s *shell) set(name, value string) { s.vars = append(s.vars, name+"="+value) }

// run runs commands. The error holds what they said.
func (s *shell) run(ctx context.Context, commands string) (stdout string, err error) {
	cmd := exec.Command("bash", "-eu", "-o", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = s.dir, append(s.vars, "KUBECONFIG="+s.kubeconfig)
	stdout, stderr, err := s.w.run(ctx, cmd)
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", commands, err, stdout, stderr)
	}
	return stdout, err
}

// ok runs commands that must succeed.
func (s *shell) ok(t *testing.T, commands string) string {
	t.Helper()
	out, err := s.run(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}
