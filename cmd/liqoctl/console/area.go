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
	lines   func(columns, rows int) []string
	drawn   []string
	columns int  // of the window when it was drawn
	open    bool // somebody wrote a line without its end: nothing is drawn below it
}

const (
	eraseLine  = "\r\x1b[K"
	eraseBelow = "\r\x1b[J"
	// A window may have become narrower without our knowing yet. Lines that are
	// too long for it must not wrap, or the way back would be longer.
	wrapOff, wrapOn = "\x1b[?7l", "\x1b[?7h"
)

// set says what the area shall show from the next drawing on.
func (a *area) set(s *stream, lines func(columns, rows int) []string) {
	if a.stream != s && len(a.drawn) > 0 {
		_, _ = io.WriteString(a.stream, a.erasing())
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

// erasing is what takes away what is drawn: line by line, as tmux takes a screen
// that is erased from its first line on for one that is to be remembered.
func (a *area) erasing() string {
	switch columns, _ := a.size(); {
	case len(a.drawn) == 0:
		return ""
	case columns != a.columns: // nobody knows how many lines there are now
		return eraseBelow
	}
	return eraseLine + strings.Repeat("\n"+eraseLine, len(a.drawn)-1) + up(len(a.drawn)-1)
}

// drawing draws the lines and brings the cursor back.
func (a *area) drawing() string {
	a.drawn = nil
	if a.open || a.lines == nil {
		return ""
	}
	var rows int
	a.columns, rows = a.size()
	if a.drawn = a.lines(a.columns, rows); len(a.drawn) == 0 {
		return ""
	}
	return wrapOff + strings.Join(a.drawn, "\n") + wrapOn + "\r" + up(len(a.drawn)-1)
}

func (a *area) size() (columns, rows int) {
	if a.stream == nil || !a.stream.terminal() {
		return 0, 0
	}
	return a.stream.size()
}

// up moves the cursor up.
func up(n int) string {
	if n < 1 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA", n)
}
