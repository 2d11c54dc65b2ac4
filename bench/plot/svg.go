package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// picture is an SVG file that is being drawn. It follows the reader's choice of light or
// dark. Series differ by colour and by shape.
type picture struct {
	bytes.Buffer
	height int
}

const width = 860

const style = `text{font:13px system-ui,sans-serif;fill:#1a1d21}.small{font-size:11.5px;fill:#56606d}.title{font-size:15px;font-weight:650}` +
	`.ground{fill:#fff}.edge{stroke:#d5dae1}.one{stroke:#1a1d21;stroke-width:1.5}.s0{fill:#b8500a;stroke:#b8500a}.s1{fill:#56606d;stroke:#56606d}` +
	`.s2{fill:#0072b2;stroke:#0072b2}.s3{fill:#00805f;stroke:#00805f}.s4{fill:#a8457f;stroke:#a8457f}.thin{stroke-width:1.5;opacity:.55}.wide{stroke-width:7}.line{fill:none;stroke-width:2}` +
	`.flow{fill:#00805f}.gap{fill:#b3261e}` +
	`@media(prefers-color-scheme:dark){text{fill:#e8ebef}.small{fill:#a5afbc}.ground{fill:#1d2127}.edge{stroke:#39414c}.one{stroke:#e8ebef}` +
	`.s0{fill:#f0914a;stroke:#f0914a}.s1{fill:#a5afbc;stroke:#a5afbc}.s2{fill:#56b4e9;stroke:#56b4e9}.s3{fill:#2fd0a2;stroke:#2fd0a2}.s4{fill:#e795c3;stroke:#e795c3}.flow{fill:#2fd0a2}.gap{fill:#ff8072}}`

// begin draws title and subtitle; both also tell what cannot see the picture.
func begin(height int, title, subtitle string) *picture {
	p := &picture{height: height}
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s: %s">`+"\n<style>%s</style>\n", width, height, html.EscapeString(title), html.EscapeString(subtitle), style)
	fmt.Fprintf(p, `<rect class="ground" width="%d" height="%d" rx="8"/>`+"\n", width, height)
	p.text(16, 26, "title", "start", title)
	p.text(16, 45, "small", "start", subtitle)
	return p
}

func (p *picture) end() []byte {
	p.WriteString("</svg>\n")
	return p.Bytes()
}

func (p *picture) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(text))
}

func (p *picture) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", x1, y1, x2, y2, class)
}

func (p *picture) bar(x, y, w, h float64, class string) {
	fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s"/>`+"\n", x, y, w, h, class)
}

// shade is a bar of silence, the paler the fewer are silent.
func (p *picture) shade(x, y, w, h, share float64) {
	fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="ground"/><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="gap" opacity="%.2f"/>`+"\n", x, y, w, h, x, y, w, h, 0.3+0.7*share)
}

// mark draws a point of a series in its shape.
func (p *picture) mark(series int, x, y float64) {
	shape := []string{"M-5-5h10v10h-10z", "M0-6l6 6l-6 6l-6-6z", "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0z", "M0-6l6 11h-12z", "M0 6l6-11h-12z"}[series]
	fmt.Fprintf(p, `<path d="%s" transform="translate(%.1f %.1f)" class="s%d"/>`+"\n", shape, x, y, series)
}

// path draws a line through points.
func (p *picture) path(series int, points [][2]float64) {
	var d strings.Builder
	for i, at := range points {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], at[0], at[1])
	}
	fmt.Fprintf(p, `<path d="%s" class="s%d line" style="fill:none"/>`+"\n", d.String(), series)
}

// legend names series from left to right.
func (p *picture) legend(y float64, names map[int]string) {
	x := 22.0
	for i := range 5 {
		if name := names[i]; name != "" {
			p.mark(i, x, y-4)
			p.text(x+12, y, "", "start", name)
			x += 40 + 7*float64(len(name))
		}
	}
}
