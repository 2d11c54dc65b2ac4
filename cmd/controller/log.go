package main

import (
	"context"
	"io"
	"log/slog"
)

func newLogger(w io.Writer, o options) *slog.Logger {
	h := &slog.HandlerOptions{Level: o.logLevel}
	if o.logJSON {
		return slog.New(slog.NewJSONHandler(w, h))
	}
	return slog.New(slog.NewTextHandler(w, h))
}

// calm is a handler for which nothing is an error any more once ctx has ended:
// then requests are cancelled and the election is over because it was asked for.
type calm struct {
	slog.Handler
	ctx context.Context
}

// Handle implements slog.Handler.
func (h calm) Handle(ctx context.Context, r slog.Record) error {
	if h.ctx.Err() != nil {
		r.Level = min(r.Level, slog.LevelInfo)
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h calm) WithAttrs(as []slog.Attr) slog.Handler { return calm{h.Handler.WithAttrs(as), h.ctx} }

// WithGroup implements slog.Handler.
func (h calm) WithGroup(name string) slog.Handler { return calm{h.Handler.WithGroup(name), h.ctx} }
