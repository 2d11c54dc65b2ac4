package console

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// screen is a terminal that remembers what it shows, as lines without regard to
// where the window wraps them: a window that changes its width wraps them anew
// and keeps the cursor at its character, as terminals do.
type screen struct {
	tb testing.TB

	mu      sync.Mutex
	columns int
	rows    int
	lines   [][]rune // a wide character is followed by a 0
	line    int      // of the cursor
	off     int      // of the cursor in its line
	noWrap  bool     // what is too long is written over the last column
	widest  int      // the longest line that was ever drawn, since the last reset
}

func newScreen(tb testing.TB, columns, rows int) *screen {
	return &screen{tb: tb, columns: columns, rows: rows, lines: [][]rune{nil}}
}

// stream is the screen as a console writes to it.
func (s *screen) stream(colours bool) *stream {
	return &stream{Writer: s, colours: colours, size: func() (int, int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.columns, s.rows
	}}
}

func (s *screen) resize(columns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.columns = columns
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text := string(b); len(text) > 0; {
		if sequence, rest := cutEscape(text); sequence != "" {
			s.escape(sequence)
			text = rest
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch r {
		case '\n': // the terminal's driver adds the return
			if s.line++; s.line == len(s.lines) {
				s.lines = append(s.lines, nil)
			}
			s.off = 0
		case '\r':
			if s.off > 0 && s.off%s.columns == 0 { // at the edge
				s.off--
			}
			s.off -= s.off % s.columns
		default:
			s.put(r)
		}
	}
	return len(b), nil
}

func (s *screen) put(r rune) {
	if r < ' ' || r == 0x7f {
		s.tb.Errorf("the control character %#x reached the terminal", r)
	}
	cells := []rune{r}
	if runeWidths.RuneWidth(r) == 2 {
		cells = append(cells, 0)
	}
	line := s.lines[s.line]
	if s.noWrap && s.off%s.columns == 0 && s.off > 0 || s.noWrap && s.off%s.columns+len(cells) > s.columns {
		s.off = (s.off-1)/s.columns*s.columns + s.columns - len(cells)
	}
	for len(line) < s.off+len(cells) {
		line = append(line, ' ')
	}
	copy(line[s.off:], cells)
	s.lines[s.line] = line
	s.off += len(cells)
	s.widest = max(s.widest, len(line))
}

func (s *screen) escape(sequence string) {
	switch {
	case isTone(sequence), strings.HasSuffix(sequence, "m"):
	case sequence == wrapOff, sequence == wrapOn:
		s.noWrap = sequence == wrapOff
	case sequence == "\x1b[K":
		s.lines[s.line] = s.lines[s.line][:min(s.off, len(s.lines[s.line]))]
	case sequence == "\x1b[J":
		s.lines[s.line] = s.lines[s.line][:min(s.off, len(s.lines[s.line]))]
		s.lines = s.lines[:s.line+1]
	case strings.HasSuffix(sequence, "A"):
		n, err := strconv.Atoi(sequence[2 : len(sequence)-1])
		if err != nil || s.off%s.columns != 0 {
			s.tb.Errorf("the cursor is moved up by %q from column %d", sequence, s.off%s.columns)
		}
		for range n {
			s.up()
		}
	default:
		s.tb.Errorf("the escape sequence %q reached the terminal", sequence)
	}
}

// up moves the cursor, which is in the first column, up by one row of the window.
func (s *screen) up() {
	if s.off >= s.columns {
		s.off -= s.columns
		return
	}
	if s.line > 0 {
		s.line--
		s.off = max(len(s.lines[s.line])-1, 0) / s.columns * s.columns
	}
}

// text is what is on the screen, without spaces at the ends of lines and empty
// lines at its end.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, line := range s.lines {
		fmt.Fprintln(&b, strings.TrimRight(strings.ReplaceAll(string(line), "\x00", ""), " "))
	}
	if text := strings.TrimRight(b.String(), "\n"); text != "" {
		return text + "\n"
	}
	return ""
}
