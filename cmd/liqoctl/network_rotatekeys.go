package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
)

// rotateTimeout leaves room for kubelets that show their pods new keys only in
// their own time, one cluster after the other.
const rotateTimeout = 5 * time.Minute

func networkRotateKeysCommand(a *app) *cobra.Command {
	o := peering.RotateOptions{}
	cmd := &cobra.Command{
		Use:   "rotate-keys [PEER-ID]",
		Short: "Replace the keys of two connected gateways without losing connections",
		Long: `Replace the WireGuard keys of both gateways, one after the other, while traffic goes on. The controller of each cluster
makes its gateway's new key, which stays there; only the public key is told to the other cluster. Until a gateway uses
its new key, its peer goes on accepting the former one, for three minutes at most. The command ends when both gateways
have had a handshake with the new keys.

PEER-ID is the ID of the remote cluster, and only a safeguard: the command refuses when --remote-kubeconfig leads to
another cluster.

It may be run as often as you like. Interrupted by Ctrl-C, it completes what must not stay half done. After a crash, run
it again: it finds a public key that is not the gateway's, repairs that, and begins anew.

Both clusters must be within reach: a key that the peer does not know ends the connection. Keys of your own, from
spec.secretRef of the gateway, are not replaced: write a new one into that Secret, then run 'liqoctl network connect'
again, which tells the peer.`,
		Example: `  liqoctl network rotate-keys --remote-kubeconfig milan.yaml

  # Only the keys of this cluster's gateway.
  liqoctl network rotate-keys milan --remote-kubeconfig milan.yaml --only local`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeers,
	}
	cmd.Flags().StringVar(&o.Only, "only", "", "replace the keys of one gateway only, that of the `CLUSTER` local or remote")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", rotateTimeout, "give up after this `TIME`; 0 is never")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions([]string{access.Local, access.Remote}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			o.Peer = args[0]
		}
		if err := o.Validate(); err != nil {
			return err
		}
		if !a.remote.given() {
			return errors.New("rotate-keys needs both clusters, as a key that the peer does not know ends the connection: name the other one with --remote-kubeconfig or --remote-context")
		}
		local, remote, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		return peering.RotateKeys(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}
