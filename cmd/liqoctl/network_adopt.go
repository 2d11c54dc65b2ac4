package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/release"
)

func networkAdoptCommand(a *app) *cobra.Command {
	var o release.AdoptOptions
	var sources release.Sources
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "adopt [PEER-ID...]",
		Short: "In a cluster with Liqo, hand peerings to Sluice's gateway, or back",
		Long: `In a cluster in which Liqo runs, replace its gateway of a peering by Sluice's, or with --back Sluice's by
Liqo's. Liqo's controllers and its node agent stay, and so do keys, addresses, ports and the objects of the peering. The
other cluster is not involved and may have either gateway.

The gateway of the peering is made to refer to a copy of its template with Sluice's pod. Traffic stops while one pod
replaces the other. Before that, a pod with the same image runs once, so that a wrong image stops nothing. A gateway
that does not get ready, or whose peer does not answer again, goes back to Liqo's template; with --back, to Sluice's.
Where Sluice runs the network, it stays, as no controller would run Liqo's.

PEER-ID is the ID of the remote cluster. Peerings are handed over one after the other. Repeat the command, with the same
flags, after an interruption: it also waits for gateways that were handed over before, and fails if a peer does not
answer. Repeat it with the liqoctl of another version to replace the image. With --back, what the command created is
deleted when no gateway needs it any more.`,
		Example: `  liqoctl network adopt milan --dry-run
  liqoctl network adopt milan
  liqoctl network adopt milan --back

  # All peerings, with images from a registry.
  liqoctl network adopt --all --set registry=registry.example.org/sluice,tag=v0.1.0`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completePeers(),
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.All, "all", false, "hand over all peerings")
	fs.BoolVar(&o.Back, "back", false, "give peerings back to Liqo's gateway")
	fs.BoolVar(&dryRun, "dry-run", false, "change nothing: list the objects that would change, and those that stay")
	fs.DurationVar(&o.Timeout, "timeout", 2*time.Minute, "`TIME` to wait for each gateway before it goes back")
	fs.StringArrayVarP(&sources.Files, "values", "f", nil, "`FILE` with values of Sluice's chart for its gateways; - is stdin; may be repeated")
	fs.StringArrayVar(&sources.Set, "set", nil, "`VALUE` of the chart (path=value,...); may be repeated")
	fs.StringArrayVar(&sources.SetString, "set-string", nil, "like --set, but the `VALUE` is always a string")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if a.remote.given() {
			return errors.New("adopt changes one cluster, that of --kubeconfig and --context: leave out the flags of the remote one")
		}
		o.Peers = args
		if o.Values, err = sources.Read(cmd.InOrStdin()); err != nil {
			return err
		}
		chart, c, err := a.chartFor(cmd.Context())
		if err != nil {
			return err
		}
		adoption, err := release.PrepareAdoption(cmd.Context(), c, chart, o)
		if err != nil {
			return err
		}
		for _, n := range adoption.Notes {
			a.console.Info(n)
		}
		if dryRun {
			return a.printSteps(adoption.Steps)
		}
		if !adoption.Idle() {
			if err := a.confirmSteps(cmd.Context(), cmd.Name(), c, adoption.Steps); err != nil {
				return err
			}
		}
		return adoption.Run(cmd.Context(), a.console.Progress())
	}
	return cmd
}

// printSteps is what a dry run shows.
func (a *app) printSteps(steps []release.AdoptionStep) error {
	_, err := fmt.Fprint(a.stdout, strings.Join(adoptionLines(steps, ""), ""))
	return err
}

// confirmSteps asks before steps are taken in a cluster.
func (a *app) confirmSteps(ctx context.Context, command string, c *access.Cluster, steps []release.AdoptionStep) error {
	lines := []string{fmt.Sprintf("In cluster %s:", c.Where())}
	for _, l := range adoptionLines(steps, "  ") {
		lines = append(lines, strings.TrimSuffix(l, "\n"))
	}
	return a.confirm(ctx, command, lines)
}

// adoptionLines shows steps in columns.
func adoptionLines(steps []release.AdoptionStep, indent string) (lines []string) {
	width := 0
	for _, s := range steps {
		width = max(width, len(s.Object))
	}
	for _, s := range steps {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s%-8s %-*s  %s", indent, s.Verb, width, s.Object, s.Detail), " ")+"\n")
	}
	return lines
}
