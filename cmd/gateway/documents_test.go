package main

import (
	"os"
	"strings"
	"testing"
)

// TestExampleParses: the command lines of the example of standalone gateways have
// flags that exist.
func TestExampleParses(t *testing.T) {
	text, err := os.ReadFile("../../docs/examples/standalone/README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		args := strings.Fields(line)
		if len(args) < 2 || args[0] != "bin/gateway" || args[1] == "status" {
			continue
		}
		lines++
		if _, err := parseFlags(args[1:len(args)-1], nil); err != nil { // the last one is &
			t.Errorf("%s: %v", line, err)
		}
	}
	if lines != 2 {
		t.Errorf("%d command lines, want one for each end", lines)
	}
}
