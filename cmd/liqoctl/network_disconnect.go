package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
)

func networkDisconnectCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disconnect",
		Short: "Take down the connection between two clusters",
		Long: `Take down the connection between two clusters: delete their gateways for each other, and with them the
tunnel and the keys. Pods of the two clusters can no longer reach each other, and open connections break.

Each cluster keeps what it knows of the other's network, so that 'liqoctl network connect' uses the same addresses
again; 'liqoctl network reset' removes that as well. The command finds out which of the clusters has the server. It can
be repeated: a gateway that is already gone is not an error.`,
		Example: `  liqoctl network disconnect --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --wait

  # In a script.
  liqoctl network disconnect --context rome --remote-context milan --wait --skip-confirm`,
		Args: cobra.NoArgs,
	}
	var f removalFlags
	f.add(cmd.Flags(), "nothing of the gateways runs any more")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		local, remote, err := f.clusters(cmd.Context(), a)
		if err != nil {
			return err
		}
		o := f.options(a)
		o.Confirm = a.confirmer(cmd.Name())
		return peering.Disconnect(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}

// confirmer asks, once it is known what goes.
func (a *app) confirmer(command string) func(context.Context, []string) error {
	return func(ctx context.Context, what []string) error { return a.confirm(ctx, command, what) }
}

// removalFlags are those of all commands that separate clusters.
type removalFlags struct {
	peeringFlags
	remoteClusterID string
}

func (f *removalFlags) add(fs *pflag.FlagSet, forWhat string) {
	f.peeringFlags.add(fs, timeoutOfNetwork, forWhat)
	hide(fs, "skip-validation") // of what is removed no template is needed
	fs.StringVar(&f.remoteClusterID, "remote-cluster-id", "", "`ID` of a remote cluster that is gone for good: clean up in the local one only")
}

// clusters are both, or the local one alone.
func (f *removalFlags) clusters(ctx context.Context, a *app) (local, remote *access.Cluster, err error) {
	if f.remoteClusterID == "" {
		return a.two(ctx)
	}
	if wrong := validation.IsDNS1123Label(f.remoteClusterID); len(wrong) > 0 {
		return nil, nil, fmt.Errorf("--remote-cluster-id %q is not the ID of a cluster: %s", f.remoteClusterID, wrong[0])
	}
	local, err = a.one(ctx)
	return local, nil, err
}

func (f *removalFlags) options(a *app) peering.Options {
	o := f.peeringFlags.options(a)
	o.RemoteClusterID = f.remoteClusterID
	return o
}
