package release

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
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
		err := inSteps(ctx, &access.Cluster{}, nil, []applyStep{
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

// TestStepsUntilAnswered: a step whose API server gives no answer is taken again, and one that was refused is not.
func TestStepsUntilAnswered(t *testing.T) {
	kind := schema.GroupResource{Group: "networking.liqo.io", Resource: "wggatewayclienttemplates"}
	for _, tt := range []struct {
		name string
		err  error
		took int
	}{
		{"a request that was not completed in time", fmt.Errorf("installing: %w", apierrors.NewTimeoutError("request did not complete within requested timeout", 0)), 3},
		{"a server that is busy", apierrors.NewTooManyRequests("wait", 1), 3},
		{"a server that is being replaced", &url.Error{Op: "Patch", Err: syscall.ECONNREFUSED}, 3},
		{"a refusal", apierrors.NewForbidden(kind, "wireguard-client", errors.New("no")), 1},
		{"an object that is not valid", apierrors.NewBadRequest("no"), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			took := 0
			var told []string
			err := inSteps(t.Context(), &access.Cluster{}, func(e progress.Event) { told = append(told, e.Text) }, []applyStep{{"installing the release", func() error {
				if took++; took < 3 {
					return tt.err
				}
				return nil
			}}})
			if took != tt.took || len(told) != tt.took-1 || (err == nil) != (tt.took == 3) {
				t.Errorf("%s: taken %d times, want %d: %v\n%s", tt.name, took, tt.took, err, strings.Join(told, "\n"))
			}
		})
	}
}

// TestStepsGiveUp: a step whose API server never answers ends with the last error, and at once when it is interrupted.
func TestStepsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start, silent := time.Now(), apierrors.NewServiceUnavailable("no answer")
		step := []applyStep{{"installing", func() error { return silent }}}
		if err := inSteps(ctx, &access.Cluster{}, nil, step); !errors.Is(err, silent) || time.Since(start) < answerWithin || time.Since(start) > 2*answerWithin {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		cancel()
		start = time.Now()
		if err := inSteps(ctx, &access.Cluster{}, nil, step); !errors.Is(err, silent) || time.Since(start) > 0 {
			t.Errorf("interrupted, after %v: %v", time.Since(start), err)
		}
	})
}
