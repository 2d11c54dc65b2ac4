package virtualkubelet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// firstPause and longestPause are how long untilAnswered waits between two trials, before jitter.
const firstPause, longestPause = 250 * time.Millisecond, 10 * time.Second

// untilAnswered asks an API server until it answers. A reflector would try again by itself, but waits up to a minute when it has
// failed a few times, as it does while an API server starts and refuses what it allows a second later. Pods that are
// deleted at that time would stay so long. failed is told the first error, and the first one that says that we may not:
// that may last, and only for what is asked here.
func untilAnswered[T any](ctx context.Context, failed func(slog.Level, error), ask func() (T, error)) (T, error) {
	told := slog.LevelDebug - 1
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		answer, err := ask()
		if err == nil || !unanswered(err) {
			return answer, err
		}
		level := slog.LevelDebug
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			level = slog.LevelWarn
		}
		if level > told {
			told = level
			failed(level, err)
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(pause + rand.N(pause/2)):
		}
	}
}

// unanswered tells whether an error is about the API server, and not about what it was asked for: that is for the
// reflector. One that sends nonsense, or too much, is not asked again so soon.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.As(err, new(net.Error))
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError && !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}
}
