package testlog

import (
	"fmt"
	"io"
	"testing"
)

// recorder is a test that keeps what is logged and runs its cleanups when it ends.
type recorder struct {
	testing.TB
	lines    []string
	cleanups []func()
}

func (r *recorder) Logf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func TestWriter(t *testing.T) {
	r := &recorder{TB: t}
	w := Writer(r)
	io.WriteString(w, "a line\n")
	for _, f := range r.cleanups {
		f()
	}
	if n, err := io.WriteString(w, "late\n"); n != 5 || err != nil {
		t.Errorf("after the end: %d, %v; a program that logs must not fail", n, err)
	}
	if len(r.lines) != 1 || r.lines[0] != "a line" {
		t.Errorf("%q is logged", r.lines)
	}
}

// TestLate has something that goes on when the test has ended; the race detector says whether it writes to that.
func TestLate(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Run("short", func(t *testing.T) {
		w, first := Writer(t), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					fmt.Fprintln(w, i)
				}
				if i == 0 {
					close(first)
				}
			}
		}()
		<-first
	})
	close(stop)
	<-stopped
}
