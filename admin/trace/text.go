package trace

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
)

// Write prints the path for people: a paragraph for each hop.
func (w *Way) Write(out io.Writer) error {
	b := bufio.NewWriter(out)
	n := 0
	for _, part := range []struct {
		title string
		hops  []Hop
	}{{"Forward path", w.There}, {"Return path", w.Back}} {
		if len(part.hops) == 0 {
			continue
		}
		fmt.Fprintf(b, "%s:\n", part.title)
		for i := range part.hops {
			n++
			part.hops[i].write(b, n)
		}
	}
	switch stop := w.Stop(); {
	case stop != nil:
		fmt.Fprintf(b, "The packet stops at the %s %s (%s).\n", stop.Kind, stop.Name, stop.Cluster)
	case w.unknown():
		fmt.Fprint(b, "Nothing was found that stops the packet, but not everything could be read.\n")
	default:
		fmt.Fprint(b, "Nothing stops the packet.\n")
	}
	return b.Flush()
}

// unknown tells whether something could not be read at any hop.
func (w *Way) unknown() bool {
	for _, hops := range [][]Hop{w.There, w.Back} {
		for _, h := range hops {
			if h.Unknown != "" {
				return true
			}
		}
	}
	return len(w.Back) == 0
}

func (h *Hop) write(b *bufio.Writer, n int) {
	fmt.Fprintf(b, "%3d  %-11s  (%s) %s\n", n, h.Kind, h.Cluster, h.Name)
	line := func(format string, args ...any) { fmt.Fprintf(b, "%18s"+format+"\n", append([]any{""}, args...)...) }
	line("%s > %s", addrText(h.Source), addrText(h.Destination))
	for _, f := range h.Facts {
		line("%s", f)
	}
	for _, s := range h.Live {
		line("seen now: %d at %s", s.Packets, s.Point)
	}
	if h.NotCounted != "" {
		line("not counted: %s", h.NotCounted)
	}
	if h.DecidedBy != "" {
		line("decided by %s", h.DecidedBy)
	}
	if h.Unknown != "" {
		line("unknown: %s", h.Unknown)
	}
	if p := h.Problem; p != nil {
		line("STOPS HERE: %s", p.Message)
		if p.Cause != "" {
			line("Cause: %s", p.Cause)
		}
		if p.Fix != "" {
			line("Fix: %s", p.Fix)
		}
	}
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return "?"
	}
	return a.String()
}
