package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// StopWithin bounds the time between a signal and the end of the process, below
// the two seconds that the commands promise. An API server that does not answer
// must not hold up the end.
const StopWithin = 1800 * time.Millisecond

// Program is the name of a command.
type Program string

// Main runs a command until a signal and ends the process.
func (p Program) Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	// A second signal has no effect: the end is near, and what is written last
	// must not be skipped.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	p.mainUntil(ctx, run)
}

// MainWithNotice is Main for a command that goes on for a while after SIGTERM: the
// context ends notice later, or with a second signal or SIGINT. What is closed at
// once is the channel that Noticed returns.
func (p Program) MainWithNotice(notice time.Duration, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	p.mainUntil(withNotice(context.Background(), signals, notice), run)
}

// noticed is the key of the channel in a context.
type noticed struct{}

// Noticed returns a channel that is closed when the program was told to end but
// has time, and nil where it never has.
func Noticed(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(noticed{}).(chan struct{})
	return c
}

// withNotice is the context of MainWithNotice.
func withNotice(ctx context.Context, signals <-chan os.Signal, notice time.Duration) context.Context {
	given := make(chan struct{})
	ctx, end := context.WithCancel(context.WithValue(ctx, noticed{}, given))
	go func() {
		defer end()
		if s := <-signals; s != syscall.SIGTERM {
			return
		}
		close(given)
		select {
		case <-signals:
		case <-time.After(notice):
		}
	}()
	return ctx
}

// mainUntil runs a command until ctx ends and ends the process.
func (p Program) mainUntil(ctx context.Context, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	context.AfterFunc(ctx, func() {
		time.AfterFunc(StopWithin, func() {
			fmt.Fprintf(os.Stderr, "%s: did not stop in time, ending now\n", p)
			os.Exit(1)
		})
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// UntilEOF returns a context that ends with ctx or when r does. What is read means
// nothing.
func UntilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r) // its end is what counts
		cancel()
	}()
	return ctx
}

// ExitCode reports how a command ended and returns the exit code of the process.
func (p Program) ExitCode(err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case errors.As(err, new(UsageError)):
		fmt.Fprintf(stderr, "%s: %v\nTry '%s --help'.\n", p, err, p)
	default:
		fmt.Fprintf(stderr, "%s: %v\n", p, err)
	}
	return 1
}

// ParseFlags is Parse for the flags of the program itself, which has --version, too. It answers that like --help, and
// with the same error: there is nothing left to do.
func (p Program) ParseFlags(fs *pflag.FlagSet, args []string, stdout io.Writer, head, tail, version string) error {
	asked := fs.Bool("version", false, "print the version and exit")
	if err := Parse(fs, args, stdout, head, tail); err != nil || !*asked {
		return err
	}
	fmt.Fprintln(stdout, p.versionLine(version))
	return pflag.ErrHelp
}

// versionLine names the program and what it was built from. The version is what
// the linker set; it may be empty.
func (p Program) versionLine(version string) string {
	return fmt.Sprintf("sluice %s %s (%s, %s/%s)", p, Version(version), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Version is the version that the linker set, else that of the module, else the
// commit of a build from a work tree.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// UseProcessors sets on how many processors the program computes: what share
// returns for the number of those that it may use, unless GOMAXPROCS says
// otherwise.
func UseProcessors(share func(available int) int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(share(runtime.GOMAXPROCS(0)))
	}
}
