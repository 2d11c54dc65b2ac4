package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/release"
)

func uninstallCommand(a *app) *cobra.Command {
	var o release.UninstallOptions
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Sluice from a cluster",
		Long: `Remove Sluice from a cluster, and what it has made: links, routes and rules on the nodes first, then the programs, then
the objects of the controllers, and the namespaces in which nothing of others is. What is removed is printed, and what is
left on purpose at the end.

The CRDs, and what users have made of their kinds, stay unless --purge is given: then nothing is left.

A cluster with peerings is not touched: 'liqoctl network reset' removes them, in the other cluster, too.`,
		Example: `  liqoctl uninstall --purge`,
		Args:    cobra.NoArgs,
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Purge, "purge", false, "remove the CRDs, too, with all objects of their kinds")
	fs.BoolVar(&o.Force, "force", false, "remove this side of the peerings that there are")
	fs.BoolVar(&o.SkipNodes, "skip-node-cleanup", false, "leave what the agents have made on the nodes")
	fs.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "`TIME` after which to give up waiting for one step")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chart, err := release.Embedded(build())
		if err != nil {
			return err
		}
		c, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		removal, err := release.PrepareUninstall(cmd.Context(), c, chart, o)
		if err != nil {
			return err
		}
		if removal.Nothing {
			a.console.Info("Nothing is installed: nothing to remove")
			return nil
		}
		if err := a.confirm(cmd.Context(), cmd.Name(), removal.ToRemove); err != nil {
			return err
		}
		removed, err := removal.Run(cmd.Context(), a.console.Progress())
		for _, l := range removed.Left {
			a.console.Warn("Left: " + l)
		}
		if err != nil {
			return err
		}
		a.console.Info(fmt.Sprintf("Sluice is uninstalled: %d objects removed", len(removed.Objects)))
		return nil
	}
	return cmd
}
