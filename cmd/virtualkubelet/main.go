// Command virtualkubelet keeps the virtual nodes that stand for one other cluster, and runs the pods on them there.
package main

import (
	"context"
	"io"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

// program is what the command is called.
const program daemon.Program = "virtualkubelet"

// version is set by the linker: see the Makefile.
var version string

func main() { program.Main(run) }

// run is main with its surroundings as arguments. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return program.ExitCode(dispatch(ctx, args, stdout, stderr), stderr)
}

// dispatch runs the command that the arguments name.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "status":
			return status(ctx, args[1:], stdout)
		case "metrics":
			return program.MetricsCommand(ctx, args[1:], stdout, metricsAddress)
		}
	}
	args = daemon.Words(args)
	if err := daemon.NoCommand(args, "status", "metrics"); err != nil {
		return err
	}
	o, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	return serve(ctx, o, o.log.New(stderr, nil))
}
