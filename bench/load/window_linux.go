package load

import "time"

// window bounds what is under way. It grows by one super-packet for each window
// that arrives whole and gives up an eighth for each with losses, so that a path
// with small buffers is not flooded. A path in order makes this simple: what has a
// smaller number than the last that arrived, and did not arrive, is lost.
type window struct {
	size, step, most uint64
	acknowledged     uint64    // one above the number that arrived last
	since            time.Time // when that last changed
	mark             uint64    // at which the size is judged next
	lost             uint64    // before the last judgement
	first, arrived   uint64    // numbers and the sink's count at the beginning
	stalls           int
}

func newWindow(most, step int, first, arrived uint64) *window {
	return &window{
		size: uint64(max(most, step)), step: uint64(step), most: uint64(max(most, step)),
		acknowledged: first, mark: first, first: first, arrived: arrived,
	}
}

// open tells whether the packets from number next on may be sent.
func (w *window) open(next uint64, sink *Sink, now time.Time) bool {
	if at := sink.position(); at > w.acknowledged {
		w.acknowledged, w.since = at, now
		w.judge(next, sink.Packets()-w.arrived)
	}
	if next+w.step <= w.acknowledged+w.size {
		if next == w.acknowledged {
			w.since = now // nothing was under way
		}
		return true
	}
	if now.Sub(w.since) < stall {
		return false
	}
	// The end of what is under way was lost, so nobody says what else was.
	w.acknowledged, w.since = next, now
	w.stalls++
	w.shrink()
	return true
}

// judge adapts the size once a window has gone by.
func (w *window) judge(next, arrived uint64) {
	if w.acknowledged < w.mark {
		return
	}
	w.mark = next
	lost := max(w.lost, w.acknowledged-w.first-min(arrived, w.acknowledged-w.first))
	if lost > w.lost {
		w.shrink()
	} else {
		w.size = min(w.size+w.step, w.most)
	}
	w.lost = lost
}

func (w *window) shrink() { w.size = max(w.size-w.size/8, w.step) }
