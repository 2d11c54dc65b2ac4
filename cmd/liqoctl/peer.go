package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/release"
)

// Roles of clusters in a peering: the consumer is the local one.
const (
	provider = "Provider"
	consumer = "Consumer"
)

func peerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peer",
		Short: "Connect two clusters, and let one use resources of the other",
		Long: `Peer two clusters, the consumer (local) and the provider (remote):

  1. network: as 'liqoctl network connect --wait' does, but you can choose which cluster gets the
     gateway server; --networking-disabled skips this step
  2. identity: as 'liqoctl authenticate' does
  3. resources: as 'liqoctl create resourceslice' does, with the provider's ID as name, unless
     --create-resource-slice=false; if the provider denies them, there is only a warning
  4. virtual node: a node of the consumer that stands for the provider and has the granted
     resources, unless --create-virtual-node=false; 'liqoctl offload namespace' lets pods run on it

If authentication is not enabled in both clusters, the command only connects the network, and says so. If offloading is
not enabled, it stops after step 3, and says so. If a flag asks for more than that, it fails before it changes anything.
With --enable-authentication it first enables authentication, as 'liqoctl install --set authentication.enabled=true'
does. This gives the controllers the right to approve requests for client certificates, which they do not need if the
clusters only share a network.

The command can be repeated, and continues where it was interrupted.`,
		Example: `  liqoctl peer --kubeconfig consumer.yaml --remote-kubeconfig provider.yaml \
    --gw-server-service-type NodePort

  # Only the consumer can be reached from outside.
  liqoctl peer --context consumer --remote-context provider --gw-server-service-location Consumer

  # The clusters are connected by other means.
  liqoctl peer --context consumer --remote-context provider \
    --networking-disabled --cpu 8 --memory 32Gi`,
		Args: cobra.NoArgs,
	}
	a.addRemoteFlags(cmd)
	f := connectFlags{peeringFlags: peeringFlags{wait: true}}
	f.add(cmd.Flags(), 10*time.Minute, "the clusters are connected")
	hide(cmd.Flags(), "wait")
	f.addGateways(cmd)
	fs := cmd.Flags()
	location := fs.String("gw-server-service-location", provider, "`WHERE` the gateway server is: with the Provider (remote) or the Consumer (local)")
	complete(cmd, "gw-server-service-location", provider, consumer)
	var o peering.PeerOptions
	fs.BoolVar(&o.NetworkingDisabled, "networking-disabled", false, "leave the network as it is")
	ask := fs.Bool("create-resource-slice", true, "ask the provider for resources")
	node := fs.Bool("create-virtual-node", true, "create a virtual node with the resources")
	enable := fs.Bool("enable-authentication", false, "enable authentication in the clusters where it is disabled")
	var slice sliceFlags
	slice.add(fs, "resource-slice-class")
	var proxy proxyFlags
	proxy.add(fs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		o.NodeRequired = fs.Changed("create-virtual-node") && *node
		if o.NodeRequired && !*ask {
			return errors.New("--create-virtual-node: a virtual node has the resources of a ResourceSlice: drop --create-resource-slice=false")
		}
		if o.Options, err = f.options(a); err != nil {
			return err
		}
		if o.ServerIsLocal, err = atConsumer(*location); err != nil {
			return err
		}
		if err = proxy.into(&o.Options); err != nil {
			return err
		}
		for _, flag := range []string{"create-resource-slice", "create-virtual-node", "resource-slice-class", "cpu", "memory", "pods", "resource", "proxy-url", "in-band"} {
			o.IdentityRequired = o.IdentityRequired || fs.Changed(flag) && fs.Lookup(flag).Value.String() != "false"
		}
		if *enable {
			o.IdentityRequired, o.Enable = true, a.enableAuthentication
		}
		if *ask {
			s, err := slice.slice()
			if err != nil {
				return err
			}
			s.VirtualNode = *node
			o.Slice = &s
		}
		local, remote, err := a.two(cmd.Context())
		if err != nil {
			return err
		}
		return peering.Peer(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}

// enableAuthentication changes this value of the installation, and no other.
func (a *app) enableAuthentication(ctx context.Context, c *access.Cluster) error {
	chart, err := release.Embedded(build())
	if err != nil {
		return err
	}
	plan, err := release.Prepare(ctx, c, chart, version, release.Options{Values: release.Values{"authentication": map[string]any{"enabled": true}}})
	if err != nil {
		return err
	}
	if !plan.Upgrade || len(plan.OtherImages) > 0 {
		return fmt.Errorf("cluster %s was installed by another version or by other means, so this command does not change it: enable authentication there in the way it was installed, such as authentication.enabled of the chart", plan.ClusterID)
	}
	_, err = plan.Apply(ctx, a.console.Progress())
	return err
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
		Short: "Undo 'liqoctl peer'",
		Long: `Undo 'liqoctl peer', in the opposite order and without asking for confirmation. The command removes the
virtual nodes once their pods have ended, the consumer's ResourceSlices, its identity at the provider, and the network
as 'liqoctl network reset' does. If the provider also has an identity at the consumer, the network stays.

The pods are evicted, and those of a Deployment start elsewhere. If a PodDisruptionBudget forbids an eviction, the
command waits.

The tenant namespaces stay for a later peering. With --delete-namespaces they are deleted if only objects of liqoctl and
the controllers are left in them. The command can be repeated, and continues where it was interrupted.`,
		Example: `  liqoctl unpeer --kubeconfig consumer.yaml --remote-kubeconfig provider.yaml --delete-namespaces`,
		Args:    cobra.NoArgs,
	}
	a.addRemoteFlags(cmd)
	f := removalFlags{peeringFlags: peeringFlags{wait: true}}
	f.add(cmd.Flags(), "nothing of the peering is left")
	deleteNamespaces := cmd.Flags().Bool("delete-namespaces", false, "also delete the tenant namespaces")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		local, remote, err := f.clusters(cmd.Context(), a)
		if err != nil {
			return orForce(err)
		}
		o := f.options(a)
		o.DeleteNamespaces = *deleteNamespaces
		return peering.Unpeer(cmd.Context(), local, remote, o, a.console.Progress())
	}
	return cmd
}

