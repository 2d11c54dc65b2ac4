package scale

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/bench/record"
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
	for _, f := range record.Circumstances() {
		r.line("%s: %s", f.Name, f.Value)
	}
	r.line("shared with: %s", shared)
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
	path := filepath.Join(*results, fmt.Sprintf("%s-%s-%s.txt", time.Now().UTC().Format(time.DateOnly), r.name, record.Commit()))
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
