package main

import (
	"fmt"
	"os"
	"slices"
)

// session stands in for the test that a lab usually belongs to.
type session struct {
	failed   bool
	cleanups []func()
}

// failure is what Fatal throws, as runtime.Goexit ends a test.
type failure struct{}

func (s *session) Helper()      {}
func (s *session) Failed() bool { return s.failed }

func (s *session) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (s *session) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	s.failed = true
	panic(failure{})
}

func (s *session) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }
func (s *session) Skipf(format string, args ...any)  { s.Fatal(fmt.Sprintf(format, args...)) }
func (s *session) Cleanup(fn func())                 { s.cleanups = append(s.cleanups, fn) }

// end runs the clean-ups, the last first.
func (s *session) end() {
	for _, fn := range slices.Backward(s.cleanups) {
		fn()
	}
}
