package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/test/golden"
)

// commands are all commands, also the hidden ones.
func commands(t *testing.T) []*cobra.Command {
	t.Helper()
	var all []*cobra.Command
	each(rootCommand(newApp("liqoctl", nil, nil, nil)), func(c *cobra.Command) { all = append(all, c) })
	return all
}

// TestHelp: the help of every command is a golden file, so that a change of it is
// seen.
func TestHelp(t *testing.T) {
	for _, c := range commands(t) {
		if c.Hidden || c.Parent() != nil && c.Parent().Hidden {
			continue
		}
		words := strings.Fields(c.CommandPath())
		t.Run(strings.Join(words, "_"), func(t *testing.T) {
			got := liqoctl(t.Context(), append(words[1:], "--help")...)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
			}
			golden.Compare(t, "testdata/help/"+strings.Join(words, "_")+".txt", got.stdout)
		})
	}
}

// TestCommandsTeach: a command says what it does, in one line and in more, and
// shows how it is used.
func TestCommandsTeach(t *testing.T) {
	for _, c := range commands(t) {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		path := c.CommandPath()
		switch {
		case c.Short == "" || strings.HasSuffix(c.Short, ".") || strings.Contains(c.Short, "TODO"):
			t.Errorf("%s: Short %q is not one line without a full stop", path, c.Short)
		case c.Long == "":
			t.Errorf("%s has no Long", path)
		case c.Example == "" && !c.HasSubCommands():
			t.Errorf("%s has no Example", path)
		case c.Args == nil:
			t.Errorf("%s does not say which arguments it takes", path)
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			if line != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the line %q of its Example is not indented by two", path, line)
			}
		}
	}
}

// TestExamplesParse: every command line of an example has flags that exist.
func TestExamplesParse(t *testing.T) {
	for _, c := range commands(t) {
		for _, args := range exampleLines(c.Example) {
			root := rootCommand(newApp("liqoctl", nil, nil, nil))
			cmd, rest, err := root.Find(args)
			if err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), args, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), args, err)
				continue
			}
			if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), args, err)
			}
			if err := cmd.ValidateRequiredFlags(); err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), args, err)
			}
		}
	}
}

// exampleLines are the command lines of this program in an example, without its
// name and without what a shell does with the output.
func exampleLines(example string) [][]string {
	var lines [][]string
	joined := strings.ReplaceAll(example, "\\\n", " ")
	for line := range strings.SplitSeq(joined, "\n") {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
		line, _, _ = strings.Cut(line, " > ")
		line, _, _ = strings.Cut(line, " # ")
		if words := shellWords(line); len(words) > 0 && words[0] == "liqoctl" {
			lines = append(lines, words[1:])
		}
	}
	return lines
}

// shellWords splits a line as a shell does, as far as examples need it.
func shellWords(line string) []string {
	var words []string
	word, quote, inside := "", rune(0), false
	for _, r := range line {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inside = r, true
		case r == quote:
			quote = 0
		case quote == 0 && r == ' ':
			if inside {
				words = append(words, word)
			}
			word, inside = "", false
		default:
			word, inside = word+string(r), true
		}
	}
	if inside {
		words = append(words, word)
	}
	return words
}
