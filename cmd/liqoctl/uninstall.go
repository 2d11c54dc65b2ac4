package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/release"
)

func uninstallCommand(a *app) *cobra.Command {
	var o release.UninstallOptions
	var handBack, dryRun bool
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
clusters, with 'liqoctl unpeer', or where only the networks are connected with 'liqoctl network reset'.

Where 'liqoctl install --adopt' has taken over the network of Liqo, --hand-back gives it back, with all peerings and
addresses: Liqo's CRDs are put back, its controllers read everything anew and may write again, and its node agents have
their rules in force before those of Sluice are removed. The gateways stay Sluice's until 'liqoctl network adopt --all
--back'. Repeat the command after an interruption.`,
		Example: `  liqoctl uninstall --purge

  # Give the network back to Liqo.
  liqoctl uninstall --hand-back --dry-run
  liqoctl uninstall --hand-back`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Purge, "purge", false, "also remove the CRDs of Sluice, with all objects of their kinds")
	fs.BoolVar(&o.Force, "force", false, "also remove this cluster's side of existing peerings")
	fs.BoolVar(&o.SkipNodes, "skip-node-cleanup", false, "leave on the nodes what the agents created")
	fs.BoolVar(&handBack, "hand-back", false, "give the network that was taken over with 'liqoctl install --adopt' back to Liqo")
	fs.BoolVar(&dryRun, "dry-run", false, "with --hand-back, change nothing: list the objects that change")
	fs.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "`TIME` to wait for each step before giving up")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case handBack && (o.Purge || o.Force):
			return errors.New("--hand-back removes no peering and nothing of Liqo: leave out --purge and --force")
		case dryRun && !handBack:
			return errors.New("--dry-run is for --hand-back: without it the command shows what it removes, and asks")
		}
		chart, c, err := a.chartFor(cmd.Context())
		if err != nil {
			return err
		}
		if handBack {
			return a.handBack(cmd, c, chart, o, dryRun)
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
		a.tellLeft(removed)
		if err != nil {
			return err
		}
		a.console.Info(fmt.Sprintf("Sluice is uninstalled: %d objects removed", len(removed.Objects)))
		return nil
	}
	return cmd
}

// tellLeft tells what stays.
func (a *app) tellLeft(removed release.Removed) {
	for _, l := range removed.Left {
		a.console.Warn("Left: " + l)
	}
}

// handBack gives the network of a cluster back to Liqo.
func (a *app) handBack(cmd *cobra.Command, c *access.Cluster, chart *release.Chart, o release.UninstallOptions, dryRun bool) error {
	h, err := release.PrepareHandBack(cmd.Context(), c, chart, o)
	switch {
	case err != nil:
		return err
	case h.Nothing:
		a.console.Info("Sluice has taken nothing over here, so there is nothing to give back")
		return nil
	case dryRun:
		return a.printSteps(h.Steps)
	}
	if err := a.confirmSteps(cmd.Context(), cmd.Name(), c, h.Steps); err != nil {
		return err
	}
	given, err := h.Run(cmd.Context(), a.console.Progress())
	a.tellLeft(given)
	if err != nil {
		return err
	}
	a.console.Info("Liqo runs the network of this cluster again. Its gateways are Sluice's still: 'liqoctl network adopt --all --back' gives them back, too")
	return nil
}
