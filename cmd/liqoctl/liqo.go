package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// foreign is a command of Liqo that Sluice does not have. It exists, hidden,
// so that a script or a habit meets an answer and not a riddle.
type foreign struct {
	use     string // with its aliases after it: "authenticate auth"
	because string // why there is none, and what to do
}

// liqoCommands are those at the top.
func liqoCommands(a *app) []*cobra.Command {
	return refusals(a,
		foreign{"move", "it moves volumes between clusters, which Sluice cannot: pods with PersistentVolumeClaims stay here; 'liqoctl offload namespace --help' tells which pods go"},
	)
}

// refusals are commands that say why they do nothing, whatever flags they get.
func refusals(a *app, commands ...foreign) []*cobra.Command {
	var refused []*cobra.Command
	for _, f := range commands {
		names := strings.Fields(f.use)
		refused = append(refused, &cobra.Command{
			Use:                names[0],
			Aliases:            names[1:],
			Short:              "Not part of Sluice",
			Long:               "Not part of Sluice: " + f.because + ".",
			Hidden:             true,
			DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				if slices.Contains(args, "--help") || slices.Contains(args, "-h") { // no flag is parsed
					return cmd.Help()
				}
				return fmt.Errorf("%s: %s", cmd.CommandPath(), a.asCalled(f.because))
			},
		})
	}
	return refused
}
