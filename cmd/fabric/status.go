package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-net/sluice/cmd/daemon"
	"github.com/sluice-net/sluice/controlplane/fabric"
	"github.com/sluice-net/sluice/controlplane/hostnet"
)

// status asks the running agent and prints its answer. Where none runs, the
// kernel still works by what it made, so that is shown, and the error says that
// nobody looks after it.
func status(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := program.ParseStatusFlags(args, stdout, statusHead, statusTail)
	if err != nil {
		return err
	}
	err = daemon.ShowStatus(ctx, program, o, stdout, writeStatus)
	if !errors.As(err, new(daemon.NoAnswerError)) {
		return err
	}
	if leftErr := showLeft(o, stdout); leftErr != nil {
		return errors.Join(err, leftErr)
	}
	return fmt.Errorf("%w\nAbove is what the kernel holds. Start fabric to have it looked after, or remove it: fabric cleanup", err)
}

// showLeft prints what an agent that does not run any more has left.
func showLeft(o daemon.StatusOptions, stdout io.Writer) error {
	h, err := hostnet.OpenReadOnly()
	if err != nil {
		return err
	}
	defer h.Close()
	state, err := fabric.ReadState(h)
	if err != nil {
		return err
	}
	r := report{Version: daemon.Version(version), Time: time.Now(), State: state}
	if o.JSON {
		return daemon.WriteJSON(stdout, r)
	}
	return writeStatus(stdout, r, o.All)
}
