package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// manCommand writes the manual. It is hidden, as it is for those who package the program.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages into a directory",
		Long:    "Write a manual page for every command into a directory, which is made if it does not exist.",
		Example: "  liqoctl man /usr/local/share/man/man1",
		Hidden:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("expected one DIR, the directory for the pages; got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for _, c := range manCommands(cmd.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], manName(c)+".1"), []byte(manPage(c)), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// manCommands are those that have a page: all that the help shows.
func manCommands(root *cobra.Command) (all []*cobra.Command) {
	all = append(all, root)
	for _, c := range available(root) {
		all = append(all, manCommands(c)...)
	}
	return all
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manColumns is how wide preformatted text is: 80, without the margins that man leaves.
const manColumns = 70

// manPage is the manual page of a command, in the macros of man(7). It holds what the help
// does, and no date, so that every build writes the same.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	macro := func(name string, args ...string) {
		b.WriteString("." + name)
		for _, a := range args {
			b.WriteString(` "` + strings.ReplaceAll(roff(a), `"`, `\(dq`) + `"`)
		}
		b.WriteString("\n")
	}
	preformatted := func(text string) {
		macro("nf")
		b.WriteString(roff(text) + "\n")
		macro("fi")
	}
	macro("TH", strings.ToUpper(manName(cmd)), "1", "", "Sluice "+clientVersion(), "Sluice")
	b.WriteString(".nh\n.ad l\n") // words stay whole: many are names
	macro("SH", "NAME")
	b.WriteString(roff(manName(cmd)+" - "+cmd.Short) + "\n")
	macro("SH", "SYNOPSIS")
	b.WriteString(roff(useLine(cmd)) + "\n")
	macro("SH", "DESCRIPTION")
	for i, paragraph := range strings.Split(strings.TrimSpace(cmd.Long), "\n\n") {
		if i > 0 {
			macro("PP")
		}
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") { // a table
			preformatted(paragraph)
		} else {
			b.WriteString(roff(paragraph) + "\n")
		}
	}
	if len(cmd.Aliases) > 0 {
		macro("SH", "ALIASES")
		b.WriteString(roff(strings.Join(cmd.Aliases, ", ")) + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		macro("SH", "COMMANDS")
		for _, c := range available(cmd) {
			macro("TP")
			macro("B", c.Name())
			b.WriteString(roff(c.Short) + "\n")
		}
	}
	cmd.InitDefaultHelpFlag()
	own := flagUsages(ownFlags(cmd), manColumns)
	if !cmd.HasParent() { // what other pages refer to
		own = flagUsages(cmd.LocalFlags(), manColumns)
	}
	for _, section := range []struct{ title, text string }{
		{"OPTIONS", own}, {"INHERITED OPTIONS", flagUsages(inheritedFlags(cmd), manColumns)}, {"EXAMPLES", cmd.Example},
	} {
		if section.text != "" {
			macro("SH", section.title)
			preformatted(section.text)
		}
	}
	macro("SH", "SEE ALSO")
	b.WriteString(roff(strings.Join(manReferences(cmd), ", ")) + "\n")
	return b.String()
}

// manReferences are the pages beside that of a command: that of the whole program, which has
// the options of all commands, that above it, and those below it.
func manReferences(cmd *cobra.Command) []string {
	var near []*cobra.Command
	if cmd.HasParent() {
		near = append(near, cmd.Root())
		if cmd.Parent() != cmd.Root() {
			near = append(near, cmd.Parent())
		}
	}
	var names []string
	for _, c := range append(near, available(cmd)...) {
		names = append(names, manName(c)+"(1)")
	}
	return names
}

// roff is a text in which nothing is taken for a request or an escape. Its dashes are those
// of ASCII, so that what is copied from a page can be run.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
