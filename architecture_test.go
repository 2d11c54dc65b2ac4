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

// TestArchitecture: the table of ARCHITECTURE.md has every package, and none that
// does not exist.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range roomRow.FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			listed = append(listed, strings.Trim(name, "`"))
		}
	}
	if len(listed) == 0 {
		t.Fatal("there is no table of packages")
	}
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
