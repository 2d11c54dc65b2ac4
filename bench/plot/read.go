package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is a comparison that was recorded: see report in package bench.
type result struct {
	date, commit string
	// ratios are those to "stock", by figure and variant.
	ratios map[string]map[string]spread
	// samples are by figure and variant.
	samples map[string]map[string][]float64
}

// spread is a median and the range of what it is of.
type spread struct{ median, low, high float64 }

var (
	variantForm = regexp.MustCompile(`(\S+): median \(range\)`)
	spreadForm  = regexp.MustCompile(`([0-9.e+-]+) \(([0-9.e+-]+) to ([0-9.e+-]+)\)|(?:^| )-(?: |$)`)
	sampleForm  = regexp.MustCompile(`^BenchmarkPath/(\S+)/gw=(\S+) 1 (\S+) `)
)

// readResults reads what has ratios to "stock", the oldest first.
func readResults(results fs.FS) (out []result, err error) {
	names, err := fs.Glob(results, "*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(results, name)
		if err != nil {
			return nil, err
		}
		if r := parse(string(text)); len(r.ratios) > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b result) int { return cmp.Compare(a.date, b.date) })
	return out, nil
}

func parse(text string) result {
	r := result{ratios: make(map[string]map[string]spread), samples: make(map[string]map[string][]float64)}
	var variants []string // of the table of ratios
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if date, ok := strings.CutPrefix(line, "date: "); ok {
			r.date = date
		}
		if commit, ok := strings.CutPrefix(line, "commit: "); ok {
			r.commit = strings.TrimSuffix(commit, "-modified")
		}
		if m := sampleForm.FindStringSubmatch(line); m != nil {
			if r.samples[m[1]] == nil {
				r.samples[m[1]] = make(map[string][]float64)
			}
			r.samples[m[1]][m[2]] = append(r.samples[m[1]][m[2]], number(m[3]))
		}
		switch {
		case strings.HasPrefix(line, "ratio to stock "):
			for _, m := range variantForm.FindAllStringSubmatch(line, -1) {
				variants = append(variants, m[1])
			}
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "ratio to "):
			variants = nil
		case variants != nil:
			figure, cells, _ := strings.Cut(line, " ")
			r.ratios[figure] = make(map[string]spread)
			for i, m := range spreadForm.FindAllStringSubmatch(cells, len(variants)) {
				if m[1] != "" {
					r.ratios[figure][variants[i]] = spread{number(m[1]), number(m[2]), number(m[3])}
				}
			}
		}
	}
	return r
}

// number reads what the forms above have found; 0 is nothing that was measured.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// fault is a row of a table of faults, in seconds of silence.
type fault struct {
	name          string
	median, worst float64
	node          bool // a whole node was lost
}

// readFaults reads the first tables of the record of faults that the documents tell of.
func readFaults(results fs.FS) (out []fault, err error) {
	names, err := fs.Glob(results, "*-faults-7dbc283.md")
	if err != nil || len(names) != 1 {
		return nil, fmt.Errorf("%d records of faults: %w", len(names), err)
	}
	text, err := fs.ReadFile(results, names[0])
	if err != nil {
		return nil, err
	}
	for _, heading := range []string{"## Replaced, killed, deleted", "## Nodes lost"} {
		_, after, _ := strings.Cut(string(text), heading+"\n")
		_, table, _ := strings.Cut(after, "|---|---|---|---|---|---|---|---|\n")
		for line := range strings.Lines(table) {
			cells := strings.Split(line, "|")
			if len(cells) != 10 {
				break
			}
			f := fault{name: strings.TrimSpace(cells[1]), node: strings.Contains(heading, "Nodes")}
			for i, to := range map[int]*float64{3: &f.median, 5: &f.worst} {
				d, err := time.ParseDuration(strings.TrimSpace(cells[i]))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", names[0], err)
				}
				*to = d.Seconds()
			}
			out = append(out, f)
		}
	}
	return out, nil
}
