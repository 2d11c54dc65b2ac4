package console

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Show writes a page to stdout.
func (c *Console) Show(build func(*Page)) {
	var p Page
	build(&p)
	_, _ = c.Out().Write([]byte(c.text(&p)))
}

// text is a page as stdout gets it.
func (c *Console) text(p *Page) string {
	var b strings.Builder
	for _, line := range p.lines(layout{columns: c.out.width(), ascii: c.out.ascii}) {
		b.WriteString(render(line, c.out.colours) + "\n")
	}
	return b.String()
}

// resized is how often a window is asked for its size.
const resized = 200 * time.Millisecond

// Live shows what draw puts on a page, again and again: on a terminal in place,
// elsewhere one page after the other when they differ. It returns nil when ctx
// ends, and the last page stays.
func (c *Console) Live(ctx context.Context, every time.Duration, draw func(context.Context, *Page) error) error {
	redraw := time.NewTicker(every)
	defer redraw.Stop()
	resizeTick := time.NewTicker(resized)
	defer resizeTick.Stop()
	var page *Page
	last := ""
	defer func() {
		if page != nil && c.out.terminal() {
			c.settle(page)
		}
	}()
	for {
		next := &Page{}
		if err := draw(ctx, next); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		page = next
		if !c.out.terminal() {
			if text := c.text(page); text != last {
				_, _ = c.Out().Write([]byte(text))
				last = text
			}
		}
		for again := false; !again; {
			c.place(page)
			select {
			case <-ctx.Done():
				return nil
			case <-redraw.C:
				again = true
			case <-resizeTick.C:
			}
		}
	}
}

// place draws a page in place, as much as the window holds.
func (c *Console) place(p *Page) {
	if !c.out.terminal() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.area.set(c.out, func(columns, rows int) []string {
		lines := p.lines(layout{columns: columns - 1, ascii: c.out.ascii})
		if n := max(rows-1, 1); len(lines) > n {
			more := fmt.Sprintf("%d more lines; enlarge the window", len(lines)-n+1)
			lines = append(lines[:n-1:n-1], glyphs(Faint(more)))
		}
		drawn := make([]string, len(lines))
		for i, line := range lines {
			drawn[i] = render(fit(line, columns-1, c.out.ascii), c.out.colours)
		}
		return drawn
	})
	c.area.draw()
}

// settle turns the page that is drawn into lines that stay.
func (c *Console) settle(p *Page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.area.set(c.out, nil)
	c.area.draw()
	_ = c.area.write(c.out, c.text(p))
}
