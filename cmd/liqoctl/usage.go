package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// helpWidth is how wide help is where the window allows it.
const helpWidth = 100

const helpTemplate = `{{with or .Long .Short}}{{fold .}}

{{end}}{{.UsageString}}`

const usageTemplate = `Usage:
  {{useLine .}}
{{- if .Aliases}}

Aliases:
  {{.NameAndAliases}}
{{- end}}
{{- if .HasExample}}

Examples:
{{.Example}}
{{- end}}
{{- if .HasAvailableSubCommands}}
{{- $commands := .Commands}}
{{- if .Groups}}
{{- range $group := .Groups}}

{{.Title}}
{{- range $commands}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}}  {{.Short}}
{{- end}}{{end}}
{{- end}}

Other commands:
{{- range $commands}}{{if and (eq .GroupID "") .IsAvailableCommand}}
  {{rpad .Name .NamePadding}}  {{.Short}}
{{- end}}{{end}}
{{- else}}

Commands:
{{- range $commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}}  {{.Short}}
{{- end}}{{end}}
{{- end}}
{{- end}}
{{- with flags (ownFlags .)}}

Flags:
{{.}}
{{- end}}
{{- with flags (inheritedFlags .)}}

Inherited flags:
{{.}}
{{- end}}
{{- if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND --help" shows more about a command.
{{- else}}
{{end}}
"{{.Root.DisplayName}} options" lists the flags of all commands, such as --kubeconfig and --context.
`

// ownFlags are the flags of a command and, with those that its subcommands inherit, not
// those of all commands, which 'liqoctl options' lists.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	if !cmd.HasParent() {
		return cmd.LocalNonPersistentFlags()
	}
	return cmd.LocalFlags()
}

// inheritedFlags are those that a command has from others, except from the root.
func inheritedFlags(cmd *cobra.Command) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	all := cmd.Root().PersistentFlags()
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if all.Lookup(f.Name) == nil {
			fs.AddFlag(f)
		}
	})
	return fs
}

// optionsCommand lists the flags of all commands, which would be most of their help.
func optionsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "List the flags of all commands",
		Long:    "List the flags that all commands have.",
		Example: "  liqoctl options",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(a.stdout, "All commands have these flags:\n%s\n", a.flagUsages(cmd.Root().PersistentFlags()))
			return err
		},
	}
}

// flagUsages describes flags, as wide as the window allows.
func (a *app) flagUsages(fs *pflag.FlagSet) string { return flagUsages(fs, a.helpColumns()) }

// flagUsages describes flags in lines of so many columns.
func flagUsages(fs *pflag.FlagSet, columns int) string {
	// Of a flag that needs no value pflag shows what it then has.
	return strings.TrimRight(strings.ReplaceAll(fs.FlagUsagesWrapped(columns), "LEVEL[=+1]", "[=LEVEL]  "), "\n")
}

func (a *app) helpColumns() int {
	if n := a.console.Width(); n > 0 {
		return min(n, helpWidth)
	}
	return helpWidth
}

// finish gives every command of the tree the same manners.
func (a *app) finish(root *cobra.Command) {
	cobra.AddTemplateFunc("useLine", useLine)
	columns := a.helpColumns()
	cobra.AddTemplateFunc("fold", func(text string) string { return console.Fold(strings.TrimSpace(text), columns) })
	cobra.AddTemplateFunc("flags", a.flagUsages)
	cobra.AddTemplateFunc("ownFlags", ownFlags)
	cobra.AddTemplateFunc("inheritedFlags", inheritedFlags)
	root.SetHelpTemplate(helpTemplate)
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		// cobra does not look at the words beside --help.
		if cmd.HasSubCommands() {
			if a.misspelt = noSuchCommand(cmd, cmd.Flags().Args()); a.misspelt != nil {
				return
			}
		}
		show(cmd, args)
	})
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(noSuchFlag)
	each(root, func(cmd *cobra.Command) {
		cmd.DisableFlagsInUseLine = true
		cmd.Short, cmd.Long = a.asCalled(cmd.Short), a.asCalled(cmd.Long)
		cmd.Example = a.asCalled(strings.TrimRight(cmd.Example, "\n"))
		if cmd.HasSubCommands() && !cmd.Runnable() {
			cmd.Args = noSuchCommand
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		if runE := cmd.RunE; runE != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				a.running = true
				return runE(cmd, args)
			}
		}
	})
}

// available are the commands below one that the help shows.
func available(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		each(c, do)
	}
}

// asCalled puts the name of the program as the user calls it into a text.
func (a *app) asCalled(text string) string {
	switch a.name {
	case liqoName:
		return text
	case ourName: // also in the names of files
		return strings.ReplaceAll(text, liqoName, ourName)
	}
	return strings.ReplaceAll(text, liqoName+" ", a.name+" ")
}

func useLine(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine() + " [flags]"
}

// noSuchCommand is the Args of commands that only hold others.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Sprintf("unknown command %q", args[0])
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		err += fmt.Sprintf(", did you mean %s?", strings.Join(similar, " or "))
	}
	return errors.New(err)
}

// maxSimilar is how many flags are worth naming: of "--remote" there are many more.
const maxSimilar = 3

// oneOf is the Args of commands that take none or one of some words.
func oneOf(what string, words ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("expected one %s at most, got %d: %s", what, len(args), strings.Join(args, ", "))
		}
		if len(args) == 1 && !slices.Contains(words, args[0]) {
			return fmt.Errorf("%q is no known %s: use one of %s", args[0], what, strings.Join(words, ", "))
		}
		return nil
	}
}

// someNames is the Args of commands that take the names of objects, one at least.
func someNames(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("expected the NAME of one or more objects, got none")
	}
	return nil
}

// noSuchFlag names the flags that are meant instead of one that there is not.
func noSuchFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return plainValueError(invalid, err)
	}
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	// cobra knows what is similar, of commands only.
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	similar := names.SuggestionsFor(unknown.GetSpecifiedName())
	if len(similar) == 0 || len(similar) > maxSimilar {
		return err
	}
	return fmt.Errorf("%w, did you mean --%s?", err, strings.Join(similar, " or --"))
}

// plainValueError says what a flag takes, where the parser would tell how it failed to read it.
func plainValueError(invalid *pflag.InvalidValueError, err error) error {
	takes := map[string]string{
		"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "uint": "a whole number from 0 on", "uint16": "a number from 0 to 65535",
		"uint32": "a whole number from 0 on", "uint64": "a whole number from 0 on", "bool": "true or false", "duration": "a time, such as 30s, 5m or 1h30m",
		"ports": "a whole number, or several separated by commas", "stringToString": "key=value, several separated by commas",
	}[invalid.GetFlag().Value.Type()]
	if takes == "" {
		return err
	}
	return fmt.Errorf("--%s %q: must be %s", invalid.GetFlag().Name, invalid.GetValue(), takes)
}

// explain adds where to read on to an error that is about how the command was
// called.
func (a *app) explain(cmd *cobra.Command, err error) error {
	if a.running {
		return err
	}
	return fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())
}
