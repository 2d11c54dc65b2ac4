package lab

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Change is a source file of a program as a test wants it. Each edit has a text that stands in the file once, and what
// takes its place; a file without edits is a new one with the text.
type Change struct {
	File  string
	Edits [][2]string
	Text  string
}

// BuildChanged is Build of a program of which some sources are changed. It fails where a text is not there any more.
func BuildChanged(t T, pkg string, changes ...Change) string {
	t.Helper()
	sum := sha256.New()
	for _, c := range changes {
		fmt.Fprintf(sum, "%q\n", c)
	}
	// The same changes have the same name, by which Build knows that it has built them.
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d-bin-changed-%x", prefix, os.Getpid(), sum.Sum(nil)[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := make(map[string]string)
	for i, c := range changes {
		text := c.Text
		if len(c.Edits) > 0 {
			original, err := os.ReadFile(c.File)
			if err != nil {
				t.Fatal(err)
			}
			text = string(original)
		}
		for _, e := range c.Edits {
			if strings.Count(text, e[0]) != 1 {
				t.Fatalf("%s has not %q once: it has changed, and what is built from it must, too", c.File, e[0])
			}
			text = strings.Replace(text, e[0], e[1], 1)
		}
		replace[c.File] = put(fmt.Sprintf("%d.go", i), text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return Build(t, pkg, "-overlay", put("overlay.json", string(overlay)))
}
