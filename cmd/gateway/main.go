// Command gateway carries the traffic of one peering between two clusters.
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
// the two seconds that are promised.
const stopWithin = 1800 * time.Millisecond

func main() {
	// A second signal has no effect: the end is near, and the status that is
	// written last must not be skipped.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, func() {
		time.AfterFunc(stopWithin, func() {
			fmt.Fprintln(os.Stderr, "gateway: did not stop in time, ending now")
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
		fmt.Fprintf(stderr, "gateway: %v\nTry 'gateway --help'.\n", err)
	default:
		fmt.Fprintf(stderr, "gateway: %v\n", err)
	}
	return 1
}

// dispatch runs the command that the arguments name.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "status":
			o, err := parseStatusFlags(args[1:], stdout)
			if err != nil {
				return err
			}
			return showStatus(ctx, o, stdout)
		case "help", "version": // as words, which many programs take
			args = append([]string{"--" + args[0]}, args[1:]...)
		}
	}
	o, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Fprintln(stdout, versionLine())
		return nil
	}
	useProcessors()
	return serve(ctx, o, newLogger(stderr, o))
}
