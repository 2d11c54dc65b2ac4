package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// session stands in for the test that a lab usually belongs to.
type session struct {
	log func(string)

	mu       sync.Mutex // guards what follows
	failed   bool
	cleanups []func()
}

// failure is what Fatal throws, as runtime.Goexit ends a test.
type failure struct{ text string }

func (s *session) Helper() {}

func (s *session) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *session) Logf(format string, args ...any) { s.log(fmt.Sprintf(format, args...)) }

func (s *session) Fatal(args ...any) {
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	panic(failure{fmt.Sprint(args...)})
}

func (s *session) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }
func (s *session) Skipf(format string, args ...any)  { s.Fatal(fmt.Sprintf(format, args...)) }

func (s *session) Cleanup(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, fn)
}

// run calls fn and then the clean-ups, the last first. The error is the one that
// fn returned or died of.
func (s *session) run(fn func() error) (err error) {
	defer func() {
		for _, cleanup := range slices.Backward(s.cleanups) {
			cleanup()
		}
	}()
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		f, ours := r.(failure)
		if !ours {
			panic(r)
		}
		err = errors.New(f.text)
	}()
	return fn()
}
