package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/golden"
)

// manPages writes the manual, and returns its pages by their names.
func manPages(t *testing.T, as string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "share", "man1")
	liqoctlAs(t.Context(), as, "", "man", dir).want(t, "man", "", "")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := make(map[string]string, len(files))
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[f.Name()] = string(b)
	}
	return pages
}

// TestMan: every command that the help shows has a page, and pages refer to pages that exist.
func TestMan(t *testing.T) {
	pages := manPages(t, "liqoctl")
	for _, c := range commands(t) {
		hidden := c.Hidden || c.Parent() != nil && c.Parent().Hidden
		if _, ok := pages[manName(c)+".1"]; ok == hidden && c.Name() != "help" {
			t.Errorf("%s: hidden %v, has a page %v", c.CommandPath(), hidden, ok)
		}
	}
	reference := regexp.MustCompile(`([a-z\\-]+)\(1\)`)
	for name, page := range pages {
		found := reference.FindAllStringSubmatch(page[strings.LastIndex(page, ".SH"):], -1)
		if len(found) == 0 {
			t.Errorf("%s refers to no other page", name)
		}
		for _, m := range found {
			if to := strings.ReplaceAll(m[1], `\-`, "-") + ".1"; pages[to] == "" {
				t.Errorf("%s refers to %s, which is not there", name, to)
			}
		}
	}
	golden.Compare(t, "testdata/man/liqoctl-get-kubeconfig.1", strings.ReplaceAll(pages["liqoctl-get-kubeconfig.1"], "Sluice "+roff(clientVersion()), "Sluice VERSION"))
	for _, as := range []string{"sluicectl", "kubectl-liqo"} {
		other := manPages(t, as)
		want := as + "-network-connect.1"
		if page := other[want]; !strings.Contains(page, roff(as+"-network-connect - Connect")) || strings.Contains(page, "liqoctl ") {
			t.Errorf("as %s, %s is\n%s", as, want, page)
		}
	}
}

// TestManReads has groff typeset all pages: it complains about nothing, and what the help
// says can be read, each example and each flag as it is typed.
func TestManReads(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("NOT CHECKED: what a reader of the manual sees, as there is no groff. The source of the pages is.")
		return
	}
	pages := manPages(t, "liqoctl")
	for _, c := range commands(t) {
		page, ok := pages[manName(c)+".1"]
		if !ok {
			continue
		}
		typeset := exec.CommandContext(t.Context(), groff, "-man", "-K", "utf8", "-T", "utf8", "-P-cbou", "-ww", "-rLL=78n")
		typeset.Stdin = strings.NewReader(page)
		var complaints strings.Builder
		typeset.Stderr = &complaints
		out, err := typeset.Output()
		if err != nil || complaints.Len() > 0 {
			t.Errorf("%s: %v, %s", c.CommandPath(), err, &complaints)
		}
		var shown []string
		for line := range strings.Lines(string(out)) {
			shown = append(shown, strings.TrimSpace(line))
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			if line = strings.TrimSpace(line); !slices.Contains(shown, line) {
				t.Errorf("%s: no line is the example's %q", c.CommandPath(), line)
			}
		}
		words := strings.Fields(string(out))
		for _, word := range slices.Concat(strings.Fields(c.Long), strings.Fields(flagUsages(ownFlags(c), manColumns))) {
			if !slices.Contains(words, word) {
				t.Errorf("%s: the word %q is missing", c.CommandPath(), word)
			}
		}
	}
}
