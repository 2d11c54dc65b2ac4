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
	stream *stream // where it is
	// lines are what it shall show in a window of this size, each of fewer columns
	// than there are. Nil: nothing.
	lines func(columns, rows int) []string
	drawn []string
	open  bool // somebody wrote a line without its end: nothing is drawn below it
}

const eraseBelow = "\r\x1b[J"

// set says what the area shall show from the next drawing on.
func (a *area) set(s *stream, lines func(columns, rows int) []string) {
	if a.stream != s && len(a.drawn) > 0 {
		_, _ = io.WriteString(a.stream, eraseBelow)
		a.drawn = nil
	}
	a.stream, a.lines = s, lines
}

// draw draws the area, unless it is as it shall be: what is not written again can
// be selected and copied.
func (a *area) draw() {
	before := a.drawn
	erase := a.erasing()
	if text := a.drawing(); !slices.Equal(a.drawn, before) {
		_, _ = io.WriteString(a.stream, erase+text)
	}
}

// write writes lines that stay, above the area.
func (a *area) write(s *stream, text string) error {
	if text == "" {
		return nil
	}
	if a.stream != s && !s.terminal() { // another place
		_, err := io.WriteString(s, text)
		return err
	}
	erase := a.erasing()
	a.open = !strings.HasSuffix(text, "\n")
	after := a.drawing()
	if a.stream == s || erase+after == "" {
		_, err := io.WriteString(s, erase+text+after)
		return err
	}
	_, _ = io.WriteString(a.stream, erase)
	_, err := io.WriteString(s, text)
	_, _ = io.WriteString(a.stream, after)
	return err
}

// erasing is what takes away what is drawn.
func (a *area) erasing() string {
	if len(a.drawn) == 0 {
		return ""
	}
	return eraseBelow
}

// drawing draws the lines and brings the cursor back.
func (a *area) drawing() string {
	a.drawn = nil
	if a.open || a.lines == nil {
		return ""
	}
	if a.drawn = a.lines(a.stream.size()); len(a.drawn) == 0 {
		return ""
	}
	text := strings.Join(a.drawn, "\n") + "\r"
	if up := len(a.drawn) - 1; up > 0 {
		text += fmt.Sprintf("\x1b[%dA", up)
	}
	return text
}
