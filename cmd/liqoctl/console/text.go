package console

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Tones. A text keeps its tone wherever it is shown, and loses it where there are
// no colours.

// Good is text about what is as it should be.
func Good(text string) string { return tone("32", text) }

// Bad is text about what is wrong.
func Bad(text string) string { return tone("31", text) }

// Caution is text about what may need attention.
func Caution(text string) string { return tone("33", text) }

// Faint is text that most readers skip.
func Faint(text string) string { return tone("2", text) }

// Strong is text to be seen first.
func Strong(text string) string { return tone("1", text) }

func tone(sgr, text string) string {
	if text == "" {
		return ""
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// runeWidths are the same in every locale: characters of ambiguous width, lines of
// boxes among them, take one column.
var runeWidths = &runewidth.Condition{}

// glyph is one character with the marks on it, and its tone as the escape
// sequence that a terminal wants.
type glyph struct {
	text  string
	width int
	tone  string
}

// glyphs reads one line of text. Of escape sequences it keeps the tones; all
// other control characters, and those that reverse the reading order, go.
func glyphs(s string) []glyph {
	var gs []glyph
	current := ""
	for len(s) > 0 {
		if sequence, rest := cutEscape(s); sequence != "" {
			current = nextTone(current, sequence)
			s = rest
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		switch {
		case r == '\t':
			for range 4 {
				gs = append(gs, glyph{" ", 1, current})
			}
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
		case runeWidths.RuneWidth(r) == 0: // a mark on the character before
			if len(gs) > 0 {
				gs[len(gs)-1].text += string(r)
			}
		default:
			gs = append(gs, glyph{string(r), runeWidths.RuneWidth(r), current})
		}
	}
	return gs
}

// cutEscape cuts an escape sequence from the front of s, as ECMA-48 delimits it.
func cutEscape(s string) (sequence, rest string) {
	if !strings.HasPrefix(s, "\x1b") || len(s) == 1 {
		return "", s
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return s[:i+1], s[i+1:]
			}
		}
		return s, ""
	case ']', 'P', '^', '_': // a string, up to BEL or ST
		for i := 2; i < len(s); i++ {
			if s[i] == '\a' {
				return s[:i+1], s[i+1:]
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return s[:i+2], s[i+2:]
			}
		}
		return s, ""
	}
	return s[:2], s[2:]
}

// maxTone bounds what tones within tones add up to.
const maxTone = 32

// nextTone is the tone after an escape sequence.
func nextTone(current, sequence string) string {
	switch {
	case sequence == "\x1b[0m", sequence == "\x1b[m":
		return ""
	case !isTone(sequence), len(current)+len(sequence) > maxTone:
		return current
	}
	return current + sequence
}

func isTone(sequence string) bool {
	if !strings.HasPrefix(sequence, "\x1b[") || !strings.HasSuffix(sequence, "m") {
		return false
	}
	for _, c := range sequence[2 : len(sequence)-1] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func width(gs []glyph) int {
	n := 0
	for _, g := range gs {
		n += g.width
	}
	return n
}

// render is what a stream gets for the glyphs.
func render(gs []glyph, colours bool) string {
	var b strings.Builder
	current := ""
	change := func(to string) {
		if !colours || to == current {
			return
		}
		if current != "" {
			b.WriteString("\x1b[0m")
		}
		b.WriteString(to)
		current = to
	}
	for _, g := range gs {
		change(g.tone)
		b.WriteString(g.text)
	}
	change("")
	return b.String()
}

// fit shortens glyphs to a width and shows by an ellipsis that it did.
func fit(gs []glyph, columns int, ascii bool) []glyph {
	if width(gs) <= columns {
		return gs
	}
	n, used := 0, 1
	for n < len(gs) && used+gs[n].width <= columns {
		used += gs[n].width
		n++
	}
	if columns < 1 {
		return nil
	}
	ellipsis := "…"
	if ascii {
		ellipsis = "~"
	}
	return append(gs[:n:n], glyph{text: ellipsis, width: 1})
}

// wrap breaks a line into lines of at most so many columns: at spaces, else after
// punctuation, else anywhere. What continues a line is indented as the line is.
// Columns below 1 are no limit.
func wrap(gs []glyph, columns int) [][]glyph {
	if columns < 1 || width(gs) <= columns {
		return [][]glyph{gs}
	}
	body := gs
	for len(body) > 0 && body[0].text == " " {
		body = body[1:]
	}
	lead := gs[: len(gs)-len(body) : len(gs)-len(body)]
	if len(lead) > columns/2 || columns-len(lead) < 2 { // a wide character needs two
		lead = nil
	}
	var lines [][]glyph
	for len(body) > 0 {
		n := breakAt(body, columns-len(lead))
		lines = append(lines, append(lead, trimRight(body[:n])...))
		for body = body[n:]; len(body) > 0 && body[0].text == " "; {
			body = body[1:]
		}
	}
	return lines
}

// breakAt returns how many glyphs go on a line of so many columns: at least one.
func breakAt(gs []glyph, columns int) int {
	n, used, space, mark := 0, 0, 0, 0
	for n < len(gs) && used+gs[n].width <= columns {
		used += gs[n].width
		n++
		switch {
		case gs[n-1].text == " ":
			space = n
		case strings.ContainsAny(gs[n-1].text, "-/,;:=."):
			mark = n
		}
	}
	switch {
	case n == len(gs) || gs[n].text == " ":
		return max(n, 1)
	case space > 0:
		return space
	case mark > 0:
		return mark
	}
	return max(n, 1)
}

func trimRight(gs []glyph) []glyph {
	for len(gs) > 0 && gs[len(gs)-1].text == " " {
		gs = gs[:len(gs)-1]
	}
	return gs
}

// pad appends spaces up to a width.
func pad(gs []glyph, columns int) []glyph {
	gs = gs[:len(gs):len(gs)]
	for n := columns - width(gs); n > 0; n-- {
		gs = append(gs, glyph{text: " ", width: 1})
	}
	return gs
}
