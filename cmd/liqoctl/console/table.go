package console

import "strings"

const (
	// gap is between columns, as in kubectl's tables.
	gap = 3
	// narrowest is the width below which a column is not squeezed: a table of
	// narrower columns is harder to read than records.
	narrowest = 10
)

// Table appends a table. It looks like kubectl's where there is room; in a
// narrow window cells wrap, in a very narrow one each row becomes a record of
// lines. Nothing is cut: what is shown can be copied.
func (p *Page) Table(header []string, rows [][]string) {
	p.parts = append(p.parts, func(l layout) [][]glyph {
		t := table{header: header, rows: rows}
		widths, ok := t.squeeze(l.columns)
		if !ok {
			return t.records(l.columns)
		}
		var lines [][]glyph
		strong := make([]string, len(header))
		for i, h := range header {
			strong[i] = Strong(h)
		}
		for _, row := range append([][]string{strong}, rows...) {
			lines = append(lines, t.row(row, widths)...)
		}
		return lines
	})
}

type table struct {
	header []string
	rows   [][]string
}

// cell returns the lines of a cell, wrapped. A row may lack its last cells.
func cell(row []string, i, columns int) [][]glyph {
	if i >= len(row) {
		return nil
	}
	var lines [][]glyph
	for line := range strings.SplitSeq(row[i], "\n") {
		lines = append(lines, wrap(glyphs(line), columns)...)
	}
	return lines
}

// natural is how wide column i would like to be.
func (t table) natural(i int) int {
	n := width(glyphs(t.header[i]))
	for _, row := range t.rows {
		for _, line := range cell(row, i, 0) {
			n = max(n, width(line))
		}
	}
	return n
}

// squeeze returns the width of each column so that the table fits, taking from
// the widest first. It reports false where that makes no sense.
func (t table) squeeze(columns int) ([]int, bool) {
	widths, least := make([]int, len(t.header)), make([]int, len(t.header))
	total := gap * (len(t.header) - 1)
	for i := range t.header {
		widths[i] = t.natural(i)
		least[i] = min(widths[i], max(narrowest, longestWord(t.header[i])))
		total += widths[i]
	}
	for columns > 0 && total > columns {
		widest := -1
		for i := range widths {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return nil, false
		}
		widths[widest]--
		total--
	}
	return widths, true
}

func longestWord(s string) int {
	n := 0
	for word := range strings.FieldsSeq(s) {
		n = max(n, width(glyphs(word)))
	}
	return n
}

// row lays out one row, which has as many lines as its highest cell.
func (t table) row(row []string, widths []int) [][]glyph {
	cells := make([][][]glyph, len(widths))
	height := 1
	for i := range widths {
		cells[i] = cell(row, i, widths[i])
		height = max(height, len(cells[i]))
	}
	lines := make([][]glyph, height)
	for n := range lines {
		var line []glyph
		column := 0
		for i, w := range widths {
			if n < len(cells[i]) {
				line = append(pad(line, column), cells[i][n]...)
			}
			column += w + gap
		}
		lines[n] = trimRight(line)
	}
	return lines
}

// records lays out each row as lines of header and cell.
func (t table) records(columns int) [][]glyph {
	key := 0
	for _, h := range t.header {
		key = max(key, width(glyphs(h)))
	}
	var lines [][]glyph
	for n, row := range t.rows {
		if n > 0 {
			lines = append(lines, nil)
		}
		for i, h := range t.header {
			lines = append(lines, keyed(Strong(h), cell(row, i, max(columns-key-2, 1)), key+2)...)
		}
	}
	return lines
}

// keyed puts a key in front of the first of some lines, and as much space in
// front of the others.
func keyed(key string, values [][]glyph, column int) [][]glyph {
	if len(values) == 0 {
		values = [][]glyph{nil}
	}
	lines := make([][]glyph, len(values))
	front := glyphs(key)
	for n, value := range values {
		lines[n] = trimRight(append(pad(front, column), value...))
		front = nil
	}
	return lines
}
