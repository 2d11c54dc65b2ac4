package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
)

// status asks the running agent and prints its answer. Where none runs, the
// kernel still works by what it made, so that is shown, and the error says that
// nobody looks after it.
func status(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := program.ParseStatusFlags(args, stdout, statusHead, statusTail, daemon.WholeLists)
	if err != nil {
		return err
	}
	err = daemon.ShowStatus(ctx, program, o, stdout, writeStatus)
	if !errors.As(err, new(daemon.NoAnswerError)) {
		return err
	}
	r, readErr := readLeft()
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if o.JSON {
		readErr = daemon.WriteJSON(stdout, r)
	} else {
		readErr = writeStatus(stdout, r, o.All)
	}
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	return noAnswer(err, r)
}

// noAnswer adds to the error what is known of the agent that does not answer.
func noAnswer(err error, r report) error {
	switch {
	case r.Elsewhere:
		return fmt.Errorf("%w\nOne does run in this network namespace. Ask as its user, with the --admin-socket that its log names; in a cluster: kubectl -n liqo-fabric exec POD -- fabric status", err)
	case r.empty():
		return err
	}
	return fmt.Errorf("%w\nAbove is what the kernel holds. Start fabric to have it looked after, or remove it: fabric cleanup", err)
}

// readLeft reads what the kernel holds without asking an agent.
func readLeft() (report, error) {
	h, err := hostnet.OpenReadOnly()
	if err != nil {
		return report{}, err
	}
	defer h.Close()
	state, err := fabric.ReadState(h)
	return report{Version: daemon.Version(version), Elsewhere: agentRuns(), Time: time.Now(), State: state}, err
}

// agentRuns tells whether an agent runs in this network namespace.
func agentRuns() bool {
	conn, err := net.Dial("unixgram", hostnet.Lock)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
