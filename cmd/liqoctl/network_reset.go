package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/peering"
)

func networkResetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Disconnect two clusters, and make them forget each other",
		Long: `Do what 'liqoctl network disconnect' does, and make both clusters forget each other: delete
Configurations and public keys, and free the addresses that stood for the other cluster. After another 'liqoctl network
connect' these addresses may be different.

A tenant namespace is deleted as well if liqoctl made it (it then has the label app.kubernetes.io/managed-by=liqoctl)
and only objects of liqoctl and the controllers are left in it. All other namespaces stay.`,
		Example: `  liqoctl network reset --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --wait

  # Milan no longer exists.
  liqoctl network reset --context rome --remote-cluster-id milan --wait`,
		Args: cobra.NoArgs,
	}
	var f removalFlags
	f.add(cmd.Flags(), "nothing of the peering is left")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		local, remote, err := f.clusters(cmd.Context(), a)
		if err != nil {
			return err
		}
		o := f.options(a)
		o.OwnNamespaces = true
		o.Confirm = a.confirmer(cmd.Name())
		return peering.Reset(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}
