package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// doctorPage shows a report: all checks in a table, then what is not well, with
// cause and fix. A verbose one shows what is well, too.
func doctorPage(r *doctor.Report, verbose bool) func(*console.Page) {
	return func(p *console.Page) {
		p.Table(doctorTable(r))
		for _, s := range []doctor.Status{doctor.Failed, doctor.Warning} {
			for i := range r.Findings {
				if f := &r.Findings[i]; f.Status == s {
					p.Line("")
					p.Line(doctorTone(s, strings.ToUpper(string(s))) + "  " + console.Strong(aboutFinding(f)))
					p.Section(findingDetails(f))
				}
			}
		}
		skippedChecks(p, r)
		if verbose {
			p.Line("")
			for i := range r.Findings {
				if f := &r.Findings[i]; f.Status == doctor.OK {
					p.Line(doctorTone(doctor.OK, "ok") + "  " + aboutFinding(f) + ": " + f.Message)
				}
			}
		}
		p.Line("")
		p.Line(doctorSummary(r))
	}
}

// doctorTable has a row for each check and a column for each cluster, with the
// worst outcome of all peerings.
func doctorTable(r *doctor.Report) (header []string, rows [][]string) {
	header = []string{"CHECK", "STATUS"}
	if len(r.Clusters) == 2 {
		header = []string{"CHECK", strings.ToUpper(r.Clusters[0].Name), strings.ToUpper(r.Clusters[1].Name)}
	}
	for _, check := range doctor.Checks() {
		worst := make([]doctor.Status, len(r.Clusters))
		for _, f := range r.Findings {
			for i, c := range r.Clusters {
				if f.Check == check && (f.Cluster == "" || f.Cluster == c.Name) {
					worst[i] = doctor.Worse(worst[i], f.Status)
				}
			}
		}
		if !slices.ContainsFunc(worst, func(s doctor.Status) bool { return s != "" }) {
			continue
		}
		row := []string{doctor.Title(check)}
		for _, s := range worst {
			row = append(row, doctorTone(s, cmp.Or(string(s), "-")))
		}
		rows = append(rows, row)
	}
	return header, rows
}

func doctorTone(s doctor.Status, text string) string {
	switch s {
	case doctor.OK:
		return console.Good(text)
	case doctor.Failed:
		return console.Bad(text)
	case doctor.Warning:
		return console.Caution(text)
	}
	return console.Faint(text)
}

// aboutFinding says what a finding is about: "keys (local), PublicKey a/b".
func aboutFinding(f *doctor.Finding) string {
	text := doctor.Title(f.Check)
	if where := cmp.Or(f.Cluster, f.Peer); where != "" {
		text += " (" + where + ")"
	}
	if f.Object != "" {
		text += ", " + f.Object
	}
	return text
}

func findingDetails(f *doctor.Finding) *console.Section {
	s := &console.Section{}
	s.Entry("Found", f.Message)
	if f.Cause != "" {
		s.Entry("Cause", f.Cause)
	}
	if f.Fix != "" {
		s.Entry("Fix", f.Fix)
	}
	return s
}

// skippedChecks shows what was not judged, what has the same reason together.
func skippedChecks(p *console.Page, r *doctor.Report) {
	var reasons []string
	checks := make(map[string][]string)             // by reason, in order
	clusters := make(map[[2]string]map[string]bool) // by reason and check
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Status != doctor.Skipped {
			continue
		}
		if checks[f.Message] == nil {
			reasons = append(reasons, f.Message)
		}
		key := [2]string{f.Message, f.Check}
		if clusters[key] == nil {
			clusters[key] = make(map[string]bool)
			checks[f.Message] = append(checks[f.Message], f.Check)
		}
		clusters[key][f.Cluster] = true
	}
	if len(reasons) > 0 {
		p.Line("")
	}
	for _, why := range reasons {
		var titles []string
		for _, check := range checks[why] {
			title := doctor.Title(check)
			if in := slices.Collect(maps.Keys(clusters[[2]string{why, check}])); len(in) == 1 && in[0] != "" {
				title += " (" + in[0] + ")"
			}
			titles = append(titles, title)
		}
		p.Line(doctorTone(doctor.Skipped, "skipped") + "  " + strings.Join(titles, ", ") + ": " + why)
	}
}

func doctorSummary(r *doctor.Report) string {
	s := r.Summary
	var parts []string
	if s.Failed > 0 {
		parts = append(parts, doctorTone(doctor.Failed, count(s.Failed, "problem")))
	}
	if s.Warnings > 0 {
		parts = append(parts, doctorTone(doctor.Warning, count(s.Warnings, "warning")))
	}
	parts = append(parts, doctorTone(doctor.OK, count(s.OK, "finding")+" ok"))
	if s.Skipped > 0 {
		parts = append(parts, count(s.Skipped, "check")+" skipped")
	}
	text := strings.Join(parts, ", ")
	if s.Failed == 0 && s.Skipped == 0 && s.Warnings == 0 {
		return doctorTone(doctor.OK, "All is well") + ": " + text
	}
	return text
}
