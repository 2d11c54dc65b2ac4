package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/survey"
)

func networkDropsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drops [PEER-ID...]",
		Short: "Show which packets of a peering were dropped, and why",
		Long: `Show packets that the gateways of all peerings, or of some, dropped recently: when, why, in which
direction, from where to where, through which node. Below the first packet of each reason, the output explains the
reason and what to do. If --remote-kubeconfig or --remote-context names a remote cluster, its gateway is queried as
well. If one of the two does not answer, the packets of the other are shown, and the exit code is 1.

A gateway keeps the headers of the last 16 packets of each reason and direction, at most four per second, and nothing of
their contents; 'liqoctl network status -o wide' shows the number of all dropped packets. Packets counted as
DropTunnelFlushed and DropTunnelRejected are not kept. Addresses are those that the packet had when it was dropped:
towards the peer those that this cluster uses, from the peer those inside the tunnel. If the data did not contain a
packet of a node or of the peer, the addresses are those of the datagram that carried it (outer addresses).

Gateways are queried in the same way as with 'kubectl exec'. To record packets from now on, use 'liqoctl network capture
--point dropped'.`,
		Example: `  liqoctl network drops milan

  # At both ends, as it happens.
  liqoctl network drops --remote-kubeconfig milan.yaml -f

  # Only some reasons, one JSON object in each line.
  liqoctl network drops milan --reason NoMapping,NoAddress -o json`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completePeers(),
	}
	r := &dropsRun{app: a}
	reasons := cmd.Flags().StringSlice("reason", nil, "show only these `REASONS`, such as DropNoMapping or NoMapping")
	cmd.Flags().BoolVarP(&r.follow, "follow", "f", false, "keep running until Ctrl-C")
	complete(cmd, "reason", drops.Reasons()...)
	out := a.outputFlag(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if r.reasons, err = drops.ParseFilter(*reasons); err != nil {
			return fmt.Errorf("--reason: %w", err)
		}
		r.print = drops.Printer{Out: a.stdout, JSON: out.given()}
		return r.run(cmd.Context(), args)
	}
	return cmd
}

// dropsRun is one call of the command.
type dropsRun struct {
	*app
	follow  bool
	reasons drops.Filter

	mu    sync.Mutex // several gateways tell at once
	print drops.Printer
}

// dropsSource is a gateway that is asked.
type dropsSource struct {
	cluster *access.Cluster
	peer    string
	pod     types.NamespacedName
}

// maxFollowed bounds the gateways that are followed: each is a connection of its own
// through the API server.
const maxFollowed = 16

func (r *dropsRun) run(ctx context.Context, ids []string) error {
	sources, errs, err := r.sources(ctx, ids)
	if err != nil {
		return err
	}
	if r.follow {
		if len(sources) > maxFollowed {
			return fmt.Errorf("-f: %d gateways are more than the %d that can be followed: name some peers", len(sources), maxFollowed)
		}
		if len(sources) > 0 {
			for _, err := range errs {
				r.console.Progress().Warning("", err.Error())
			}
			errs = nil
		}
		return errors.Join(append(errs, r.followAll(ctx, sources))...)
	}
	kept, failed := access.Parallel(sources, maxFollowed, func(s dropsSource) ([]drops.Report, error) { return r.read(ctx, s) })
	all, errs := slices.Concat(kept...), append(errs, failed...)
	slices.SortStableFunc(all, func(a, b drops.Report) int { return a.Time.Compare(b.Time) })
	for _, d := range all {
		if err := r.print.Print(d); err != nil {
			return err
		}
	}
	if len(all) == 0 && len(sources) > 0 && !r.print.JSON && errors.Join(errs...) == nil {
		r.console.Progress().Done("", "No packet was dropped"+forReasons(r.reasons))
	}
	return errors.Join(errs...)
}

func forReasons(f drops.Filter) string {
	if len(f) == 0 {
		return ""
	}
	return " for " + strings.Join(f, ", ")
}

// sources are the gateways to ask, and why others cannot be.
func (r *dropsRun) sources(ctx context.Context, ids []string) (sources []dropsSource, errs []error, err error) {
	add := func(c *access.Cluster, ids []string) error {
		s, err := r.survey(ctx, c, survey.Options{PeeringsOnly: true, Nodes: new(survey.Cluster)})
		if err != nil {
			return err
		}
		peers, err := choosePeers(c, s, ids)
		if err != nil {
			return err
		}
		if len(peers) == 0 {
			errs = append(errs, c.Errorf("%s", noPeersIn(c, s)))
		}
		for _, p := range peers {
			pod, err := capturePod(c, s, p)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			sources = append(sources, dropsSource{c, p.ID, pod})
		}
		return nil
	}
	if !r.remote.given() {
		c, err := r.one(ctx)
		if err != nil {
			return nil, nil, err
		}
		err = add(c, ids)
		return sources, errs, err
	}
	clusters, failed, err := r.either(ctx)
	if err != nil {
		return nil, nil, err
	}
	var names [2]string // empty: that cluster does not tell
	for i, c := range clusters {
		if failed[i] == nil {
			names[i], failed[i] = c.ID(ctx)
		}
	}
	clusters[1].NamespaceGiven = false // that flag is about the local cluster
	here, there := only(names[0]), only(names[1])
	if failed[1] == nil && (len(ids) == 0 || slices.Contains(ids, names[1])) {
		failed[1] = add(clusters[1], here)
	}
	if len(ids) == 0 {
		ids = there
	}
	if failed[0] == nil {
		failed[0] = add(clusters[0], ids)
	}
	return sources, slices.DeleteFunc(append(errs, failed[:]...), func(err error) bool { return err == nil }), nil
}

// only is the ID of the only peer to ask about; without one, all are asked about.
func only(id string) []string {
	if id == "" {
		return nil
	}
	return []string{id}
}

// read asks a gateway for what it has kept.
func (r *dropsRun) read(ctx context.Context, s dropsSource) (kept []drops.Report, err error) {
	all, err := survey.ReadDrops(ctx, s.cluster, s.pod)
	for _, d := range all {
		if r.reasons.Has(d.Reason) {
			kept = append(kept, drops.NewReport(s.cluster.Name, s.peer, d))
		}
	}
	return kept, err
}

// followAll prints what gateways tell until ctx ends or all of them are gone.
func (r *dropsRun) followAll(ctx context.Context, sources []dropsSource) error {
	errs := access.Together(sources, func(s dropsSource) error {
		out := &drops.Decoder{Each: func(d drops.Drop) error {
			if !r.reasons.Has(d.Reason) {
				return nil
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.print.Print(drops.NewReport(s.cluster.Name, s.peer, d))
		}}
		err := s.cluster.ExecUntil(ctx, s.pod, gatewayProgram, []string{gatewayProgram, "drops", "-o", "json", "--follow", "--until-eof"}, out)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			return s.cluster.Errorf("pod %s: the gateway went away", s.pod)
		}
		return survey.DropsError(s.cluster, s.pod, err)
	})
	return errors.Join(errs...)
}
