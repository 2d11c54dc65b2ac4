package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func generateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "generate",
		Aliases: []string{"gen"},
		Short:   "Print objects for the other cluster to apply",
		Long: `Print objects about this cluster, to be applied in the other cluster in the namespace of the peering.
The other cluster is not changed. This cluster creates what the object needs, such as a signature.`,
	}
	cmd.AddCommand(
		generateConfigurationCommand(a), generatePublicKeyCommand(a), generateTenantCommand(a), generateIdentityCommand(a), generatePeeringUserCommand(a),
		refusal(a, "nonce", "a nonce is kept in the cluster that makes it: 'liqoctl create nonce' makes it, 'liqoctl get nonce' prints it"),
	)
	return cmd
}

// orYAML is the format where the user asks for none.
func orYAML(o *output) *output {
	o.format = formatYAML
	return o
}

func generateConfigurationCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     kindConfiguration.name,
		Aliases: kindConfiguration.allAliases(),
		Short:   "Print this cluster's network for the other cluster",
		Long:    `Print a Configuration with the CIDRs of this cluster. The other cluster applies it.`,
		Example: `  liqoctl generate configuration --kubeconfig rome.yaml > rome-network.yaml
  kubectl --kubeconfig milan.yaml apply -f rome-network.yaml`,
		Args: cobra.NoArgs,
	}
	out := orYAML(a.outputFlag(cmd, formatYAML, formatJSON, formatName))
	liqo := addForLiqo(cmd, "print CIDRs as lists, for another cluster in which Liqo runs (default: if Liqo runs in this one)")
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, _ []string) error {
		id, err := in.ID(ctx)
		if err != nil {
			return err
		}
		network, err := peering.LocalNetwork(ctx, in)
		if err != nil {
			return err
		}
		// Nothing is known of the other cluster. Users of Liqo connect most often to others of theirs.
		if lists, err := liqo.runs(ctx, in); err != nil {
			return err
		} else if lists {
			network.AsLists()
		}
		m := peering.Metadata{RemoteClusterID: id, Labels: a.labels, Annotations: a.annotations}
		return out.objects(peering.NewConfiguration(m, network))
	})
	return cmd
}

func generatePublicKeyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     kindPublicKey.name,
		Aliases: kindPublicKey.allAliases(),
		Short:   "Print the key of this cluster's gateway for the other cluster",
		Long: `Print a PublicKey with the key of a gateway of this cluster. The other cluster applies it. The command waits until the
gateway has its keys.`,
		Example: `  liqoctl generate publickey --kubeconfig rome.yaml \
    --gateway-type server --gateway-name server > rome-key.yaml
  kubectl --kubeconfig milan.yaml apply -f rome-key.yaml`,
		Args: cobra.NoArgs,
	}
	out := orYAML(a.outputFlag(cmd, formatYAML, formatJSON, formatName))
	end := cmd.Flags().String("gateway-type", "", "`TYPE` of this cluster's gateway: server or client")
	name := cmd.Flags().String("gateway-name", "", "`NAME` of this cluster's GatewayServer or GatewayClient")
	timeout := cmd.Flags().Duration("timeout", 2*time.Minute, "`DURATION` to wait for the keys before giving up")
	require(cmd, "gateway-type", "gateway-name")
	complete(cmd, "gateway-type", "server", "client")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		types := map[string]networkingv1beta1.ConnectionType{"server": networkingv1beta1.ConnectionServer, "client": networkingv1beta1.ConnectionClient}
		gatewayType, ok := types[strings.ToLower(*end)]
		if !ok {
			return fmt.Errorf("--gateway-type %q: must be server or client", *end)
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		id, err := in.ID(cmd.Context())
		if err != nil {
			return err
		}
		key, err := a.awaitKey(cmd.Context(), in, gatewayType, client.ObjectKey{Namespace: in.Namespace, Name: *name}, *timeout)
		if err != nil {
			return err
		}
		m := peering.Metadata{RemoteClusterID: id, Labels: a.labels, Annotations: a.annotations}
		return out.objects(peering.NewPublicKey(m, key))
	}
	return cmd
}

// awaitKey is the public key of a gateway, once it has one.
func (a *app) awaitKey(ctx context.Context, in *access.Cluster, end networkingv1beta1.ConnectionType, of client.ObjectKey, timeout time.Duration) ([]byte, error) {
	say := a.console.Progress()
	defer a.console.Close()
	var key []byte
	missing := in.Errorf("%s %s: no answer", end, of)
	late, err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		var err error
		if key, err = peering.PublicKeyOf(ctx, in, end, of.Namespace, of.Name); errors.Is(err, peering.ErrNotReady) {
			missing = err
			say.Waiting(in.Name, "Waiting for the keys of gateway "+of.Name)
			return false, nil
		}
		return err == nil, err
	})
	if late {
		return nil, fmt.Errorf("%w (waited %v)", missing, timeout)
	}
	return key, err
}
