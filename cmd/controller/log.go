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

// shorten writes an Event, which client-go logs as a whole, as what it says of
// what.
func shorten(_ []string, a slog.Attr) slog.Attr {
	switch e := a.Value.Any().(type) {
	case *eventsv1.Event:
		a.Value = slog.StringValue(fmt.Sprintf("%s of %s %s/%s", e.Reason, e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name))
	case *corev1.Event:
		a.Value = slog.StringValue(fmt.Sprintf("%s of %s %s/%s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name))
	}
	return a
}

// calm is a handler for libraries that take too much for worth telling.
type calm struct {
	slog.Handler
	ctx context.Context
}

// Handle implements slog.Handler.
func (h calm) Handle(ctx context.Context, r slog.Record) error {
	r.Level = h.level(r)
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// level is what a record deserves.
func (h calm) level(r slog.Record) slog.Level {
	switch {
	case internals[r.Message] || rejected(r):
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

// rejected tells whether a record is of an Event in a namespace that is going
// away: nobody could read it.
func rejected(r slog.Record) (is bool) {
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
func (h calm) WithAttrs(as []slog.Attr) slog.Handler { return calm{h.Handler.WithAttrs(as), h.ctx} }

// WithGroup implements slog.Handler.
func (h calm) WithGroup(name string) slog.Handler { return calm{h.Handler.WithGroup(name), h.ctx} }
