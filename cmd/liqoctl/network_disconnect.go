package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/controlplane/peering"
)

func networkDisconnectCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disconnect",
		Short: "Take down the connection between two clusters",
		Long: `Take down the connection between two clusters: their gateways for each other are deleted, and with them the tunnel and
the keys. Pods of the two clusters reach each other no more, and open connections break.

What each cluster knows of the other's network stays, so that 'liqoctl network connect' finds the same addresses again;
'liqoctl network reset' removes that, too. Which of the clusters has the server is found out. A gateway that is gone
already is no mistake, so the command may be repeated.`,
		Example: `  liqoctl network disconnect --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --wait

  # In a script.
  liqoctl network disconnect --context rome --remote-context milan --wait --skip-confirm`,
		Args: cobra.NoArgs,
	}
	var f peeringFlags
	f.add(cmd.Flags(), timeoutOfNetwork, "nothing of the gateways runs any more")
	hide(cmd.Flags(), "skip-validation")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.confirm(cmd.Context(), cmd.Name()); err != nil {
			return err
		}
		local, remote, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		return peering.Disconnect(cmd.Context(), local, remote, f.options(a), a.console.Progress())
	}
	return cmd
}
