// Package testlog makes what programs log lines of a test.
package testlog

import (
	"bytes"
	"io"
	"sync"
	"testing"
)

// Writer returns a writer whose lines are logged by tb. What is written after the end of tb is dropped: a library can log
// a moment longer than the call that stops it takes, and a test that has ended must not be written to ([testing.T]
// leaves that to the race detector to find).
//
// The end is before the cleanups that were registered when Writer was called, and after those that are registered later.
func Writer(tb testing.TB) io.Writer {
	w := &writer{tb: tb}
	tb.Cleanup(w.end)
	return w
}

type writer struct {
	mu sync.Mutex
	tb testing.TB // nil: it has ended
}

// Write implements [io.Writer].
func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tb != nil {
		w.tb.Logf("%s", bytes.TrimRight(b, "\n"))
	}
	return len(b), nil
}

func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tb = nil
}
