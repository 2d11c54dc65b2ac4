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
		Short: "Find out why the connection of two clusters does not work well",
		Long: `Find out why two clusters are not connected, or not well connected. The doctor checks both clusters step
by step, and explains the cause and the fix of everything that is wrong.

The checks depend on each other, from the API servers through CIDRs, gateways, keys and firewalls to packets of all
sizes through the tunnel. If one fails, those that need it are skipped, so the first failure is the cause. Gateways are
queried twice, to see what they send and receive in between. If they have no session this takes some seconds longer, as
up to five seconds pass between two attempts to connect.

With one cluster instead of two, the doctor checks all of its peerings, or the named one, as far as this is possible
from one side. Nothing is changed, and no private key is read.

Gateways and node agents are queried in the same way as with 'kubectl exec'. Without the right to do that, or to read
some objects, you see less. Those of Liqo are not queried: what their objects do not tell is not judged.`,
		Example: `  # Both sides: the local cluster and the remote one.
  liqoctl network doctor --kubeconfig rome.yaml --remote-kubeconfig milan.yaml

  # One side.
  liqoctl network doctor milan

  # What failed, in a script.
  liqoctl network doctor -o json | jq '.findings[] | select(.status == "failed")'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeers(),
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
		if !a.remote.chosen() {
			return nil, errNoRemote
		}
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
