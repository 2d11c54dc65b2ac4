package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsParse: every command line of this program in the documents has
// commands, arguments and flags that exist, in blocks of commands as in sentences.
func TestDocumentsParse(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no documents in ../../docs")
	}
	for _, file := range append(files, "../../README.md", "../../deploy/chart/README.md") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			blocks, prose := commandBlocks(string(text))
			lines := exampleLines(blocks)
			if strings.Contains(blocks, "liqoctl ") && len(lines) == 0 {
				t.Fatal("no command line was found in the blocks of commands")
			}
			for _, args := range lines {
				checkLine(t, args, true)
			}
			for _, quoted := range inlineCommand.FindAllStringSubmatch(prose, -1) {
				args := exampleLines(strings.ReplaceAll(quoted[1], " ... ", " "))
				checkLine(t, args[0], false)
			}
		})
	}
}

// inlineCommand is a command line within a sentence. It may be broken into lines.
var inlineCommand = regexp.MustCompile("`(liqoctl [^`]+)`")

// commandBlocks splits a document into what stands between fences that say sh, and
// what stands between none.
func commandBlocks(text string) (blocks, prose string) {
	var b, p strings.Builder
	fence := ""
	for line := range strings.SplitSeq(text, "\n") {
		mark, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && fence == "":
			fence = "```" + mark
		case isFence:
			fence = ""
		case fence == "```sh":
			b.WriteString(line + "\n")
		case fence == "":
			p.WriteString(line + " ")
		}
	}
	return b.String(), p.String()
}

// checkLine parses a command line as the program does. What is only mentioned need
// not be complete.
func checkLine(t *testing.T, args []string, complete bool) {
	t.Helper()
	root := rootCommand(newApp("liqoctl", nil, nil, nil))
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil && (complete || cmd.HasSubCommands()) {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err == nil && complete {
		err = cmd.ValidateRequiredFlags()
	}
	if err != nil {
		t.Errorf("liqoctl %s: %v", strings.Join(args, " "), err)
	}
}
