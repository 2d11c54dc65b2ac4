package kubernetes

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"
)

// faultReport collects what traffic has noticed of faults, each of which may have
// happened several times.
type faultReport struct{ rows []*faultRow }

type faultRow struct {
	fault         string
	times         int
	udp, tcp      series
	lost, streams int
	missing, sent int
	// observed is what was seen each time, as a line of the table of silences.
	observed []string
}

// add notes what became of traffic after a fault at a time.
func (r *faultReport) add(fault string, o outcome, at time.Time) {
	row := r.row(fault)
	row.times++
	row.udp, row.tcp = append(row.udp, o.udp...), append(row.tcp, o.tcp...)
	row.lost, row.streams = row.lost+len(o.lost), row.streams+o.streams
	row.missing, row.sent = row.missing+o.missing, row.sent+o.sent
	row.observed = append(row.observed, observation(o.silences, at, time.Now()))
}

// observation is how long was looked, and the silences of each pair of pods, in
// milliseconds after the fault: 4100 | -3:1121; -5:1122 2007:2040; none.
func observation(pairs [][]silence, at, until time.Time) string {
	after := func(t time.Time) int64 { return t.Sub(at).Milliseconds() }
	var all []string
	for _, silences := range pairs {
		var one []string
		for _, s := range silences {
			one = append(one, fmt.Sprintf("%d:%d", after(s.from), after(s.to)))
		}
		all = append(all, cmp.Or(strings.Join(one, " "), "none"))
	}
	return fmt.Sprintf("%d | %s", after(until), strings.Join(all, "; "))
}

// timeLines is a table of what was observed each time, which bench/plot draws.
func (r *faultReport) timeLines() string {
	var b strings.Builder
	b.WriteString("| fault | watched, ms | silences of each pair of pods, ms after the fault |\n|---|---|---|\n")
	for _, row := range r.rows {
		for _, o := range row.observed {
			fmt.Fprintf(&b, "| %s | %s |\n", row.fault, o)
		}
	}
	return b.String()
}

func (r *faultReport) row(fault string) *faultRow {
	for _, row := range r.rows {
		if row.fault == fault {
			return row
		}
	}
	row := &faultRow{fault: fault}
	r.rows = append(r.rows, row)
	return row
}

// markdown is a table of all faults.
func (r *faultReport) markdown() string {
	var b strings.Builder
	b.WriteString("| fault | times | silence p50 | p99 | worst | of TCP, worst | pings lost | TCP connections lost |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %d | %v | %v | %v | %v | %d of %d | %d of %d |\n", row.fault, row.times,
			round(row.udp.p50()), round(row.udp.p99()), round(row.udp.worst()), round(row.tcp.worst()), row.missing, row.sent, row.lost, row.streams)
	}
	return b.String()
}

// publish adds the table to the figures.
func (r *faultReport) publish(t *testing.T) {
	if len(r.rows) == 0 {
		return
	}
	addFigures(t, "Faults with traffic under way", fmt.Sprintf("Silences of less than %v count as none.\n\n%s", notable, r.markdown()))
	addFigures(t, "Time lines of the faults", r.timeLines())
}
