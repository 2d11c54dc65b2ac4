package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
)

// operatorsCluster is the cluster whose operator a peering user is for.
const operatorsCluster = "`ID` of the cluster whose operator gets the user (liqoctl info --get clusterid prints it there)"

func generatePeeringUserCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peering-user",
		Short: "Create a user with which the operator of another cluster can peer with this one",
		Long: `Create a user for the operator of another cluster, and print its kubeconfig. With this kubeconfig,
'liqoctl peer' and 'liqoctl unpeer' work on this cluster as with an administrator's. The user may write the objects of
the peering in the tenant namespace for that cluster, and nothing elsewhere. Of this cluster's Secrets it can read only
those of a handshake, and it cannot undo 'liqoctl cordon' or 'liqoctl drain'.

The kubeconfig is printed once and contains a private key: treat it like a password. It has the API server's address
from the kubeconfig that you use; the other operator must be able to reach this address. 'liqoctl delete peering-user'
revokes the rights.`,
		Example: `  # the operator of milan, for the operator of rome
  liqoctl generate peering-user --consumer-cluster-id rome > milan-for-rome.yaml

  # the operator of rome
  liqoctl peer --remote-kubeconfig milan-for-rome.yaml`,
		Args: cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "consumer-cluster-id", operatorsCluster)
	c.addTimeout(cmd)
	mode := cmd.Flags().String("tls-compatibility-mode", "auto", "`MODE`: true gives the user an RSA key, for TLS libraries without Ed25519; auto and false do not")
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
		Short: "Revoke the rights of peering users",
		Long: `Revoke the rights of all peering users for the operators of a cluster. Objects that they created stay.
Their certificates remain valid until they expire, but give no rights.`,
		Example: `  liqoctl delete peering-user --consumer-cluster-id rome`,
		Args:    cobra.NoArgs,
	}
	c := newOneCluster(a, cmd, "consumer-cluster-id", operatorsCluster)
	c.addTimeout(cmd)
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, _ []string) error {
		return peering.DeletePeeringUsers(ctx, in, c.peer, c.options(), a.console.Progress())
	})
	return cmd
}
