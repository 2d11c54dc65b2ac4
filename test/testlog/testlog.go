// Package testlog takes what programs log during a test: as lines of the test, or to be read.
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

// Buffer is a [bytes.Buffer] that may be read while programs write to it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
