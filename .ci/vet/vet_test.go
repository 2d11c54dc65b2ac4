package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFaults: each fault in testdata/faults is found where it says so, and nothing else is.
func TestFaults(t *testing.T) {
	vet := filepath.Join(t.TempDir(), "vet")
	if out, err := exec.Command("go", "build", "-o", vet, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	source, err := os.ReadFile("testdata/faults/faults.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	expect := regexp.MustCompile(`// want(-1)? (\w+)$`)
	for i, line := range strings.Split(string(source), "\n") {
		if m := expect.FindStringSubmatch(line); m != nil {
			n := i + 1
			if m[1] != "" {
				n--
			}
			want = append(want, fmt.Sprintf("%d %s", n, m[2]))
		}
	}

	command := exec.Command("go", "vet", "-vettool="+vet, "./...")
	command.Dir = "testdata/faults"
	out, err := command.CombinedOutput()
	if err == nil {
		t.Error("vet is content")
	}
	var got []string
	// The go command may repeat what it found in another clone, under that clone's path.
	finding := regexp.MustCompile(`(?m)^(?:\S*/)?faults\.go:(\d+):\d+: (.*?)(?: \((\w+)\))?$`)
	for _, m := range finding.FindAllStringSubmatch(string(out), -1) {
		name := m[3]
		if name == "" {
			name = "say"
			if strings.HasPrefix(m[2], "there is nothing to ignore") {
				name = "errorlint"
			}
		}
		got = append(got, m[1]+" "+name)
	}
	byLine := func(a, b string) int {
		x, _ := strconv.Atoi(strings.Fields(a)[0])
		y, _ := strconv.Atoi(strings.Fields(b)[0])
		return x - y
	}
	slices.SortStableFunc(got, byLine)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s\nin\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), out)
	}
	if strings.Contains(string(out), "_test.go") {
		t.Errorf("found something in a test:\n%s", out)
	}
}
