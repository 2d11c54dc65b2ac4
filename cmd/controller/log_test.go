package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

func TestLog(t *testing.T) {
	gone := &apierrors.StatusError{ErrStatus: metav1.Status{Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}
	event := &eventsv1.Event{Reason: "Ready", Note: "a long story", Regarding: corev1.ObjectReference{Kind: "GatewayServer", Namespace: "milan", Name: "server"}}
	old := &corev1.Event{Reason: "Ready", Message: "a long story", InvolvedObject: corev1.ObjectReference{Kind: "GatewayServer", Namespace: "milan", Name: "server"}}
	const rejects = "Server rejected event (will not retry!)"
	tests := []struct {
		name  string
		write func(logr.Logger)
		level string
		ended bool
	}{
		{"an ordinary line", func(l logr.Logger) { l.Info("hello") }, "INFO", false},
		{"an error", func(l logr.Logger) { l.Error(errors.New("lost"), "hello") }, "ERROR", false},
		{"an error at the end", func(l logr.Logger) { l.Error(errors.New("lost"), "hello") }, "INFO", true},
		{"a source", func(l logr.Logger) { l.WithValues("source", "func source: 0x123").Info("Starting EventSource") }, "DEBUG", false},
		{"a controller", func(l logr.Logger) { l.Info("Starting Controller") }, "DEBUG", false},
		{"workers", func(l logr.Logger) { l.Info("Starting workers", "worker count", 1) }, "DEBUG", false},
		{"workers at the end", func(l logr.Logger) { l.Info("All workers finished") }, "DEBUG", true},
		{"an Event in a namespace that ends", func(l logr.Logger) { l.Error(gone, rejects, "event", event) }, "DEBUG", false},
		{"an Event that is refused", func(l logr.Logger) { l.Error(errors.New("no right"), rejects, "event", event) }, "ERROR", false},
		{"an Event of the core group", func(l logr.Logger) { l.Error(errors.New("no right"), rejects, "event", old) }, "ERROR", false},
		{"something else in a namespace that ends", func(l logr.Logger) { l.Error(gone, "hello") }, "ERROR", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if tt.ended {
				end()
			}
			for level, l := range map[slog.Level]daemon.Log{slog.LevelDebug: {Level: slog.LevelDebug}, slog.LevelInfo: {JSON: true}} {
				var b strings.Builder
				tt.write(logr.FromSlogHandler(quietHandler{l.New(&b, shortenEvents).Handler(), ctx}))
				out := b.String()
				if level == slog.LevelInfo {
					if shown := out != ""; shown != (tt.level != "DEBUG") {
						t.Errorf("at level info: %q", out)
					}
				} else if !strings.Contains(out, "level="+tt.level) {
					t.Errorf("got %q, want level %s", out, tt.level)
				}
				if strings.Contains(out, "story") || strings.Contains(out, "rejected") && !strings.Contains(out, "Ready of GatewayServer milan/server") {
					t.Errorf("the Event: %q", out)
				}
			}
		})
	}
}
