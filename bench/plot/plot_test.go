package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestPlots: the plots that are checked in are what the results give.
func TestPlots(t *testing.T) {
	plots, err := draw(os.DirFS("../results"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range plots {
		got, err := os.ReadFile(filepath.Join("../results", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the results give (%v): go run ./bench/plot", name, err)
		}
		for d := xml.NewDecoder(bytes.NewReader(want)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if n := bytes.Count(want, []byte("<path")) + bytes.Count(want, []byte(`class="gap"`)); n < 8 {
			t.Errorf("%s shows %d things", name, n)
		}
	}
	there, err := fs.Glob(os.DirFS("../results"), "*.svg")
	if err != nil || len(there) != len(plots) {
		t.Errorf("%v, %v", there, err)
	}
}

func TestParse(t *testing.T) {
	r := parse(`date: 2026-11-22T06:34:53Z
commit: 665a1fc-modified

figure                         unit         stock: median (range)         sluice: median (range)
tcp1/a-to-b                    Gbit/s       2 (1 to 3)                    3 (2 to 4)

ratio to stock                  limit: median (range)         sluice: median (range)
tcp1/a-to-b                     1.6 (1.5 to 1.7)              1.5 (1.25 to 2)
gateway64/allocs                -                             1e+01 (9 to 1.1e+01)

ratio to limit                  sluice: median (range)
tcp1/a-to-b                     0.9 (0.8 to 1)

BenchmarkPath/tcp1/a-to-b/gw=stock 1 2 Gbit/s
BenchmarkPath/tcp1/a-to-b/gw=sluice 1 3.5 Gbit/s
`)
	if r.commit != "665a1fc" || r.ratios["tcp1/a-to-b"]["sluice"] != (spread{1.5, 1.25, 2}) || r.ratios["tcp1/a-to-b"]["limit"] != (spread{1.6, 1.5, 1.7}) {
		t.Errorf("%+v", r)
	}
	if got := r.ratios["gateway64/allocs"]; len(got) != 1 || got["sluice"] != (spread{10, 9, 11}) {
		t.Errorf("%+v", got)
	}
	if got := r.samples["tcp1/a-to-b"]; len(got["sluice"]) != 1 || got["sluice"][0] != 3.5 {
		t.Errorf("%+v", got)
	}
	empty := fstest.MapFS{"1-faults-abc.md": {Data: []byte("# no time lines\n")}}
	if _, err := draw(empty); err == nil {
		t.Error("an empty folder has plots")
	}
}

// TestLastFaults: the last record is the one with the latest date in its head, whatever the
// machine and the commit in its name.
func TestLastFaults(t *testing.T) {
	record := func(date, name string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("# Two real clusters\n\n- date: " + date + "\n\n| fault | watched, ms | silences of each pair of pods, ms after the fault |\n|---|---|---|\n| " + name + " | 1 | none |\n")}
	}
	for name, tt := range map[string]struct {
		records fstest.MapFS
		want    string
	}{
		"another machine": {fstest.MapFS{
			"2026-11-22-zeus-faults-1111111.md": record("2026-11-22T08:00:00Z", "old"), "2026-11-22-apollo-faults-2222222.md": record("2026-11-22T09:00:00Z", "new"),
		}, "2222222 new"},
		"a day without a time": {fstest.MapFS{
			"2026-11-22-a-faults-2222222.md": record("2026-11-22T09:00:00Z", "new"), "2026-11-22-b-faults-1111111.md": record("2026-11-22", "old"),
		}, "2222222 new"},
		"the name tells another day": {fstest.MapFS{
			"2026-11-25-a-faults-1111111.md": record("2026-11-22", "old"), "2026-11-24-a-faults-2222222.md": record("2026-11-23", "new"),
		}, "2222222 new"},
		"the last has no time lines": {fstest.MapFS{
			"2026-11-22-a-faults-2222222.md": record("2026-11-22", "new"), "2026-11-23-a-faults-3333333.md": {Data: []byte("- date: 2026-11-23\n")},
		}, "2222222 new"},
	} {
		commit, faults, err := readFaults(tt.records)
		if err != nil || len(faults) != 1 || commit+" "+faults[0].name != tt.want {
			t.Errorf("%s: %s %+v, %v, want %s", name, commit, faults, err, tt.want)
		}
	}
	if _, _, err := readFaults(fstest.MapFS{"a-faults-b.md": {Data: []byte(strings.Replace(string(record("", "x").Data), "- date: ", "", 1))}}); err == nil {
		t.Error("a record without a date is taken")
	}
}

func TestParseFaults(t *testing.T) {
	const text = `## Time lines of the faults

| fault | watched, ms | silences of each pair of pods, ms after the fault |
|---|---|---|
| gateway killed | 4100 | -3:1000; none; 500:1500 2000:2040 |
| node lost | 9000 | none |
| gateway killed | 5000 | 10:20; none; none |

more
`
	got := parseFaults(text)
	want := []fault{
		{"gateway killed", []timeLine{
			{4.1, [][]span{{{-0.003, 1}}, nil, {{0.5, 1.5}, {2, 2.04}}}},
			{5, [][]span{{{0.01, 0.02}}, nil, nil}},
		}},
		{"node lost", []timeLine{{9, [][]span{nil}}}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(fault{}, timeLine{}, span{})); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	const third = 1.0 / 3
	if diff := cmp.Diff([]silent{{span{-0.003, 0.5}, third}, {span{0.5, 1}, 2 * third}, {span{1, 1.5}, third}, {span{2, 2.04}, third}}, shares(got[0].times[0].pairs), cmp.AllowUnexported(silent{}, span{})); diff != "" {
		t.Errorf("shares (-want +got)\n%s", diff)
	}
	if longest := got[0].longest(); len(longest) != 6 || longest[0] != 1.003 || longest[2] != 1 {
		t.Errorf("longest: %v", longest)
	}
}
