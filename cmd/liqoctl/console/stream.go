package console

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// stream is one of the outputs, and what it can show.
type stream struct {
	io.Writer
	// size returns columns and rows of the window. Nil: no terminal, or one that
	// cannot move its cursor.
	size    func() (columns, rows int)
	colours bool
	// ascii: the user's locale says that boxes and spinners of Unicode would be
	// garbage.
	ascii bool
}

// terminal tells whether lines can be redrawn.
func (s *stream) terminal() bool { return s.size != nil }

// width is the number of columns, or 0 where nothing limits them.
func (s *stream) width() int {
	if s.size == nil {
		return 0
	}
	columns, _ := s.size()
	return columns
}

// detect finds out what w can show. Getenv is os.Getenv.
func detect(w io.Writer, getenv func(string) string) *stream {
	s := &stream{Writer: w, ascii: asciiLocale(getenv)}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || getenv("TERM") == "dumb" || !understandsEscapes(f) {
		return s
	}
	s.size = func() (int, int) { return windowSize(f) }
	s.colours = getenv("NO_COLOR") == "" // any value of it means no: no-color.org
	return s
}

func windowSize(f *os.File) (columns, rows int) {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24 // a serial line does not know
	}
	return columns, rows
}

// asciiLocale tells whether the locale rules Unicode out. No locale at all is
// common in containers, whose terminal knows Unicode all the same.
func asciiLocale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return false
}