// orForce adds to the error of a remote cluster that gives no answer what to do if it never will.
func orForce(err error) error {
	var in *access.Error
	if !errors.As(err, &in) || in.Cluster != access.Remote || !access.Unreachable(err) {
		return err
	}
	return fmt.Errorf("%w; if that cluster is gone for good, 'liqoctl force unpeer ID' forgets it, where ID is the one that 'liqoctl info' shows", err)
}

func forceCommand(a *app) *cobra.Command {
	unpeer := &cobra.Command{
		Use:   "unpeer ID",
		Short: "Forget a cluster that is gone for good",
		Long: `Forget a cluster that is gone for good: delete everything in this cluster that belongs to the peering
with it, whatever its role was. The tenant namespace is deleted as well if only objects of liqoctl and the controllers
are left in it.

Objects that this cluster created in the other one stay there, should it come back. If the other cluster can be reached,
use 'liqoctl unpeer'.`,
		Example:           `  liqoctl force unpeer milan`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || len(validation.IsDNS1123Label(args[0])) > 0 {
				return fmt.Errorf("expected one ID, that of the cluster that is gone, as 'liqoctl info' shows it; got %q", args)
			}
			return nil
		},
	}
	f := peeringFlags{wait: true}
	f.add(unpeer.Flags(), timeoutOfNetwork, "nothing of the peering is left")
	hide(unpeer.Flags(), "skip-validation")
	unpeer.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, args []string) error {
		what := "everything that this cluster has for cluster " + args[0] + ": identities, ResourceSlices, gateways, Configurations, keys, the tenant namespace"
		if err := a.confirm(ctx, "force unpeer", []string{what}); err != nil {
			return err
		}
		o := f.options(a)
		o.RemoteClusterID, o.DeleteNamespaces = args[0], true
		return peering.Unpeer(ctx, in, nil, o, a.console.Progress())
	})
	return parent("force", "End a peering with a cluster that is gone", `End a peering although the other cluster is gone.`, unpeer)
}
