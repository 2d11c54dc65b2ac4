package mirror

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// What a reflector says about an API server that is away is not for a log at the
// level of operators, and is there for those who debug.
func TestDebugOnly(t *testing.T) {
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 2} {
		var out bytes.Buffer
		log := logr.FromSlogHandler(debugOnly{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})})
		log.Error(errors.New("connection refused"), "Failed to watch")
		log.Info("Listing")
		log.V(8).Info("a whole answer")
		if got := strings.Count(out.String(), "level=DEBUG"); got != want || strings.Count(out.String(), "\n") != want {
			t.Errorf("at %v: %d records, want %d:\n%s", level, got, want, out.String())
		}
	}
}
