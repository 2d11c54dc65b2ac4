package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/controlplane/progress"
)

// Console is where a command speaks to its user.
type Console struct {
	in          io.Reader
	out, errOut io.Writer
	verbose     bool
}

// New builds a Console.
func New(in io.Reader, out, errOut io.Writer) *Console {
	return &Console{in: in, out: out, errOut: errOut}
}

// AddFlags adds the flags that change what is shown.
func (c *Console) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVarP(&c.verbose, "verbose", "v", false, "show more")
}

// Progress shows what work tells: lines on stderr, and while it waits, on a
// terminal, a spinner with the elapsed time.
func (c *Console) Progress() progress.Func {
	return func(e progress.Event) {
		fmt.Fprintln(c.errOut, " INFO  ", prefix(e.Cluster)+e.Text)
	}
}

func prefix(cluster string) string {
	if cluster == "" {
		return ""
	}
	return "(" + cluster + ") "
}

// Info writes a line to stderr.
func (c *Console) Info(text string) { fmt.Fprintln(c.errOut, " INFO  ", text) }

// Warn writes a line to stderr.
func (c *Console) Warn(text string) { fmt.Fprintln(c.errOut, " WARN  ", text) }

// Error writes an error to stderr, the last thing before the end.
func (c *Console) Error(err error) { fmt.Fprintln(c.errOut, " ERRO  ", err) }

// ErrAborted is what Confirm returns when the user does not want to go on.
var ErrAborted = errors.New("action aborted")

// Confirm asks whether a command that may destroy something shall go on. The
// error is ErrAborted if not.
func (c *Console) Confirm(_ context.Context, command string) error {
	fmt.Fprintf(c.errOut, "%s is a potentially destructive command.\nAre you sure you want to continue? [y/N]", command)
	var answer string
	if _, err := fmt.Fscanln(c.in, &answer); err != nil && !errors.Is(err, io.EOF) {
		return ErrAborted
	}
	if a := strings.ToLower(answer); a != "y" && a != "yes" {
		return ErrAborted
	}
	return nil
}
