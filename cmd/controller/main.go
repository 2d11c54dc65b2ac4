// Command controller runs the control plane of the network between clusters:
// every kind of networking.liqo.io and ipam.liqo.io.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// stopWithin bounds the time between a signal and the end of the process, below
// the two seconds that are promised. An API server that does not answer must not
// hold up the end.
const stopWithin = 1800 * time.Millisecond

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, func() {
		time.AfterFunc(stopWithin, func() {
			fmt.Fprintln(os.Stderr, "controller: did not stop in time, ending now")
			os.Exit(1)
		})
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case errors.As(err, new(usageError)):
		fmt.Fprintf(stderr, "controller: %v\nTry 'controller --help'.\n", err)
	default:
		fmt.Fprintf(stderr, "controller: %v\n", err)
	}
	return 1
}

// dispatch runs what the arguments say.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && (args[0] == "help" || args[0] == "version") { // as words, which many programs take
		args = append([]string{"--" + args[0]}, args[1:]...)
	}
	o, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Fprintln(stdout, versionLine())
		return nil
	}
	return serve(ctx, o, newLogger(stderr, o))
}
