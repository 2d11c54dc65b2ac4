package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/admin/peering"
)

// Roles of clusters in a peering: the consumer is the local one.
const (
	provider = "Provider"
	consumer = "Consumer"
)

func peerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peer",
		Short: "Connect two clusters and wait until they are",
		Long: `Connect two clusters, the consumer (local) and the provider (remote), and wait until they are connected.

Of a peering, Sluice has the network: this is 'liqoctl network connect --wait', with a longer timeout and with the
choice in which of the clusters the gateway server is. Flags that ask for Liqo's authentication or offloading are
refused.`,
		Example: `  liqoctl peer --kubeconfig consumer.yaml --remote-kubeconfig provider.yaml --gw-server-service-type NodePort

  # Only the consumer can be reached from outside.
  liqoctl peer --context consumer --remote-context provider --gw-server-service-location Consumer`,
		Args: cobra.NoArgs,
	}
	a.addRemoteFlags(cmd)
	f := connectFlags{peeringFlags: peeringFlags{wait: true}}
	f.add(cmd.Flags(), 10*time.Minute, "the clusters are connected")
	hide(cmd.Flags(), "wait")
	f.addGateways(cmd)
	location := cmd.Flags().String("gw-server-service-location", provider, "`WHERE` the gateway server is: with the Provider (remote) or the Consumer (local)")
	complete(cmd, "gw-server-service-location", provider, consumer)
	refused := addForeignFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := refused(); err != nil {
			return err
		}
		o, err := f.options(a)
		if err != nil {
			return err
		}
		if o.ServerIsLocal, err = atConsumer(*location); err != nil {
			return err
		}
		local, remote, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		return peering.Connect(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}

func atConsumer(location string) (bool, error) {
	switch {
	case strings.EqualFold(location, consumer):
		return true, nil
	case strings.EqualFold(location, provider):
		return false, nil
	}
	return false, fmt.Errorf("--gw-server-service-location %q: must be %s or %s", location, provider, consumer)
}

func unpeerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unpeer",
		Short: "Disconnect two clusters and have them forget each other",
		Long: `Disconnect two clusters and have them forget each other, as 'liqoctl network reset' does, and without a question.

The tenant namespaces stay, for a peering to come, unless --delete-namespaces: then they are deleted if nothing is left
in them but what liqoctl and the controllers made.`,
		Example: `  liqoctl unpeer --kubeconfig consumer.yaml --remote-kubeconfig provider.yaml --delete-namespaces`,
		Args:    cobra.NoArgs,
	}
	a.addRemoteFlags(cmd)
	f := removalFlags{peeringFlags: peeringFlags{wait: true}}
	f.add(cmd.Flags(), "nothing of the peering is left")
	deleteNamespaces := cmd.Flags().Bool("delete-namespaces", false, "delete the tenant namespaces, too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		local, remote, err := f.clusters(cmd.Context(), a)
		if err != nil {
			return err
		}
		o := f.options(a)
		o.DeleteNamespaces = *deleteNamespaces
		return peering.Reset(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}

// addForeignFlags adds the flags of Liqo that are not about the network, hidden.
// What refuses returns an error for those that ask for something.
func addForeignFlags(fs *pflag.FlagSet) (refused func() error) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Bool("create-resource-slice", false, "")
	f.Bool("create-virtual-node", false, "")
	f.String("resource-slice-class", "default", "")
	f.Bool("in-band", false, "")
	f.String("proxy-url", "", "")
	f.String("cpu", "", "")
	f.String("memory", "", "")
	f.String("pods", "", "")
	f.StringToString("resource", nil, "")
	f.Bool("networking-disabled", false, "")
	f.VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = true
		fs.AddFlag(flag)
	})
	return func() (err error) {
		f.VisitAll(func(flag *pflag.Flag) {
			if asks := flag.Value.String() != flag.DefValue; !asks || err != nil {
				return
			}
			because := offloading
			if slices.Contains([]string{"in-band", "proxy-url"}, flag.Name) {
				because = "'liqoctl peer' connects the networks only: 'liqoctl authenticate' comes after it"
			}
			if flag.Name == "networking-disabled" {
				because = "without the network nothing is left to do: authentication and offloading are Liqo's, and Sluice does not have them"
			}
			err = fmt.Errorf("--%s: %s", flag.Name, because)
		})
		return err
	}
}
