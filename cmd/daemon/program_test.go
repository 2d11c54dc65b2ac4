package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestVersion(t *testing.T) {
	if Version("") == "" {
		t.Error("a build without a version has none")
	}
	if got := gateway.VersionLine("v1.2.3-4-gabc"); !strings.HasPrefix(got, "sluice gateway v1.2.3-4-gabc (go") {
		t.Errorf("got %q", got)
	}
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"success", nil, 0, ""},
		{"help", pflag.ErrHelp, 0, ""},
		{"a mistake on the command line", fmt.Errorf("status: %w", Usagef("--x: %q", "y")), 1, "gateway: status: --x: \"y\"\nTry 'gateway --help'.\n"},
		{"a failure", errors.New("broken"), 1, "gateway: broken\n"},
	} {
		var errs bytes.Buffer
		if code := gateway.ExitCode(tt.err, &errs); code != tt.code || errs.String() != tt.text {
			t.Errorf("%s: %d, %q", tt.name, code, &errs)
		}
	}
}

func TestGroup(t *testing.T) {
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	broken := errors.New("broken")

	g, ctx := NewGroup(t.Context())
	g.Go("one", waits)
	g.Go("two", func(context.Context) error { return broken })
	if err := g.Wait(); !errors.Is(err, broken) || err.Error() != "two: broken" || ctx.Err() == nil {
		t.Errorf("a part that fails ends all: %v", err)
	}

	parent, cancel := context.WithCancel(t.Context())
	g, _ = NewGroup(parent)
	g.Go("one", waits)
	cancel()
	if err := g.Wait(); err != nil {
		t.Errorf("told to end: %v", err)
	}
}
