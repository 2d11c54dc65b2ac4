package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
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
	fmt.Fprintf(&b, "date: %s\nmachine: %s\nkernel: %s\ngo: %s\ncommit: %s\nrounds: %d, interleaved, %d s each\n\n",
		time.Now().UTC().Format(time.RFC3339), machine(), command("uname", "-r"), runtime.Version(), commit(), *rounds, *seconds)
	fmt.Fprintf(&b, "%-18s %-11s", "figure", "unit")
	for _, v := range variants {
		fmt.Fprintf(&b, "  %-28s", v+": median (range)")
	}
	b.WriteString("\n")
	for _, f := range figures {
		fmt.Fprintf(&b, "%-18s %-11s", f.name, f.unit)
		for _, v := range variants {
			fmt.Fprintf(&b, "  %-28s", spread(r.samples[v][f]))
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

// spread shows the median of samples and where they lie.
func spread(samples []float64) string {
	if len(samples) == 0 {
		return "-"
	}
	s := slices.Sorted(slices.Values(samples))
	median := s[len(s)/2]
	if len(s)%2 == 0 {
		median = (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", median, s[0], s[len(s)-1])
}

// resultPath names a result by day, machine, what was compared and commit.
func resultPath(dir, what string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(machine()))
	for strings.Contains(name, "--") {
		name = strings.ReplaceAll(name, "--", "-")
	}
	return filepath.Join(dir, fmt.Sprintf("%s-%s%s-%s.txt", time.Now().UTC().Format(time.DateOnly), strings.Trim(name, "-"), what, commit()))
}

// machine names the processor and how many of it there are.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s %d cpu", model, runtime.NumCPU())
}

// commit is what was measured; a tree with changes is not that commit.
func commit() string {
	name := command("git", "rev-parse", "--short", "HEAD")
	if command("git", "status", "--porcelain", "--untracked-files=no") != "" {
		name += "-modified"
	}
	return name
}

func command(args ...string) string {
	out, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
