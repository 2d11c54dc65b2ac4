package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// shortenEvents replaces an Event, which client-go logs as a whole, by its reason and
// the object it is about.
func shortenEvents(_ []string, a slog.Attr) slog.Attr {
	switch e := a.Value.Any().(type) {
	case *eventsv1.Event:
		a.Value = slog.StringValue(fmt.Sprintf("%s of %s %s/%s", e.Reason, e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name))
	case *corev1.Event:
		a.Value = slog.StringValue(fmt.Sprintf("%s of %s %s/%s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name))
	}
	return a
}

// quietHandler lowers the level of records that libraries log at too high a level.
type quietHandler struct {
	slog.Handler
	ctx context.Context
}

// Handle implements slog.Handler.
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = h.level(r)
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// level is the one at which a record is logged.
func (h quietHandler) level(r slog.Record) slog.Level {
	switch {
	case internals[r.Message] || isRejectedEvent(r):
		return min(r.Level, slog.LevelDebug)
	case h.ctx.Err() != nil:
		// Requests are cancelled and the election is over because it was asked for.
		return min(r.Level, slog.LevelInfo)
	}
	return r.Level
}

// internals are what controller-runtime says of each of its parts.
var internals = map[string]bool{
	"Starting EventSource": true,
	"Starting Controller":  true,
	"Starting workers":     true,
	"All workers finished": true,
}

// isRejectedEvent tells whether a record is of an Event in a namespace that is going
// away: nobody could read it.
func isRejectedEvent(r slog.Record) (is bool) {
	if !strings.HasPrefix(r.Message, "Server rejected event") {
		return false
	}
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		is = ok && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		return !is
	})
	return is
}

// WithAttrs implements slog.Handler.
func (h quietHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(as), h.ctx}
}

// WithGroup implements slog.Handler.
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.ctx}
}
