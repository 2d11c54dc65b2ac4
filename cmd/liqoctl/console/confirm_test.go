package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

const question = "disconnect is a potentially destructive command.\nAre you sure you want to continue? [y/N]\n"

func TestConfirm(t *testing.T) {
	const nobody = "disconnect asks for confirmation, and there is no answer on stdin: answer y, or run it again with --skip-confirm"
	tests := []struct {
		name, in, want string // want: the error
	}{
		{"yes", "yes\n", ""},
		{"y", "y\n", ""},
		{"capitals and spaces", " YES \r\n", ""},
		{"without the end of the line", "y", ""},
		{"no", "no\n", "action aborted"},
		{"just Return", "\n", "action aborted"},
		{"something else", "yesterday\n", "action aborted"},
		{"only the first line counts", "n\ny\n", "action aborted"},
		{"nobody there", "", nobody},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, out, errOut := plain(tt.in)
			got := ""
			if err := c.Confirm(t.Context(), "disconnect", []string{"in rome:", "  GatewayClient n/milan"}); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if errOut.String() != "in rome:\n  GatewayClient n/milan\n"+question {
				t.Errorf("stderr: %q", errOut)
			}
			if out.Len() > 0 {
				t.Errorf("stdout: %q", out)
			}
		})
	}
}

// TestAsk: a command that destroys nothing is not called destructive.
func TestAsk(t *testing.T) {
	c, _, errOut := plain("y\n")
	if err := c.Ask(t.Context(), "cordon", []string{"in rome"}); err != nil || errOut.String() != "in rome\nAre you sure you want to continue? [y/N]\n" {
		t.Errorf("%v, stderr: %q", err, errOut)
	}
}

func TestConfirmInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, hold := io.Pipe()
	defer hold.Close() // ends the reading that is left behind
	c := build(in, &stream{Writer: io.Discard}, &stream{Writer: interrupting{cancel}})
	if err := c.Confirm(ctx, "reset", nil); !errors.Is(err, ErrAborted) {
		t.Errorf("got %v, want %v", err, ErrAborted)
	}
}

// interrupting is a user who presses Ctrl-C at the first question mark.
type interrupting struct{ stop func() }

func (i interrupting) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("?")) {
		i.stop()
	}
	return len(b), nil
}

func TestVerbosity(t *testing.T) {
	tests := []struct {
		args string
		want int
	}{{"", 0}, {"-v", 1}, {"-vv", 2}, {"-v=6", 6}, {"--verbose", 1}, {"--verbose=8", 8}, {"--verbose=true", 1}, {"--verbose=false", 0}, {"-v=11", -1}, {"-v=x", -1}}
	for _, tt := range tests {
		c, _, _ := plain("")
		if err := parse(c, strings.Fields(tt.args)); err != nil {
			if tt.want >= 0 {
				t.Errorf("%s: %v", tt.args, err)
			}
			continue
		}
		if got := c.Verbose(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.args, got, tt.want)
		}
	}
}
