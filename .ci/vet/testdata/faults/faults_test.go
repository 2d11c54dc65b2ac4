package faults

import (
	"io"
	"testing"
)

func used() {}

// A test may ask for the error itself.
func TestCompare(t *testing.T) {
	used()
	if err := error(io.EOF); err != io.EOF {
		t.Error(err)
	}
}
