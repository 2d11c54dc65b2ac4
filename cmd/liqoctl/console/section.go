package console

import "strings"

const (
	// boxWidth is how wide boxes are where the window allows it.
	boxWidth = 80
	// indent is how far a section stands below its title.
	indent = 2
	// narrowValue is the width below which a value goes below its key.
	narrowValue = 12
)

// Section is a list of keys with values, of lines, and of titles with Sections
// below them.
type Section struct {
	items []item
}

// item is an entry, a line of text where key is empty, or a section where sub is
// not nil.
type item struct {
	key    string
	values []string
	sub    *Section
}

// Entry appends a key with its value. Several values stand one below the other.
func (s *Section) Entry(key string, values ...string) {
	s.items = append(s.items, item{key: key, values: values})
}

// Text appends a line.
func (s *Section) Text(line string) { s.items = append(s.items, item{values: []string{line}}) }

// Sub appends a title and returns the Section below it.
func (s *Section) Sub(title string) *Section {
	sub := &Section{}
	s.items = append(s.items, item{key: title, sub: sub})
	return sub
}

// lines lays out the section. The values of entries that follow each other are
// aligned.
func (s *Section) lines(columns int) [][]glyph {
	var lines [][]glyph
	for n, i := range s.items {
		switch {
		case i.sub != nil:
			lines = append(lines, wrap(glyphs(Strong(i.key)), columns)...)
			for _, line := range i.sub.lines(max(columns-indent, 0)) {
				lines = append(lines, append(pad(nil, indent), line...))
			}
		case i.key == "":
			lines = append(lines, cell(i.values, 0, columns)...)
		default:
			lines = append(lines, i.entry(s.column(n), columns)...)
		}
	}
	return lines
}

// column is where the values of the entries around item n begin.
func (s *Section) column(n int) int {
	entry := func(i item) bool { return i.sub == nil && i.key != "" }
	first, last := n, n
	for first > 0 && entry(s.items[first-1]) {
		first--
	}
	for last < len(s.items)-1 && entry(s.items[last+1]) {
		last++
	}
	column := 0
	for _, i := range s.items[first : last+1] {
		column = max(column, width(glyphs(i.key))+2)
	}
	return column
}

func (i item) entry(column, columns int) [][]glyph {
	below := columns > 0 && columns-column < narrowValue
	if below {
		column = indent
	}
	room := 0
	if columns > 0 {
		room = max(columns-column, 1)
	}
	var values [][]glyph
	for n := range i.values {
		values = append(values, cell(i.values, n, room)...)
	}
	if below {
		return append(wrap(glyphs(i.key+":"), columns), keyed("", values, column)...)
	}
	return keyed(i.key+":", values, column)
}

// Section appends a section.
func (p *Page) Section(s *Section) {
	p.parts = append(p.parts, func(l layout) [][]glyph { return s.lines(l.columns) })
}

// Box appends a section with a frame around it and a title in the frame.
func (p *Page) Box(title string, s *Section) {
	p.parts = append(p.parts, func(l layout) [][]glyph {
		columns := boxWidth
		if l.columns > 0 {
			columns = min(columns, l.columns)
		}
		if columns < 2*narrowValue { // a frame would take more than it gives
			return append(wrap(glyphs(Strong(title)), l.columns), s.lines(l.columns)...)
		}
		return frame(title, s.lines(columns-4), columns, l.ascii)
	})
}

func frame(title string, inside [][]glyph, columns int, ascii bool) [][]glyph {
	corners, horizontal, vertical := [4]string{"┌", "┐", "└", "┘"}, "─", "│"
	if ascii {
		corners, horizontal, vertical = [4]string{"+", "+", "+", "+"}, "-", "|"
	}
	head := append(glyphs(corners[0]+horizontal+" "), fit(glyphs(Strong(title)), columns-6, ascii)...)
	head = append(head, glyphs(" ")...)
	head = append(head, glyphs(strings.Repeat(horizontal, max(columns-1-width(head), 0))+corners[1])...)
	lines := [][]glyph{head}
	for _, line := range inside {
		line = append(glyphs(vertical+" "), pad(line, columns-4)...)
		lines = append(lines, append(line, glyphs(" "+vertical)...))
	}
	return append(lines, glyphs(corners[2]+strings.Repeat(horizontal, columns-2)+corners[3]))
}
