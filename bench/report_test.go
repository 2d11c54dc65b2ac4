package bench

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sluice-net/sluice/bench/record"
)

// figure is one thing that is measured.
type figure struct {
	name string // as in the benchmark's name
	unit string
}

// README.md says what each of them answers.
var (
	tcp1         = figure{"tcp1/a-to-b", "Gbit/s"}
	tcp1Back     = figure{"tcp1/b-to-a", "Gbit/s"}
	tcp4         = figure{"tcp4/a-to-b", "Gbit/s"}
	tcp4Back     = figure{"tcp4/b-to-a", "Gbit/s"}
	udp64        = figure{"udp64/a-to-b", "kpps"}
	udp64Back    = figure{"udp64/b-to-a", "kpps"}
	latencyP50   = figure{"latency/p50", "µs"}
	latencyP99   = figure{"latency/p99", "µs"}
	cpuProcesses = figure{"cpu/gateways", "cpu-s/Gbit"}
	cpuMachine   = figure{"cpu/machine", "cpu-s/Gbit"}
	memory       = figure{"memory/rss", "MiB"}

	figures = []figure{tcp1, tcp1Back, tcp4, tcp4Back, udp64, udp64Back, latencyP50, latencyP99, cpuProcesses, cpuMachine, memory}
)

// report collects samples by variant and figure.
type report struct {
	samples map[string]map[figure][]float64
}

func (r *report) add(variant string, f figure, value float64) {
	if r.samples == nil {
		r.samples = map[string]map[figure][]float64{}
	}
	if r.samples[variant] == nil {
		r.samples[variant] = map[figure][]float64{}
	}
	r.samples[variant][f] = append(r.samples[variant][f], value)
}

// text renders a table of medians and ranges, and below it every sample in the
// format that benchstat reads (with -col /gw the variants stand side by side).
func (r *report) text(variants []string, figures []figure) string {
	var b strings.Builder
	for _, f := range record.Circumstances() {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	fmt.Fprintf(&b, "rounds: %d, interleaved, %d s each\n\n", *rounds, *seconds)
	fmt.Fprintf(&b, "%-18s %-11s", "figure", "unit")
	for _, v := range variants {
		fmt.Fprintf(&b, "  %-28s", v+": median (range)")
	}
	b.WriteString("\n")
	for _, f := range figures {
		fmt.Fprintf(&b, "%-18s %-11s", f.name, f.unit)
		for _, v := range variants {
			fmt.Fprintf(&b, "  %-28s", record.Spread(r.samples[v][f]))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\ngoos: %s\ngoarch: %s\npkg: github.com/sluice-net/sluice/bench\n", runtime.GOOS, runtime.GOARCH)
	for _, f := range figures {
		for _, v := range variants {
			for _, value := range r.samples[v][f] {
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
