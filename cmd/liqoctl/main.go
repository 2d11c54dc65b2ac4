// Command liqoctl connects clusters, shows how they are connected, and finds out
// why they are not.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Set by the linker: see the Makefile.
var (
	version  string
	registry string // what the names of the images of this build begin with
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first Ctrl-C asks the command to come to an end; from then on the next
	// one kills.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with its surroundings as arguments. It returns the exit code: 0,
// or 1 for a mistake or a failure, whose reason is on stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := newApp(args[0], stdin, stdout, stderr)
	defer a.console.Close()
	root := rootCommand(a)
	root.SetArgs(arguments(args))
	root.SetIn(stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.console.ErrOut())
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.misspelt
	}
	if err != nil {
		a.console.Error(a.explain(cmd, err))
		return 1
	}
	return 0
}

// arguments are those of the command line. Under the name by which kubectl asks
// its plug-in for completions they are what the user has typed so far.
func arguments(args []string) []string {
	if programName(args[0]) == kubectlComplete {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}
