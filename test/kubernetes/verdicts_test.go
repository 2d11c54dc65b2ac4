package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/survey"
)

// verdicts are what the doctor and the status say of faults, and what traffic notices.
type verdicts struct{ rows []verdict }

// verdict is a row of the table.
type verdict struct {
	fault string
	// silence is the longest one of pings, from the fault until it was mended.
	silence time.Duration
	doctor  doctor.Finding
	status  string
	// wrong says why what the status says is wrong; empty: it is right.
	wrong string
}

// markdown is a table of all.
func (v *verdicts) markdown() string {
	var b strings.Builder
	b.WriteString("| fault | silence | doctor | status | right |\n|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, row := range v.rows {
		right := "yes"
		if row.wrong != "" {
			right = "**no**: " + row.wrong
		}
		silence := "none"
		if row.silence > 0 {
			silence = round(row.silence).String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.fault, silence,
			cell.Replace(fmt.Sprintf("%s, %s: %s", row.doctor.Status, row.doctor.Check, row.doctor.Message)), cell.Replace(row.status), cell.Replace(right))
	}
	return b.String()
}

// publish adds the table to the figures.
func (v *verdicts) publish(t *testing.T) {
	if len(v.rows) > 0 {
		addFigures(t, "What doctor and status say of faults", fmt.Sprintf(
			"Pings go from all nodes of one cluster to all of the other one; silences of less than %v count as none. The silence lasts until the\n"+
				"fault is mended, by what the doctor advises. Right is a doctor that names this cause and no other, and a status that is not\n"+
				"healthy where, and only where, the doctor says that something is in the way of the peering, be it for one node.\n\n%s", notable, v.markdown()))
	}
}

// statusLimit is how long the status may take to be right: a gateway is silent for some
// ten seconds before its Connection says so.
const statusLimit = time.Minute

// status returns what the status of both clusters says of what is wrong, or is none. Where a
// reason is given, it must be among what it says.
func (x *examined) status(t *testing.T, wrong bool, reason string) (says, problem string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), statusLimit)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		stdout, _, err := x.tryLiqoctl(ctx, x.both("network", "status", "--interval", "0", "--exit-code", "-o", "json")...)
		var table struct{ Peerings []survey.Status }
		if ctx.Err() == nil {
			if err := json.Unmarshal([]byte(stdout), &table); err != nil {
				t.Fatalf("the status: %v\n%s", err, stdout)
			}
			says = alertsText(table.Peerings)
		}
		switch {
		case ctx.Err() != nil && reason != "":
			return says, "it does not say " + reason + ", or its health is wrong"
		case ctx.Err() != nil && wrong:
			return says, "it is healthy"
		case ctx.Err() != nil:
			return says, "it is not healthy"
		case (err != nil) == wrong && strings.Contains(says, reason):
			return says, ""
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// alertsText has each reason once, with the first message.
func alertsText(peerings []survey.Status) string {
	var parts []string
	seen := make(map[string]bool)
	for _, p := range peerings {
		for _, a := range p.Alerts {
			if !seen[a.Reason] {
				seen[a.Reason] = true
				parts = append(parts, fmt.Sprintf("%s: %s", a.Reason, a.Message))
			}
		}
	}
	if len(parts) == 0 {
		return "healthy"
	}
	return strings.Join(parts, "; ")
}
