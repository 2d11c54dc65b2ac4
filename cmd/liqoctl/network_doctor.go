package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/doctor"
)

func networkDoctorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [PEER-ID]",
		Short: "Find out why two clusters are not connected, or not well",
		Long: `Find out why two clusters are not connected, or not well: look at both, step by step, and tell for each thing that is
not as it should be what leads to it and what to do.

The steps depend on each other, from the API servers over CIDRs, gateways, keys and firewalls to packets of all sizes
through the tunnel: where one fails, those that need it are skipped, so that the first failure is the cause. Gateways
are asked twice, to see what they send and receive meanwhile. Where they have no session this takes some seconds more,
as they try again only every five.

With one cluster instead of two, all of its peerings are looked at, or the named one, as far as one side can tell.
Nothing is changed. Of keys only the public halves are looked at.

Gateways and node agents are asked as by 'kubectl exec'. Who may not do that, or may not read something, sees less.`,
		Example: `  # Both sides: the local cluster and the remote one.
  liqoctl network doctor --kubeconfig rome.yaml --remote-kubeconfig milan.yaml

  # One side.
  liqoctl network doctor milan

  # What failed, in a script.
  liqoctl network doctor -o json | jq '.findings[] | select(.status == "failed")'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeers,
	}
	out := a.outputFlag(cmd, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := doctor.Options{Version: clientVersion()}
		if len(args) > 0 {
			o.Peer = args[0]
		}
		r, err := a.examine(cmd.Context(), o)
		if err != nil {
			return err
		}
		if out.given() {
			if err := out.data(r); err != nil {
				return err
			}
		} else {
			a.console.Show(doctorPage(r, a.console.Verbose() > 0))
		}
		if !r.Healthy() {
			return errors.New(count(r.Summary.Failed, "problem") + " found")
		}
		return nil
	}
	return cmd
}

// examine looks at the clusters that the flags name. One that cannot be reached is
// a finding like others.
func (a *app) examine(ctx context.Context, o doctor.Options) (*doctor.Report, error) {
	flags := []*clusterFlags{a.local}
	if a.remote.given() {
		a.local.name, a.remote.name = access.Local, access.Remote
		flags = append(flags, a.remote)
	}
	for _, f := range flags {
		t := doctor.Target{Name: f.name}
		if t.Cluster, t.Err = f.connect(); t.Err == nil {
			t.Origin = t.Cluster.Origin
		}
		o.Clusters = append(o.Clusters, t)
	}
	return doctor.Examine(ctx, o, a.console.Progress())
}

// count says how many of something there are.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
