package console

import "strings"

const (
	// gap is between columns, as in kubectl's tables, and narrowGap where that is
	// too much.
	gap       = 3
	narrowGap = 2
	// narrowest is the width below which a column is not squeezed: a table of
	// narrower columns is harder to read than records.
	narrowest = 10
	// prose is the width that sentences keep until words of other columns have to
	// be broken.
	prose = 20
)

// Table appends a table. It looks like kubectl's where there is room; in a
// narrow window cells wrap, in a very narrow one each row becomes a record of
// lines. Nothing is cut: what is shown can be copied.
func (p *Page) Table(header []string, rows [][]string) {
	p.parts = append(p.parts, func(l layout) [][]glyph {
		t := table{header: header, rows: rows}
		widths, gap, ok := t.squeeze(l.columns)
		if !ok {
			return t.records(l.columns)
		}
		var lines [][]glyph
		strong := make([]string, len(header))
		for i, h := range header {
			strong[i] = Strong(h)
		}
		for _, row := range append([][]string{strong}, rows...) {
			lines = append(lines, t.row(row, widths, gap)...)
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

// widths returns how wide column i would like to be, and how wide it must be for
// no word of it to be broken.
func (t table) widths(i int) (natural, unbroken int) {
	natural, unbroken = width(glyphs(t.header[i])), longestWord(t.header[i])
	for _, row := range t.rows {
		for _, line := range cell(row, i, 0) {
			natural = max(natural, width(line))
			unbroken = max(unbroken, longestWord(render(line, false)))
		}
	}
	return natural, unbroken
}

// squeeze returns the width of each column, and the gap between them, so that the
// table fits: it takes from the widest first, and breaks words only if it must. It
// reports false where that makes no sense.
func (t table) squeeze(columns int) (widths []int, between int, ok bool) {
	n := len(t.header)
	widths = make([]int, n)
	words, least := make([]int, n), make([]int, n)
	total := gap * (n - 1)
	for i := range t.header {
		widths[i], words[i] = t.widths(i)
		least[i] = min(widths[i], max(narrowest, longestWord(t.header[i])))
		words[i] = max(words[i], least[i], min(widths[i], prose))
		total += widths[i]
	}
	if columns < 1 || total <= columns {
		return widths, gap, true
	}
	total -= (gap - narrowGap) * (n - 1)
	for _, limit := range [][]int{words, least} {
		for total > columns {
			i := widest(widths, limit)
			if i < 0 {
				break
			}
			widths[i]--
			total--
		}
	}
	return widths, narrowGap, total <= columns
}

// widest is the index of the widest column that is above its limit, -1 if none is.
func widest(widths, limit []int) int {
	found := -1
	for i := range widths {
		if widths[i] > limit[i] && (found < 0 || widths[i] > widths[found]) {
			found = i
		}
	}
	return found
}

func longestWord(s string) int {
	n := 0
	for word := range strings.FieldsSeq(s) {
		n = max(n, width(glyphs(word)))
	}
	return n
}

// row lays out one row, which has as many lines as its highest cell.
func (t table) row(row []string, widths []int, gap int) [][]glyph {
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
