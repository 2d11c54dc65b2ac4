package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
)

func TestVersion(t *testing.T) {
	if Version("") == "" {
		t.Error("a build without a version has none")
	}
	if got := gateway.versionLine("v1.2.3-4-gabc"); !strings.HasPrefix(got, "sluice gateway v1.2.3-4-gabc (go") {
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

func TestNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const notice = 20 * time.Second
		for _, tt := range []struct {
			name    string
			signals []os.Signal // a second after each other
			noticed bool
			ends    time.Duration
		}{
			{"SIGINT", []os.Signal{syscall.SIGINT}, false, 0},
			{"SIGTERM", []os.Signal{syscall.SIGTERM}, true, notice},
			{"twice", []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, true, time.Second},
		} {
			signals := make(chan os.Signal)
			ctx := withNotice(t.Context(), signals, notice)
			began := time.Now()
			for _, s := range tt.signals {
				signals <- s
				synctest.Wait()
				select {
				case <-Noticed(ctx):
					if !tt.noticed {
						t.Errorf("%s: there is a notice", tt.name)
					}
				default:
					if tt.noticed {
						t.Errorf("%s: there is no notice", tt.name)
					}
				}
				if len(tt.signals) > 1 {
					time.Sleep(time.Second)
				}
			}
			<-ctx.Done()
			if took := time.Since(began); took < tt.ends || took > tt.ends+time.Second {
				t.Errorf("%s: ends after %v, want %v", tt.name, took, tt.ends)
			}
		}
	})
	if Noticed(t.Context()) != nil {
		t.Error("a notice where there never is one")
	}
}
