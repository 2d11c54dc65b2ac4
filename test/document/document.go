// Package document reads the commands, manifests and outputs that documents show,
// so that tests follow them word for word.
//
// There are two sets of documents, which tell of the same steps: walkthroughs of
// our own, in testdata, and those of Liqo, which are not part of this repository.
// The environment variable SLUICE_SPEC names the folder of the latter. Read prefers
// them, and takes ours where there is no such folder, so nothing is skipped then.
package document

import (
	"embed"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

//go:embed testdata
var testdata embed.FS

// Name is a document.
type Name struct{ ours, liqo string }

// The documents that are followed.
var (
	// Network tells how clusters are connected by commands, and by hand.
	Network = Name{"network.md", "1-inter-cluster-network.md"}
	// Declarative tells how clusters are connected by manifests alone.
	Declarative = Name{"declarative.md", "3-declarative-peering.md"}
	// script connects clusters; Liqo's stands in an earlier edition of Network.
	script = Name{"script.sh", "2-inter-cluster-network-first-edition.txt"}
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

// Read reads Liqo's document, and ours where SLUICE_SPEC names no folder.
func Read(t testing.TB, name Name) *Document {
	t.Helper()
	if text, ok := liqo(t, name); ok {
		return &Document{Name: name.liqo, blocks: blocks(text)}
	}
	return Ours(t, name)
}

// Ours reads our own document.
func Ours(t testing.TB, name Name) *Document {
	t.Helper()
	return &Document{Name: name.ours, blocks: blocks(ours(t, name))}
}

// Script is a script that connects two clusters: Liqo's, and ours where SLUICE_SPEC
// names no folder.
func Script(t testing.TB) string {
	t.Helper()
	text, ok := liqo(t, script)
	if !ok {
		return ours(t, script)
	}
	const first, last = "#!/bin/bash\n", "kubectl --kubeconfig $KUBE_CLIENT apply -f publickey-server.yaml\n"
	_, rest, ok := strings.Cut(text, first)
	body, _, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf("%s has no script", script.liqo)
	}
	return first + body + last
}

// liqo returns Liqo's document; ok is false where SLUICE_SPEC names no folder.
func liqo(t testing.TB, name Name) (text string, ok bool) {
	t.Helper()
	dir := os.Getenv("SLUICE_SPEC")
	if dir == "" {
		return "", false
	}
	b, err := os.ReadFile(filepath.Join(dir, name.liqo))
	if err != nil {
		t.Fatal(err)
	}
	return string(b), true
}

func ours(t testing.TB, name Name) string {
	t.Helper()
	b, err := testdata.ReadFile(path.Join("testdata", name.ours))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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
