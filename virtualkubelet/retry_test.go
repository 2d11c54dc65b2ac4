package virtualkubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestUnanswered(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tooNew := apierrors.NewTimeoutError("too new", 1)
	tooNew.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"connection refused":         {&url.Error{Op: "Get", Err: syscall.ECONNREFUSED}, true},
		"the same, wrapped":          {fmt.Errorf("list: %w", &url.Error{Op: "Get", Err: syscall.ECONNREFUSED}), true},
		"not allowed yet":            {apierrors.NewForbidden(pods, "", nil), true},
		"not known yet":              {apierrors.NewUnauthorized("no"), true},
		"too many requests":          {apierrors.NewTooManyRequests("later", 1), true},
		"it starts":                  {apierrors.NewServiceUnavailable("starting"), true},
		"the version is gone":        {apierrors.NewResourceExpired("gone"), false},
		"the version is too new":     {tooNew, false},
		"there is no such kind":      {apierrors.NewNotFound(pods, ""), false},
		"it answers too much":        {errAnswerTooLong, false},
		"there are too many objects": {&tooManyError{"pods"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unanswered(tt.err); got != tt.want {
				t.Errorf("%v: %v", tt.err, got)
			}
		})
	}
}

func TestUntilAnswered(t *testing.T) {
	away := &url.Error{Op: "Get", Err: syscall.ECONNREFUSED}
	silent := func(slog.Level, error) {}
	t.Run("it tells once that the server is away, and once that it refuses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			no := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
			errs, told := []error{away, away, no, no, away, no}, []string{}
			_, err := untilAnswered(t.Context(), func(l slog.Level, err error) { told = append(told, fmt.Sprint(l, " ", err)) }, func() (int, error) {
				if len(errs) == 0 {
					return 0, nil
				}
				err := errs[0]
				errs = errs[1:]
				return 0, err
			})
			if want := []string{fmt.Sprint(slog.LevelDebug, " ", away), fmt.Sprint(slog.LevelWarn, " ", no)}; err != nil || !slices.Equal(told, want) {
				t.Errorf("told %q, %v", told, err)
			}
		})
	})
	t.Run("it waits no longer than it says", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin, last := time.Now(), time.Now()
			got, err := untilAnswered(t.Context(), silent, func() (string, error) {
				if pause := time.Since(last); pause > longestPause*3/2 {
					t.Errorf("it waits %v", pause)
				}
				if last = time.Now(); time.Since(begin) < 5*time.Minute {
					return "", away
				}
				return "pods", nil
			})
			if got != "pods" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	})
	t.Run("what is not about the API server is passed on", func(t *testing.T) {
		gone := apierrors.NewResourceExpired("gone")
		if _, err := untilAnswered(t.Context(), silent, func() (int, error) { return 0, gone }); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := untilAnswered(ctx, silent, func() (int, error) { cancel(); return 0, away })
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
	})
}
