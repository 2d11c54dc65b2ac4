package console

import (
	"strings"
)

// Page is what a command shows. It is laid out when it is shown, so it fits
// whatever the width of the window is then.
type Page struct {
	parts []part
}

// part lays itself out.
type part func(l layout) [][]glyph

// layout is what parts must fit into.
type layout struct {
	columns int // 0: no limit
	ascii   bool
}

// Line appends lines of text.
func (p *Page) Line(text string) {
	p.parts = append(p.parts, func(l layout) [][]glyph {
		var lines [][]glyph
		for line := range strings.SplitSeq(text, "\n") {
			lines = append(lines, wrap(glyphs(line), l.columns)...)
		}
		return lines
	})
}

// Heading appends a line that stands out.
func (p *Page) Heading(text string) { p.Line(Strong(text)) }

// lines lays the page out.
func (p *Page) lines(l layout) [][]glyph {
	var lines [][]glyph
	for _, part := range p.parts {
		lines = append(lines, part(l)...)
	}
	return lines
}

// Fold breaks paragraphs, which blank lines separate, into lines of at most so
// many columns. Lines that begin with a space stay as they are.
func Fold(text string, columns int) string {
	var b strings.Builder
	paragraph := ""
	flush := func() {
		if paragraph == "" {
			return
		}
		for _, line := range wrap(glyphs(paragraph), columns) {
			b.WriteString(render(line, false) + "\n")
		}
		paragraph = ""
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, " "):
			flush()
			b.WriteString(line + "\n")
		case paragraph == "":
			paragraph = line
		default:
			paragraph += " " + line
		}
	}
	flush()
	return strings.TrimRight(b.String(), "\n")
}
