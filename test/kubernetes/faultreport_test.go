package kubernetes

import (
	"fmt"
	"strings"
	"testing"
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
}

func (r *faultReport) add(fault string, o outcome) {
	row := r.row(fault)
	row.times++
	row.udp, row.tcp = append(row.udp, o.udp...), append(row.tcp, o.tcp...)
	row.lost, row.streams = row.lost+len(o.lost), row.streams+o.streams
	row.missing, row.sent = row.missing+o.missing, row.sent+o.sent
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
}
