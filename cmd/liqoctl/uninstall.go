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
		Long: `Remove Sluice from a cluster, with everything that it created: first links, routes and rules on the nodes,
then the programs, then the objects of the controllers, and the namespaces that contain nothing else. The command prints
what it removes, and at the end what it leaves on purpose.

Peering users lose their rights. The CRDs of Sluice, and users' objects of these kinds, stay; --purge removes them,
and the credentials that the controllers created. Always left are the CRDs and ServiceExports of the Multi-Cluster
Services API (multicluster.x-k8s.io), as other software may use them, and namespaces that contain other objects.

A cluster with peerings is not touched: networks, identities, tenants and virtual nodes. Remove them first, in both
clusters, with 'liqoctl unpeer', or where only the networks are connected with 'liqoctl network reset'.`,
		Example: `  liqoctl uninstall --purge`,
		Args:    cobra.NoArgs,
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Purge, "purge", false, "also remove the CRDs of Sluice, with all objects of their kinds")
	fs.BoolVar(&o.Force, "force", false, "also remove this cluster's side of existing peerings")
	fs.BoolVar(&o.SkipNodes, "skip-node-cleanup", false, "leave on the nodes what the agents created")
	fs.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "`TIME` to wait for each step before giving up")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chart, c, err := a.chartFor(cmd.Context())
		if err != nil {
			return err
		}
		removal, err := release.PrepareUninstall(cmd.Context(), c, chart, o)
		if err != nil {
			return err
		}
		if removal.Nothing {
			a.console.Info("Nothing is installed, so there is nothing to remove")
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
