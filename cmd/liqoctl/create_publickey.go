package main

import (
	"encoding/base64"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/peering"
)

func createPublicKeyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Store the public key of the other cluster's gateway",
		Long: `Create a PublicKey, by which this cluster's gateway recognizes the gateway of the other cluster.
'liqoctl generate publickey', run in the other cluster, prints the object ready to apply.`,
		Example: `  liqoctl create publickey milan --remote-cluster-id milan \
    --public-key n2T4fOWskIj28MVKtdDYPttxK4YqcTzqT/HAAwB7mQc=`,
	}
	c := newCreation(a, kindPublicKey, cmd)
	text := cmd.Flags().String("public-key", "", "`KEY` of the other cluster's gateway, in base64, as printed by wg pubkey")
	require(cmd, "public-key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := base64.StdEncoding.DecodeString(*text)
		if err != nil || len(key) != 32 {
			return fmt.Errorf("--public-key %q: must be 32 bytes in base64, 44 characters", *text)
		}
		if c.out.given() {
			return c.out.objects(peering.NewPublicKey(c.metadata(args[0], c.offline()), key))
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		return c.run(cmd.Context(), in, peering.NewPublicKey(c.metadata(args[0], in.Namespace), key))
	}
	return cmd
}
