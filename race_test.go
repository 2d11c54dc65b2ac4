package sluice_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCountersOfAllocations: the race detector allocates, so tests that count allocations run without it, too. They are
// those in packages with the word "Alloc" in test/race that have this word in their names. This test finds others that
// count, by themselves or with a function of their package.
func TestCountersOfAllocations(t *testing.T) {
	const word = "Alloc"
	text, err := os.ReadFile("test/race")
	if err != nil {
		t.Fatal(err)
	}
	patterns := map[string][]string{} // by the word after them
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if f := append(strings.Fields(line), ""); len(f) > 1 {
			patterns[f[1]] = append(patterns[f[1]], f[0])
		}
	}
	again := folders(t, patterns[word])
	for _, dir := range folders(t, append(patterns[""], patterns[word]...)) {
		tests, runAgain := countersOfAllocations(t, dir), slices.Contains(again, dir)
		if runAgain && len(tests) == 0 {
			t.Errorf("no test in %s counts allocations: remove it from the packages with the word %s in test/race", dir, word)
		}
		for _, test := range tests {
			switch {
			case test == "TestWaitPool": // of wireguard-go, where it is disabled
			case !runAgain:
				t.Errorf("%s in %s counts allocations: add the package to those with the word %s in test/race", test, dir, word)
			case !strings.Contains(test, word):
				t.Errorf("%s in %s counts allocations, so its name must contain %s", test, dir, word)
			}
		}
	}
}

// folders are those of the packages that match patterns.
func folders(t *testing.T, patterns []string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-f", "{{.Dir}}"}, patterns...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", patterns, err)
	}
	return strings.Fields(string(out))
}

// countersOfAllocations are the tests in a folder that count allocations, or ask for the race detector.
func countersOfAllocations(t *testing.T, dir string) (tests []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string][]string{} // the names in a function
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if i, ok := n.(*ast.Ident); ok {
					uses[f.Name.Name] = append(uses[f.Name.Name], i.Name)
				}
				return true
			})
		}
	}
	counting := map[string]bool{"AllocsPerRun": true, "Race": true, "raceEnabled": true}
	for grown := true; grown; {
		grown = false
		for name, names := range uses {
			if !counting[name] && slices.ContainsFunc(names, func(n string) bool { return counting[n] }) {
				counting[name], grown = true, true
			}
		}
	}
	for name := range uses {
		if counting[name] && slices.ContainsFunc([]string{"Test", "Fuzz", "Example"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			tests = append(tests, name)
		}
	}
	return tests
}
