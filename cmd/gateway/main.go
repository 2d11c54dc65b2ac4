// Command gateway carries the traffic of one peering between two clusters.
package main

import (
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

// program is what the gateway is called.
const program daemon.Program = "gateway"

// version is set by the linker: see the Makefile.
var version string

// handOverWithin is how long a gateway that leads goes on after SIGTERM when no
// other replica takes over. A pod has 30 seconds to end.
const handOverWithin = 20 * time.Second

func main() {
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		program.Main(run) // nobody could take over from it
		return
	}
	daemon.SmallPages()
	program.MainWithNotice(handOverWithin, run)
}

// run is main with its surroundings as arguments. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return program.ExitCode(dispatch(ctx, args, stdout, stderr), stderr)
}

// commands are what the gateway does besides being one: they ask one that runs.
var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) error{
	"capture": captureCommand,
	"drops":   dropsCommand,
	"filter":  filterCommand,
	"metrics": metricsCommand,
	"probe":   probeCommand,
	"status":  statusCommand,
}

// dispatch runs the command that the arguments name.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:], stdout, stderr)
	}
	args = daemon.Words(args)
	if err := daemon.NoCommand(args, slices.Sorted(maps.Keys(commands))...); err != nil {
		return err
	}
	o, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	daemon.UseProcessors(processors)
	return serve(ctx, o, o.log.New(stderr, nil))
}

// statusCommand is "gateway status".
func statusCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o, err := program.ParseStatusFlags(args, stdout, statusHead, statusTail, daemon.WholeLists)
	if err != nil {
		return err
	}
	return daemon.ShowStatus(ctx, program, o, stdout, writeStatus)
}

// metricsCommand is "gateway metrics".
func metricsCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	return program.MetricsCommand(ctx, args, stdout, metricsAddress)
}
