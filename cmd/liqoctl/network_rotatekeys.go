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
		Long: `Replace the WireGuard keys of both gateways, one after the other, while traffic goes on. The controller
of each cluster generates the new key of its gateway. The private key stays in the cluster; only the public key is given
to the other cluster. Until a gateway uses its new key, its peer still accepts the former one, for three minutes at
most. The command ends when both gateways have completed a handshake with the new keys.

PEER-ID is the ID of the remote cluster. It is only a safeguard: the command fails if --remote-kubeconfig leads to
another cluster.

You can run the command as often as you like. After Ctrl-C it first completes what must not stay half done. After a
crash, run it again: it finds a public key that is not the gateway's, corrects it, and starts over.

Both clusters must be reachable: a key that the peer does not know ends the connection. Keys of your own, from
spec.secretRef of the gateway, are not replaced: write a new one into that Secret, and then run 'liqoctl network
connect' again, which gives it to the peer.`,
		Example: `  liqoctl network rotate-keys --remote-kubeconfig milan.yaml

  # Only the keys of this cluster's gateway.
  liqoctl network rotate-keys milan --remote-kubeconfig milan.yaml --only local`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeers(),
	}
	cmd.Flags().StringVar(&o.Only, "only", "", "replace the keys of one gateway only: that of the `CLUSTER` local or remote")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", rotateTimeout, "`TIME` after which to give up; 0: no limit")
	complete(cmd, "only", access.Local, access.Remote)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			o.Peer = args[0]
		}
		if err := o.Validate(); err != nil {
			return err
		}
		if !a.remote.given() {
			return errors.New("rotate-keys needs both clusters, as a key that the peer does not know ends the connection: name the other cluster with --remote-kubeconfig or --remote-context")
		}
		local, remote, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		return peering.RotateKeys(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}
