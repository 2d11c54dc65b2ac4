package bench

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/bench/record"
)

// figure is one thing that is measured.
type figure struct {
	name string // as in the benchmark's name
	unit string
}

var bases = flag.String("base", stockName+","+limitName, "variants that the others of -compare are shown in relation to")

// load is what the figure was measured under.
func (f figure) load() string {
	load, _, _ := strings.Cut(f.name, "/")
	return load
}

// report collects samples by variant and figure.
type report struct {
	// round is the one that is being measured.
	round int
	// figures are in the order in which they were first measured, those of a load
	// together.
	figures []figure

	samples map[string]map[figure][]sample
}

// sample is one measured value.
type sample struct {
	round int
	value float64
}

func (r *report) add(variant string, f figure, value float64) {
	if r.samples == nil {
		r.samples = map[string]map[figure][]sample{}
	}
	if r.samples[variant] == nil {
		r.samples[variant] = map[figure][]sample{}
	}
	if !slices.Contains(r.figures, f) {
		at := len(r.figures)
		for i, other := range r.figures {
			if other.load() == f.load() {
				at = i + 1
			}
		}
		r.figures = slices.Insert(r.figures, at, f)
	}
	r.samples[variant][f] = append(r.samples[variant][f], sample{r.round, value})
}

// values are all samples of a figure.
func (r *report) values(variant string, f figure) (out []float64) {
	for _, s := range r.samples[variant][f] {
		out = append(out, s.value)
	}
	return out
}

// means are the means of a figure by round.
func (r *report) means(variant string, f figure) map[int]float64 {
	sum, n := map[int]float64{}, map[int]float64{}
	for _, s := range r.samples[variant][f] {
		sum[s.round] += s.value
		n[s.round]++
	}
	for round := range sum {
		sum[round] /= n[round]
	}
	return sum
}

// relative is what a figure is of another variant's in the same round, for each
// round: what the machine did to both is not in it.
func (r *report) relative(variant, base string, f figure) (out []float64) {
	bases := r.means(base, f)
	for round, value := range r.means(variant, f) {
		if b := bases[round]; b != 0 {
			out = append(out, value/b)
		}
	}
	return out
}

// ratios renders a table of what the variants are of each one that -base names:
// medians of the ratios in each round, and their ranges.
func (r *report) ratios(variants []string, figures []figure) string {
	var b strings.Builder
	for base := range strings.SplitSeq(*bases, ",") {
		if !slices.Contains(variants, base) || len(variants) == 1 {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(variants), func(v string) bool { return v == base })
		fmt.Fprintf(&b, "\n%-30s", "ratio to "+base)
		for _, v := range others {
			fmt.Fprintf(&b, "  %-28s", v+": median (range)")
		}
		b.WriteString("\n")
		for _, f := range figures {
			if len(r.samples[base][f]) == 0 || strings.HasPrefix(f.unit, "%") { // a share says enough
				continue
			}
			fmt.Fprintf(&b, "%-30s", f.name)
			for _, v := range others {
				fmt.Fprintf(&b, "  %-28s", record.Spread(r.relative(v, base, f)))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// text renders a table of medians and ranges, one of ratios, and below them every sample in the
// format that benchstat reads (with -col /gw the variants stand side by side).
func (r *report) text(variants []string, figures []figure) string {
	var b strings.Builder
	for _, f := range record.Circumstances() {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	fmt.Fprintf(&b, "rounds: %d, interleaved\n\n", *rounds)
	fmt.Fprintf(&b, "%-30s %-11s", "figure", "unit")
	for _, v := range variants {
		fmt.Fprintf(&b, "  %-28s", v+": median (range)")
	}
	b.WriteString("\n")
	for _, f := range figures {
		fmt.Fprintf(&b, "%-30s %-11s", f.name, f.unit)
		for _, v := range variants {
			fmt.Fprintf(&b, "  %-28s", record.Spread(r.values(v, f)))
		}
		b.WriteString("\n")
	}
	b.WriteString(r.ratios(variants, figures))
	fmt.Fprintf(&b, "\ngoos: %s\ngoarch: %s\npkg: github.com/sluice-net/sluice/bench\n", runtime.GOOS, runtime.GOARCH)
	for _, f := range figures {
		for _, v := range variants {
			for _, value := range r.values(v, f) {
				fmt.Fprintf(&b, "BenchmarkPath/%s/gw=%s 1 %.4g %s\n", f.name, v, value, f.unit)
			}
		}
	}
	return b.String()
}

// resultPath names a result by day, machine, what was compared and commit.
func resultPath(dir, what string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(record.Machine()))
	for strings.Contains(name, "--") {
		name = strings.ReplaceAll(name, "--", "-")
	}
	return filepath.Join(dir, fmt.Sprintf("%s-%s%s-%s.txt", time.Now().UTC().Format(time.DateOnly), strings.Trim(name, "-"), what, record.Commit()))
}

// TestRatios compares within rounds: what slows a round down for all is not seen.
func TestRatios(t *testing.T) {
	var r report
	f := figure{"tcp1/a-to-b", "Gbit/s"}
	for round, speed := range []float64{1, 0.1, 2} {
		r.round = round
		r.add(stockName, f, 2*speed)
		r.add("sluice", f, 2*speed) // two samples of a round count as one
		r.add("sluice", f, 4*speed)
	}
	r.round = 3
	r.add("sluice", f, 1) // nothing to compare it with
	got := r.ratios([]string{stockName, "sluice"}, r.figures)
	if want := "1.5 (1.5 to 1.5)"; !strings.Contains(got, want) {
		t.Errorf("want %q in\n%s", want, got)
	}
}
