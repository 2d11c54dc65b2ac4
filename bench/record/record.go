// Package record says what figures were measured on, and shows samples: the same in
// every result that the repository keeps.
package record

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Field is a line about the circumstances of a measurement.
type Field struct{ Name, Value string }

// Circumstances are when and on what something is measured.
func Circumstances() []Field {
	return []Field{
		{"date", time.Now().UTC().Format(time.RFC3339)},
		{"machine", Machine()},
		{"kernel", command("uname", "-r")},
		{"go", runtime.Version()},
		{"commit", Commit()},
	}
}

// Machine names the processor and how many of it there are.
func Machine() string {
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

// Commit is what is measured; a tree with changes is not that commit.
func Commit() string {
	name := command("git", "rev-parse", "--short", "HEAD")
	if name == unknown {
		return name // a source archive
	}
	if command("git", "status", "--porcelain", "--untracked-files=no") != "" {
		name += "-modified"
	}
	return name
}

// unknown stands for what cannot be found out.
const unknown = "unknown"

func command(args ...string) string {
	out, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(out))
}

// Median is the middle of samples, 0 of none.
func Median(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	if len(s)%2 == 0 {
		return (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	return s[len(s)/2]
}

// Spread shows the median of samples and where they lie.
func Spread(samples []float64) string {
	if len(samples) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", Median(samples), slices.Min(samples), slices.Max(samples))
}

// Percents are the percentiles that are kept of what is distributed, such as round trips.
var Percents = []float64{10, 50, 90, 99, 99.9}

// Percentile is the name of one of Percents in results, such as p99.
func Percentile(percent float64) string { return fmt.Sprintf("p%g", percent) }
