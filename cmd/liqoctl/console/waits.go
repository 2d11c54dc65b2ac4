package console

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/admin/progress"
)

const (
	// frame is how long a picture of the spinner stands.
	spinnerFrame = 100 * time.Millisecond
	// patience is how long a wait is not worth a line where there is no spinner,
	// and repeat how often at most it is worth another one, if it says something
	// else by then.
	patience = 10 * time.Second
	repeat   = 30 * time.Second
	// lineWidth is how much of a wait is worth showing there.
	lineWidth = 240
)

// waits is what is under way: at most one thing for each cluster.
type waits struct {
	active []*wait       // the longest first
	stop   chan struct{} // closed to end what redraws them; nil: nothing does
	done   chan struct{} // closed when it ended
}

type wait struct {
	cluster, text string
	since         time.Time
	told          time.Duration // elapsed when last written as a line
	toldText      string
}

// Progress shows what work tells: lines on stderr, and while it waits, on a
// terminal, a spinner with the elapsed time for each cluster. A wait ends with
// the next event of its cluster that is none, with Error or with Close.
func (c *Console) Progress() progress.Func {
	return func(e progress.Event) {
		c.mu.Lock()
		if e.Kind == progress.Waiting {
			c.beginWait(e)
			c.mu.Unlock()
			return
		}
		stopped := c.waits.end(e.Cluster)
		if e.Kind == progress.Ended {
			c.area.draw()
		} else {
			c.sayLocked(prefixOf(e.Kind), about(e.Cluster)+e.Text)
		}
		c.mu.Unlock()
		stopped()
	}
}

// beginWait notes that something is under way, and has it drawn from the next
// picture on: what is over before that would only flicker.
func (c *Console) beginWait(e progress.Event) {
	c.waits.begin(e)
	if c.errOut.terminal() {
		c.area.set(c.errOut, c.waitLines)
	}
	if c.waits.stop == nil {
		c.waits.stop, c.waits.done = make(chan struct{}), make(chan struct{})
		go c.watch(c.waits.stop, c.waits.done)
	}
}

func prefixOf(k progress.Kind) prefix {
	switch k {
	case progress.Warning:
		return warning
	case progress.Failed:
		return failure
	}
	return info
}

func about(cluster string) string {
	if cluster == "" {
		return ""
	}
	return "(" + cluster + ") "
}

// begin notes what an event waits for. The time counts from the first of several
// waits that nothing came between.
func (w *waits) begin(e progress.Event) {
	for _, active := range w.active {
		if active.cluster == e.Cluster {
			active.text = e.Text
			return
		}
	}
	w.active = append(w.active, &wait{cluster: e.Cluster, text: e.Text, since: time.Now()})
}

// end ends the wait of a cluster. The returned function waits until nothing is
// redrawn any more, if that was the last; it must not be called under the lock.
func (w *waits) end(cluster string) (stopped func()) {
	for i, active := range w.active {
		if active.cluster == cluster {
			w.active = append(w.active[:i], w.active[i+1:]...)
			break
		}
	}
	if len(w.active) > 0 {
		return func() {}
	}
	return w.clear()
}

// clear ends all waits.
func (w *waits) clear() (stopped func()) {
	w.active = nil
	if w.stop == nil {
		return func() {}
	}
	done := w.done
	close(w.stop)
	w.stop, w.done = nil, nil
	return func() { <-done }
}

// watch redraws the spinners until stop is closed.
func (c *Console) watch(stop, done chan struct{}) {
	defer close(done)
	tick := time.NewTicker(spinnerFrame)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			c.mu.Lock()
			select {
			case <-stop: // while we waited for the lock
			default:
				c.showWaits()
			}
			c.mu.Unlock()
		}
	}
}

// showWaits shows what is under way.
func (c *Console) showWaits() {
	if c.errOut.terminal() {
		c.area.draw()
	} else {
		c.tellWaits()
	}
}

// waitLines are what is under way as lines for a window of some size.
func (c *Console) waitLines(columns, rows int) []string {
	var lines []string
	for _, w := range c.waits.active {
		elapsed := time.Since(w.since)
		line := spinner(elapsed, c.errOut.ascii) + about(w.cluster) + w.text
		timer := glyphs(Faint(fmt.Sprintf(" (%v)", elapsed.Truncate(time.Second))))
		// One column stays free: in the last one some terminals wrap.
		text := fit(glyphs(line), columns-1-width(timer), c.errOut.ascii)
		lines = append(lines, render(append(text, fit(timer, columns-1-width(text), c.errOut.ascii)...), c.errOut.colours))
	}
	return lines[:min(len(lines), max(rows-1, 1))]
}

// tellWaits writes lines about what takes long, where there are no spinners.
func (c *Console) tellWaits() {
	for _, w := range c.waits.active {
		elapsed := time.Since(w.since)
		if elapsed < patience || w.told > 0 && (elapsed-w.told < repeat || w.text == w.toldText) {
			continue
		}
		w.told, w.toldText = elapsed, w.text
		text := render(fit(glyphs(about(w.cluster)+w.text), lineWidth, c.errOut.ascii), false)
		c.sayLocked(info, fmt.Sprintf("%s (%v)", text, elapsed.Truncate(time.Second)))
	}
}

// spinner is a picture that turns, as wide as the margin.
func spinner(elapsed time.Duration, ascii bool) string {
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	if ascii {
		frames = []rune(`|/-\`)
	}
	n := int(elapsed/spinnerFrame) % len(frames)
	return " " + Good(string(frames[n])) + "      "
}
