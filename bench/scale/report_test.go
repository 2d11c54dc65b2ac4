package scale

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// report is the text of one run.
type report struct {
	strings.Builder
	name string // of the file
}

// newReport begins a report. shared says who else works on the machine.
func newReport(name, shared, title string) *report {
	r := &report{name: name}
	r.line("%s", title)
	r.line("date: %s", time.Now().UTC().Format(time.RFC3339))
	r.line("machine: %s, %d cpu, shared with %s", processor(), runtime.NumCPU(), shared)
	r.line("kernel: %s", command("uname", "-r"))
	r.line("go: %s", runtime.Version())
	r.line("commit: %s", commit())
	r.line("")
	return r
}

func (r *report) line(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// row is one figure.
func (r *report) row(name, format string, args ...any) {
	r.line("%-44s %s", name, fmt.Sprintf(format, args...))
}

// requests lists what was asked of the API server.
func (r *report) requests(name string, counts map[string]int) {
	for _, what := range slices.Sorted(keys(counts)) {
		r.row("  "+name+" "+what, "%d", counts[what])
	}
}

func keys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// quantile returns the value that the share q of the samples does not exceed.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[min(len(s)-1, int(q*float64(len(s))))].Round(time.Millisecond)
}

// done prints the report and appends it to the day's file, if there is a folder
// for it.
func (r *report) done(t *testing.T) {
	t.Helper()
	fmt.Print(r.String())
	if *results == "" {
		return
	}
	path := filepath.Join(*results, fmt.Sprintf("%s-%s-%s.txt", time.Now().UTC().Format(time.DateOnly), r.name, commit()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(r.String() + "\n"); err != nil {
		t.Fatal(err)
	}
	t.Logf("written to %s", path)
}

func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
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
