// Package faults has one fault for each thing that vet is to find, named at the end of its line.
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1" // want importnames
)

type Undocumented struct{} // want documented

func (Undocumented) Method() {} // want documented

// A comment that begins otherwise.
func Commented() {} // want-1 ST1020

func nobody() {} // want unused

// Verdict is what became of a packet.
type Verdict int

// The verdicts.
const (
	Pass Verdict = iota
	Drop
)

// Switch misses a verdict.
func Switch(v Verdict) string {
	switch v { // want exhaustive
	case Pass:
		return "pass"
	default:
		return ""
	}
}

// Names misses a verdict.
var Names = map[Verdict]string{Pass: "pass"} // want exhaustive

// Compare compares errors that may be wrapped.
func Compare(err error) bool {
	return err == io.EOF // want errorlint
}

// Ignored says why.
func Ignored(err error) bool {
	//lint:ignore errorlint nothing wraps it here
	return err == io.EOF
}

// Needless ignores what is not there.
func Needless(err error) bool {
	//lint:ignore errorlint nothing wraps it here // want errorlint
	return errors.Is(err, io.EOF)
}

// Unexplained does not say why.
func Unexplained(err error) bool {
	//lint:ignore errorlint
	return err == io.EOF // want-1 say
}

// Log says something new each time.
func Log(ctx context.Context, name string) {
	slog.InfoContext(ctx, fmt.Sprintf("hello %s", name))                // want sloglint
	slog.InfoContext(ctx, "hello", "name")                              // want slog
	slog.InfoContext(ctx, "hello", slog.String("a", "b"), "name", name) // want sloglint
}

// Assign assigns what nobody reads.
func Assign() int {
	n := 1 // want ineffassign
	n = 2
	return n
}

// Print has a verb for another type.
func Print(name string) {
	fmt.Printf("%d\n", name) // want printf
}

// Lock copies a lock.
func Lock(mu sync.Mutex) { // want copylocks
}

// Trim cuts letters where it means a prefix.
func Trim(s string) string {
	return strings.TrimLeft(s, "http://") // want SA1024
}

// Simple says a little too much.
func Simple(done bool) bool {
	return done == true // want S1002
}

// Deprecated uses what a dependency gave up.
func Deprecated(v1.Old) {} // want SA1019

// Fail begins a message with a capital.
func Fail() error {
	return errors.New("Something is wrong") // want ST1005
}
