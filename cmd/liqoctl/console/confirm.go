package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// ErrAborted is what Confirm returns when the user does not want to go on.
var ErrAborted = errors.New("action aborted")

// Confirm asks whether a command that may destroy something shall go on, and says
// before what it will destroy, a line each. The
// error is ErrAborted if not, and says what to do where nobody can answer.
func (c *Console) Confirm(ctx context.Context, command string, what []string) error {
	return c.Ask(ctx, command, append(slices.Clip(what), command+" is a potentially destructive command."))
}

// Ask is Confirm for a command that destroys nothing.
func (c *Console) Ask(ctx context.Context, command string, what []string) error {
	c.mu.Lock()
	var lines strings.Builder
	for _, l := range what {
		lines.WriteString(l + "\n")
	}
	_ = c.area.write(c.errOut, lines.String()+"Are you sure you want to continue? [y/N]")
	c.mu.Unlock()
	answer, err := c.answer(ctx)
	if err != nil || !c.typed() {
		// The cursor still stands behind the question: nobody has pressed Return.
		c.mu.Lock()
		_ = c.area.write(c.errOut, "\n")
		c.mu.Unlock()
	}
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s asks for confirmation, and there is no answer on stdin: answer y, or run it again with --skip-confirm", command)
	case err != nil:
		return ErrAborted
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return ErrAborted
	}
	return nil
}

// answer reads a line. Whoever interrupts us meanwhile leaves the reading behind:
// a terminal's read cannot be called back, and the program ends.
func (c *Console) answer(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(c.in).ReadString('\n')
		if line != "" {
			err = nil // a last line without its end
		}
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-read:
		return r.line, r.err
	}
}

// typed tells whether a terminal has shown the answer.
func (c *Console) typed() bool {
	f, ok := c.in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
