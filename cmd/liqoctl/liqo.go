package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// foreign is a command of Liqo that is not about the network. It exists, hidden,
// so that a script or a habit meets an answer and not a riddle.
type foreign struct {
	use     string // with its aliases after it: "authenticate auth"
	because string // why there is none, and what to do
}

const (
	offloading = "it belongs to Liqo's offloading, which Sluice does not have: run pods where you want them; 'liqoctl network connect' lets them reach each other"
)

// liqoCommands are those at the top.
func liqoCommands(a *app) []*cobra.Command {
	return refusals(a,
		foreign{"offload", offloading},
		foreign{"unoffload", offloading},
		foreign{"move", offloading},
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
			Hidden:             true,
			DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return fmt.Errorf("%s: %s", cmd.CommandPath(), a.asCalled(f.because))
			},
		})
	}
	return refused
}
