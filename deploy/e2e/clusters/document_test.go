package clusters

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The documents whose manifests and commands are used as they stand.
const (
	manualDocument      = "1-inter-cluster-network.md"
	declarativeDocument = "3-declarative-peering.md"
)

// document holds the code blocks of a document, in order.
type document struct {
	name   string
	blocks []string
}

// readDocument reads a document of the folder SLUICE_SPEC. Without the folder
// the test is skipped.
func readDocument(t *testing.T, name string) *document {
	t.Helper()
	dir := os.Getenv("SLUICE_SPEC")
	if dir == "" {
		t.Skip("SKIPPED: SLUICE_SPEC does not name the folder of the documents, so their walkthroughs are NOT tested")
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{name: name}
	fence, block := "", []string(nil)
	for line := range strings.SplitSeq(string(b), "\n") {
		mark := strings.TrimSpace(line)
		switch {
		case fence == "" && (strings.HasPrefix(mark, "```yaml") || strings.HasPrefix(mark, "```bash") || strings.HasPrefix(mark, "```text") || strings.HasPrefix(mark, "``` bash")):
			fence, block = "```", nil
		case fence != "" && mark == fence:
			d.blocks = append(d.blocks, strings.Join(block, "\n")+"\n")
			fence = ""
		case fence != "":
			block = append(block, line)
		}
	}
	return d
}

// block returns the first block that holds all the words, with its placeholders
// replaced: pairs of a placeholder, without its <>, and a value. None may be
// left.
func (d *document) block(t *testing.T, words []string, values ...string) string {
	t.Helper()
next:
	for _, b := range d.blocks {
		for _, w := range words {
			if !strings.Contains(b, w) {
				continue next
			}
		}
		for i := 0; i < len(values); i += 2 {
			b = strings.ReplaceAll(b, "<"+values[i]+">", values[i+1])
		}
		if i := strings.Index(b, "<"); i >= 0 {
			t.Fatalf("%s: a placeholder is left in\n%s", d.name, b)
		}
		return b
	}
	t.Fatalf("%s has no block with %q", d.name, words)
	return ""
}
