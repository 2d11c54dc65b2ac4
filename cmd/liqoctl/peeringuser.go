package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/peering"
)

// operatorsCluster is the cluster whose operator a peering user is for.
const operatorsCluster = "`ID` of the cluster whose operator it is for (there: liqoctl info --get clusterid)"

func generatePeeringUserCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peering-user",
		Short: "Make a user with which the operator of another cluster can peer with this one",
		Long: `Make a user for the operator of another cluster, and print its kubeconfig. With it 'liqoctl peer' and 'liqoctl unpeer' work
on this cluster as with an administrator's. The user may write the objects of the peering, in the tenant namespace for
that cluster, and nothing elsewhere: it reads no Secret of this cluster but the keys of the gateways for its own, and
does not undo 'liqoctl cordon' or 'liqoctl drain'.

The kubeconfig is printed once, and holds a private key: hand it over as you would a password. The address of the API
server in it is that of the kubeconfig in use; the other operator must reach it. 'liqoctl delete peering-user' takes
the rights back.`,
		Example: `  # the operator of milan, for the operator of rome
  liqoctl generate peering-user --consumer-cluster-id rome > milan-for-rome.yaml

  # the operator of rome
  liqoctl peer --remote-kubeconfig milan-for-rome.yaml`,
		Args: cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "consumer-cluster-id", operatorsCluster)
	c.addTimeout(cmd)
	mode := cmd.Flags().String("tls-compatibility-mode", "auto", "`MODE`: true has the user get an RSA key, for TLS libraries that do not know Ed25519; auto and false do not")
	complete(cmd, "tls-compatibility-mode", "auto", "true", "false")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rsa, known := map[string]bool{"auto": false, "false": false, "true": true}[*mode]
		if !known {
			return fmt.Errorf("--tls-compatibility-mode %q: must be auto, true or false", *mode)
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		text, err := peering.GeneratePeeringUser(cmd.Context(), in, c.peer, rsa, c.options(), a.console.Progress())
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	}
	return cmd
}

func deletePeeringUserCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peering-user",
		Short: "Take the rights of peering users back",
		Long: `Take the rights of the peering users for the operators of a cluster back: of all of them. What they have made stays.
Their certificates remain valid until they expire, and may do nothing.`,
		Example: `  liqoctl delete peering-user --consumer-cluster-id rome`,
		Args:    cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "consumer-cluster-id", operatorsCluster)
	c.addTimeout(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		return peering.DeletePeeringUsers(cmd.Context(), in, c.peer, c.options(), a.console.Progress())
	}
	return cmd
}
