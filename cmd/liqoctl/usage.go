package main

import (
	"errors"
	"fmt"
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
{{- if .HasAvailableLocalFlags}}

Flags:
{{flags .LocalFlags}}
{{- end}}
{{- if .HasAvailableInheritedFlags}}

Global flags:
{{flags .InheritedFlags}}
{{- end}}
{{- if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND --help" shows more about a command.
{{- end}}
`

// finish gives every command of the tree the same manners.
func (a *app) finish(root *cobra.Command) {
	cobra.AddTemplateFunc("useLine", useLine)
	columns := helpWidth
	if n := a.console.Width(); n > 0 {
		columns = min(n, helpWidth)
	}
	cobra.AddTemplateFunc("fold", func(text string) string { return console.Fold(strings.TrimSpace(text), columns) })
	cobra.AddTemplateFunc("flags", func(fs *pflag.FlagSet) string {
		// Of a flag that needs no value pflag shows what it then has.
		return strings.TrimRight(strings.ReplaceAll(fs.FlagUsagesWrapped(columns), "LEVEL[=+1]", "[=LEVEL]  "), "\n")
	})
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(noSuchFlag)
	each(root, func(cmd *cobra.Command) {
		cmd.DisableFlagsInUseLine = true
		cmd.Long = a.asCalled(cmd.Long)
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

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		each(c, do)
	}
}

// asCalled puts the name of the program as the user calls it into a text.
func (a *app) asCalled(text string) string {
	if a.name == "liqoctl" {
		return text
	}
	return strings.ReplaceAll(text, "liqoctl ", a.name+" ")
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

// noSuchFlag names the flags that are meant instead of one that there is not.
func noSuchFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
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

// explain adds where to read on to an error that is about how the command was
// called.
func (a *app) explain(cmd *cobra.Command, err error) error {
	if a.running {
		return err
	}
	return fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())
}
