// Command controller runs the control plane of the network between clusters:
// every kind of networking.liqo.io and ipam.liqo.io.
package main

import (
	"context"
	"io"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

// program is what the controller is called.
const program daemon.Program = "controller"

// version is set by the linker: see the Makefile.
var version string

func main() { program.Main(run) }

// run is main with its surroundings as arguments. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return program.ExitCode(dispatch(ctx, args, stdout, stderr), stderr)
}

// dispatch runs what the arguments say.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "metrics" {
		return program.MetricsCommand(ctx, args[1:], stdout, metricsAddress)
	}
	args = daemon.Words(args)
	if err := daemon.NoCommand(args, "metrics"); err != nil {
		return err
	}
	o, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	return serve(ctx, o, o.log.New(stderr, shortenEvents))
}
