package tunnel

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestDeviceErrorsAreLoggedOnceInAWhile(t *testing.T) {
	e := &errorLog{kinds: make(map[string]*errorKind)}
	now := time.Unix(1000, 0)
	for _, step := range []struct {
		kind       string
		after      time.Duration
		suppressed int
		ok         bool
	}{
		{"a", 0, 0, true},
		{"a", time.Second, 0, false},
		{"b", 0, 0, true},
		{"a", quietFor - 2*time.Second, 0, false},
		{"a", time.Second, 2, true},
		{"a", quietFor, 0, true},
	} {
		now = now.Add(step.after)
		if suppressed, ok := e.admit(step.kind, now); suppressed != step.suppressed || ok != step.ok {
			t.Errorf("%s after %v: %d, %v, want %d, %v", step.kind, step.after, suppressed, ok, step.suppressed, step.ok)
		}
	}
	for i := range 10 * maxErrorKinds {
		e.admit(strings.Repeat("x", i), now)
	}
	if len(e.kinds) > maxErrorKinds {
		t.Errorf("%d kinds kept", len(e.kinds))
	}
}

func TestDeviceLoggerLevels(t *testing.T) {
	for _, tt := range []struct {
		level slog.Level
		want  []string
	}{
		{slog.LevelInfo, []string{"level=WARN"}},
		{slog.LevelDebug, []string{"level=WARN", "level=DEBUG"}},
	} {
		var out bytes.Buffer
		l := newDeviceLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: tt.level})))
		l.Errorf("bad %d", 1)
		l.Errorf("bad %d", 2)
		l.Verbosef("detail %d", 3)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != len(tt.want) {
			t.Errorf("%v: %d lines, want %d:\n%s", tt.level, len(lines), len(tt.want), out.String())
			continue
		}
		for i, w := range tt.want {
			if !strings.Contains(lines[i], w) {
				t.Errorf("%v: line %q, want %q", tt.level, lines[i], w)
			}
		}
	}
}
