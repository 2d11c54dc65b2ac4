package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// area is some lines at the bottom of a terminal that are redrawn in place, while
// other lines are written above it. Between two drawings the cursor rests at its
// first character: a window that is made narrower wraps what is below, and
// erasing from the cursor on still takes all of it.
//
// Each drawing is one write: a terminal shows no half of it.
type area struct {
	stream *stream  // where it was drawn; nil: it never was
	lines  []string // what is drawn, each narrower than the window
	open   bool     // somebody wrote a line without its end: nothing is drawn below it
}

const eraseBelow = "\r\x1b[J"

// show makes lines what is drawn on s. No lines: nothing is.
func (a *area) show(s *stream, lines []string) {
	if !s.terminal() || a.stream == s && slices.Equal(lines, a.lines) {
		return // what is not written again can be selected and copied
	}
	if len(a.lines) > 0 && a.stream != s {
		_, _ = io.WriteString(a.stream, eraseBelow)
	}
	erase := len(a.lines) > 0 && a.stream == s
	a.stream, a.lines = s, lines
	if text := a.drawing(); text != "" || erase {
		if erase {
			text = eraseBelow + text
		}
		_, _ = io.WriteString(s, text)
	}
}

// write writes lines that stay, above the area.
func (a *area) write(s *stream, text string) error {
	if text == "" {
		return nil
	}
	wasOpen := a.open
	a.open = !strings.HasSuffix(text, "\n")
	if len(a.lines) == 0 {
		_, err := io.WriteString(s, text)
		return err
	}
	before, after := "", ""
	if !wasOpen {
		before = eraseBelow
	}
	if !a.open {
		after = a.drawing()
	}
	if a.stream == s {
		_, err := io.WriteString(s, before+text+after)
		return err
	}
	_, _ = io.WriteString(a.stream, before)
	_, err := io.WriteString(s, text)
	_, _ = io.WriteString(a.stream, after)
	return err
}

// drawing draws the lines and brings the cursor back.
func (a *area) drawing() string {
	if a.open || len(a.lines) == 0 {
		return ""
	}
	text := strings.Join(a.lines, "\n") + "\r"
	if up := len(a.lines) - 1; up > 0 {
		text += fmt.Sprintf("\x1b[%dA", up)
	}
	return text
}
