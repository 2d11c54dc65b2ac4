package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/peering"
)

// timeoutOfNetwork is how long connecting and separating may take.
const timeoutOfNetwork = 2 * time.Minute

func networkInitCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Exchange the CIDRs of two clusters",
		Long: `Exchange the CIDRs of two clusters, without connecting them yet.

Each cluster gets a tenant namespace for the other and in it a Configuration with the pod CIDR and the external CIDR
that the other uses. If these are in use, the cluster chooses others by which it reaches its peer: see the columns of
'kubectl get configurations -A'. 'liqoctl network connect' does the same; use 'init' to check the addresses first.

The command can be repeated; existing objects are left unchanged.`,
		Example: `  liqoctl network init --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --wait

  # Two contexts of one kubeconfig.
  liqoctl network init --context rome --remote-context milan --wait`,
		Args: cobra.NoArgs,
	}
	var f peeringFlags
	f.add(cmd.Flags(), timeoutOfNetwork, "both clusters know by which addresses they reach the other")
	hide(cmd.Flags(), "skip-validation") // there is no template yet
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		local, remote, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		return peering.Init(cmd.Context(), local, remote, f.options(a), a.console.Progress())
	}
	return cmd
}
