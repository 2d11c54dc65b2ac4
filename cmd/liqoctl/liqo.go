package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// refusal is a command of Liqo that Sluice does not have. It exists, hidden, so that a script or a habit
// meets an answer and not a riddle: whatever flags it gets, it says why there is none, and what to do.
func refusal(a *app, name, because string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Not part of Sluice",
		Long:               "Not part of Sluice: " + because + ".",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "--help") || slices.Contains(args, "-h") { // no flag is parsed
				return cmd.Help()
			}
			return fmt.Errorf("%s: %s", cmd.CommandPath(), a.asCalled(because))
		},
	}
}
