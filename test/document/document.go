// Package document reads the commands, manifests and outputs that the documents of
// a folder show, so that tests follow them word for word. The folder is named by
// the environment variable SLUICE_SPEC. The documents are no part of this
// repository: where they are missing, tests that need them are skipped, which they
// say.
package document

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The documents that are followed.
const (
	// Network tells how clusters are connected by commands, by hand and with
	// templates of one's own.
	Network = "1-inter-cluster-network.md"
	// Script is the first edition of Network, which ends with a script.
	Script = "2-inter-cluster-network-first-edition.txt"
	// Declarative tells how clusters are connected by manifests alone.
	Declarative = "3-declarative-peering.md"
)

// Document holds the code blocks of a document, in order.
type Document struct {
	// Name is that of its file.
	Name   string
	blocks []block
}

// block is what stands between two fences. Its last line keeps its end.
type block struct {
	language string
	text     string
}

// Text returns a document as it stands. Without the folder the test is skipped.
func Text(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("SLUICE_SPEC")
	if dir == "" {
		t.Skip("SKIPPED: SLUICE_SPEC does not name the folder of the documents, so what they tell is NOT tested")
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Read reads the blocks of a document. Without the folder the test is skipped.
func Read(t testing.TB, name string) *Document {
	t.Helper()
	return &Document{Name: name, blocks: blocks(Text(t, name))}
}

// blocks returns what stands between fences that say yaml, bash or text.
func blocks(text string) (blocks []block) {
	inside := ""
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		mark := strings.TrimSpace(line)
		switch {
		case inside == "":
			inside, lines = opens(mark), nil
		case mark == "```":
			blocks = append(blocks, block{inside, strings.Join(lines, "\n") + "\n"})
			inside = ""
		default:
			lines = append(lines, line)
		}
	}
	return blocks
}

// opens returns the language of the block that a line begins, or nothing.
func opens(line string) string {
	if rest, ok := strings.CutPrefix(line, "```"); ok {
		switch language := strings.TrimSpace(rest); language {
		case "yaml", "bash", "text":
			return language
		}
	}
	return ""
}

// Block returns the first block that holds all the words, with its placeholders
// replaced: pairs of a placeholder, without its <>, and a value. None may be left.
func (d *Document) Block(t testing.TB, words []string, values ...string) string {
	t.Helper()
	found := d.Blocks(words...)
	if len(found) == 0 {
		t.Fatalf("%s has no block with %q", d.Name, words)
	}
	text := found[0]
	for i := 0; i < len(values); i += 2 {
		text = strings.ReplaceAll(text, "<"+values[i]+">", values[i+1])
	}
	if strings.Contains(text, "<") {
		t.Fatalf("%s: a placeholder is left in\n%s", d.Name, text)
	}
	return text
}

// Blocks returns all blocks that hold all the words, as they stand.
func (d *Document) Blocks(words ...string) (found []string) {
	for _, b := range d.blocks {
		if b.holds(words) {
			found = append(found, b.text)
		}
	}
	return found
}

func (b block) holds(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(b.text, w) })
}

// Outputs returns what the document shows as the output of the commands that hold
// all the words, as it stands.
func (d *Document) Outputs(words ...string) (found []string) {
	for i, b := range d.blocks {
		if i > 0 && b.language == "text" && d.blocks[i-1].language == "bash" && d.blocks[i-1].holds(words) {
			found = append(found, b.text)
		}
	}
	return found
}

// wait is what liqoctl writes again and again about a step that takes longer than
// ten seconds, where there is no terminal to show it on.
var wait = regexp.MustCompile(`^INFO .* \((\d+h)?(\d+m)?\d+s\)$`)

// IsWait tells whether a line of liqoctl is about something that takes long, as in
// "INFO   (remote) Deleting gateway server (10s)". The outputs that the documents
// show are of clusters where nothing did; in one that is new some things do: its
// garbage collector looks for new kinds of objects every 30 s, and removes nothing
// that belongs to an object of a kind that it does not know.
func IsWait(line string) bool { return wait.MatchString(strings.TrimSpace(line)) }
