package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/bench/record"
)

// The two ways that are compared.
const (
	withinCluster  = "within one cluster, to the other node"
	acrossClusters = "across the clusters"
)

// figureRow is one figure, with its samples.
type figureRow struct {
	table, name, unit string
	samples           []float64
}

// figureReport collects figures in the order in which they first appear.
type figureReport struct{ rows []*figureRow }

func (r *figureReport) add(table, name, unit string, samples ...float64) {
	i := slices.IndexFunc(r.rows, func(row *figureRow) bool { return row.table == table && row.name == name && row.unit == unit })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, &figureRow{table: table, name: name, unit: unit})
	}
	r.rows[i].samples = append(r.rows[i].samples, samples...)
}

// path adds a figure of one of the ways that are compared.
func (r *figureReport) path(way, name, unit string, sample float64) { r.add(way, name, unit, sample) }

// of is the rows of a table.
func (r *figureReport) of(table string) []*figureRow {
	var rows []*figureRow
	for _, row := range r.rows {
		if row.table == table {
			rows = append(rows, row)
		}
	}
	return rows
}

// publish adds the tables to the file with figures.
func (r *figureReport) publish(t *testing.T) {
	t.Helper()
	addFigures(t, "From nothing to the first byte", fmt.Sprintf(`The images are on the nodes already. One step after the other, as one person does it; %d times, with everything removed in between.

%s`, setUps, r.table("setup", "step")))
	addFigures(t, "Idle components", fmt.Sprintf(`Connected, and no traffic: %d windows of %v. `+"`fabric`"+` runs on every node.

%s`, idleWindows, idleWindow, r.table("idle", "component")))
	addFigures(t, "Pod to pod", fmt.Sprintf(`The same pod to another node of its cluster, which is a bridge and a route in one kernel and no tunnel at all, and to a pod of the other
cluster, on nodes without a gateway: node, Geneve or VXLAN, gateway, translation, WireGuard, NAT, WAN, and all of it again. %d rounds,
taking turns, %v each. CPU-s/Gbit is what the whole machine spends, both ends and iperf3 included.

%s`, figureRounds, iperfTime, r.compare()))
	addFigures(t, "Components under this load", r.table("loaded", "component"))
}

// addFigures adds a section to the file with figures, if one is wanted. The first one
// brings what was measured on.
func addFigures(t *testing.T, heading, markdown string) {
	t.Helper()
	t.Logf("%s\n%s", heading, markdown)
	if *figures == "" {
		return
	}
	f, err := os.OpenFile(*figures, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		t.Fatal(err)
	}
	text := "\n## " + heading + "\n\n" + markdown
	if st.Size() == 0 {
		text = figuresHead() + text
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// figuresHead is what figures were measured on.
func figuresHead() string {
	var b strings.Builder
	b.WriteString("# Two real clusters\n\n")
	for _, f := range record.Circumstances() {
		fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Value)
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(&b, "- load of the last 1, 5 and 15 minutes: %s\n", strings.Join(strings.Fields(string(load))[:3], ", "))
	}
	b.WriteString(`
Two clusters of two nodes each, all on this machine: etcd, API servers, kubelets, kube-proxies, containerd, a router with NAT for each
cluster, the load generators and Sluice share its processors. Median, and the range in brackets.
`)
	return b.String()
}

// table shows the rows of a table.
func (r *figureReport) table(table, what string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | median (range) | unit |\n|---|---|---|\n", what)
	for _, row := range r.of(table) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.name, record.Spread(row.samples), row.unit)
	}
	return b.String()
}

// compare shows both ways side by side, and how their medians compare.
func (r *figureReport) compare() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| figure | %s | %s | unit | ratio |\n|---|---|---|---|---|\n", withinCluster, acrossClusters)
	across := r.of(acrossClusters)
	for _, row := range r.of(withinCluster) {
		i := slices.IndexFunc(across, func(other *figureRow) bool { return other.name == row.name })
		if i < 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2g |\n", row.name, record.Spread(row.samples), record.Spread(across[i].samples), row.unit,
			record.Median(across[i].samples)/record.Median(row.samples))
	}
	return b.String()
}

func TestFigureTables(t *testing.T) {
	r := &figureReport{}
	r.path(withinCluster, "speed", "Gbit/s", 8)
	r.path(acrossClusters, "speed", "Gbit/s", 2)
	r.path(withinCluster, "speed", "Gbit/s", 12)
	r.path(acrossClusters, "speed", "Gbit/s", 3)
	r.add("idle", "gateway", "MiB", 20, 22)
	got := r.table("idle", "component") + r.compare()
	want := `| component | median (range) | unit |
|---|---|---|
| gateway | 21 (20 to 22) | MiB |
| figure | within one cluster, to the other node | across the clusters | unit | ratio |
|---|---|---|---|---|
| speed | 10 (8 to 12) | 2.5 (2 to 3) | Gbit/s | 0.25 |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAddFigures writes the circumstances once.
func TestAddFigures(t *testing.T) {
	defer func(file string) { *figures = file }(*figures)
	*figures = filepath.Join(t.TempDir(), "figures.md")
	addFigures(t, "One", "a\n")
	addFigures(t, "Two", "b\n")
	text, err := os.ReadFile(*figures)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); strings.Count(got, "# Two real clusters\n") != 1 || !strings.HasSuffix(got, "\n\n## One\n\na\n\n## Two\n\nb\n") {
		t.Errorf("the file:\n%s", got)
	}
}
