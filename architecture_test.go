package sluice_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// roomRow matches a row of the table of packages: its first cell.
var roomRow = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|")

// listedRows are the packages of the table of ARCHITECTURE.md, in its order.
func listedRows(t *testing.T) (listed []string) {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range roomRow.FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			listed = append(listed, strings.Trim(name, "`"))
		}
	}
	if len(listed) == 0 {
		t.Fatal("there is no table of packages")
	}
	return listed
}

// TestArrows: a folder of the top level imports only folders above it in the table of ARCHITECTURE.md.
func TestArrows(t *testing.T) {
	room := func(rel string) string { top, _, _ := strings.Cut(rel, "/"); return top }
	var rooms []string
	for _, row := range listedRows(t) {
		if !slices.Contains(rooms, room(row)) {
			rooms = append(rooms, room(row))
		}
	}
	for _, p := range listPackages(t) {
		rel, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours || slices.Contains(testSupport, rel) { // which may use more of test
			continue
		}
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, module+"/")
			if ours && slices.Index(rooms, room(to)) > slices.Index(rooms, room(rel)) {
				t.Errorf("%s imports %s, which is below it", rel, to)
			}
		}
	}
}

// TestArchitecture: the table of ARCHITECTURE.md has every package, and none that
// does not exist.
func TestArchitecture(t *testing.T) {
	listed := listedRows(t)
	covers := func(row, rel string) bool {
		base, all := strings.CutSuffix(row, "/...")
		return rel == base || all && below(rel, base)
	}
	var packages []string
	for _, p := range listPackages(t) {
		if rel, ok := strings.CutPrefix(p.ImportPath, module+"/"); ok {
			packages = append(packages, rel)
		}
	}
	for _, rel := range packages {
		if !slices.ContainsFunc(listed, func(row string) bool { return covers(row, rel) }) {
			t.Errorf("package %s is missing", rel)
		}
	}
	for _, row := range listed {
		if _, err := os.Stat(strings.TrimSuffix(row, "/...")); err != nil {
			t.Errorf("%s: %v", row, err)
		}
	}
}
