package release

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-net/sluice/admin/access"
)

// TestInterruptedInstallation: who interrupts is told how much is done; what went wrong otherwise stays as it is.
func TestInterruptedInstallation(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name      string
		interrupt bool
		want      string
	}{
		{"Ctrl-C", true, "interrupted while waiting: this run has done 1 of 3 steps, which stay so: the same command continues from there\nbroken"},
		{"a failure", false, "broken"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		took := 0
		err := inSteps(ctx, &access.Cluster{}, []applyStep{
			{"making", func() error { took++; return nil }},
			{"waiting", func() error {
				if took++; tt.interrupt {
					cancel()
				}
				return broken
			}},
			{"ending", func() error { took++; return nil }},
		})
		if err == nil || err.Error() != tt.want || took != 2 {
			t.Errorf("%s: after %d steps: %v\nwant %s", tt.name, took, err, tt.want)
		}
	}
}
