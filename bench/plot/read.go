package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// result is a comparison that was recorded: see report in package bench.
type result struct {
	date, commit string
	otherLinks   bool
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

// readResults reads what has ratios to "stock", the oldest first. Those of links with another MTU than
// the others are left out.
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
		if r := parse(string(text)); len(r.ratios) > 0 && !r.otherLinks {
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
		r.otherLinks = r.otherLinks || strings.HasPrefix(line, "link MTU: ")
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

// fault is something that happened to two clusters, once or several times.
type fault struct {
	name  string
	times []timeLine
}

// timeLine is what pairs of pods noticed of a fault that happened at 0, in seconds.
type timeLine struct {
	watched float64 // until then
	pairs   [][]span
}

// span is a time in which nothing arrived.
type span struct{ from, to float64 }

// longest are the longest silences of all pairs, each time.
func (f *fault) longest() (all []float64) {
	for _, once := range f.times {
		for _, pair := range once.pairs {
			var most float64
			for _, s := range pair {
				most = max(most, s.to-s.from)
			}
			all = append(all, most)
		}
	}
	return all
}

// dateForm is the line in the head of a record that says when it was made.
var dateForm = regexp.MustCompile(`(?m)^- date: (\S+)`)

// readFaults reads the last record of faults that has time lines: see timeLines in package
// test/kubernetes. Which one is the last its head says, and the order of names where two are
// of the same time.
func readFaults(results fs.FS) (commit string, out []fault, err error) {
	names, err := fs.Glob(results, "*-faults-*.md")
	if err != nil {
		return "", nil, err
	}
	var last string
	for _, name := range names {
		text, err := fs.ReadFile(results, name)
		if err != nil {
			return "", nil, err
		}
		faults, date := parseFaults(string(text)), dateForm.FindSubmatch(text)
		if len(faults) == 0 {
			continue
		}
		if date == nil {
			return "", nil, fmt.Errorf("%s has time lines, and no date in its head", name)
		}
		if when := string(date[1]); when >= last {
			last, out = when, faults
			name = strings.TrimSuffix(name, ".md")
			commit = name[strings.LastIndex(name, "-")+1:]
		}
	}
	if len(out) == 0 {
		return "", nil, errors.New("no record of faults has time lines")
	}
	return commit, out, nil
}

func parseFaults(text string) (out []fault) {
	_, table, _ := strings.Cut(text, "| fault | watched, ms | silences of each pair of pods, ms after the fault |\n|---|---|---|\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 {
			break
		}
		name := strings.TrimPrefix(cells[0], "| ")
		once := timeLine{watched: number(cells[1]) / 1000}
		for pair := range strings.SplitSeq(strings.TrimSuffix(cells[2], " |"), "; ") {
			var spans []span
			for one := range strings.FieldsSeq(pair) {
				if from, to, ok := strings.Cut(one, ":"); ok {
					spans = append(spans, span{number(from) / 1000, number(to) / 1000})
				}
			}
			once.pairs = append(once.pairs, spans)
		}
		i := slices.IndexFunc(out, func(f fault) bool { return f.name == name })
		if i < 0 {
			i, out = len(out), append(out, fault{name: name})
		}
		out[i].times = append(out[i].times, once)
	}
	return out
}
