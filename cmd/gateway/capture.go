package main

import (
	"context"
	"errors"
	"io"
)

// captureCommand is "gateway capture".
func captureCommand(_ context.Context, _ []string, _, _ io.Writer) error {
	return errors.New("capture: not yet")
}
