package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
)

func exposeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "expose",
		Short: "Let pods of another cluster reach something here",
		Long:  `Let pods of another cluster reach something of the local one, besides its pods.`,
	}
	cmd.AddCommand(exposeServiceCommand(a))
	return cmd
}

func exposeServiceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service NAME",
		Short: "Let pods of another cluster reach a Service",
		Long: `Let pods of another cluster, the remote one, reach a Service of the local cluster by a Service of the same name there. Its
pods may come and go: what the other cluster uses is the address of the Service.

  1. the local cluster gets an IP for the address of the Service, of the same name; it gives
     the Service an address in the external CIDR
  2. the remote cluster gets a Service without selector and an EndpointSlice that leads to
     what this address is there

With -o, or without --remote-kubeconfig or --remote-context, the second step is left to you: the two objects are printed,
to be applied there. --external-cidr then says what the remote cluster uses for the external CIDR of the local one, as
'liqoctl info peer' shows there.

The IP is known to all peers: NetworkPolicies decide who may reach the Service. Repeat the command when the ports of the
Service have changed. To take it back, delete the IP here, and the Service and its EndpointSlice there.`,
		Example: `  # Pods of milan reach http://web.shop of rome, where Service shop/web is.
  liqoctl expose service web -n shop --kubeconfig rome.yaml --remote-kubeconfig milan.yaml

  # With access to rome only.
  liqoctl expose service web -n shop --kubeconfig rome.yaml --external-cidr 10.71.0.0/16 > web-for-milan.yaml`,
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addRemoteFlags(cmd)
	var o peering.ExposeOptions
	cidr := cmd.Flags().String("external-cidr", "", "`CIDR` that stands for this cluster's external CIDR in the other one, where that cannot be asked")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", timeoutOfNetwork, "`DURATION` after which to give up and say what is missing; 0 is never")
	out := a.outputFlag(cmd, formatYAML, formatJSON, formatName)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		switch both := a.remote.chosen(); {
		case both && *cidr != "":
			return errors.New("--external-cidr: the remote cluster is asked for it, so leave it out")
		case !both && *cidr == "":
			return errors.New("which cluster is to reach the Service? Name it with --remote-kubeconfig or --remote-context, or say with --external-cidr what stands there for this cluster's external CIDR")
		case !both:
			if o.ExternalCIDR, err = netip.ParsePrefix(*cidr); err != nil || o.ExternalCIDR != o.ExternalCIDR.Masked() {
				return fmt.Errorf("--external-cidr %q: must be a CIDR without host bits, such as 10.71.0.0/16", *cidr)
			}
		}
		o.Labels, o.Annotations, o.PrintOnly = a.labels, a.annotations, out.given()
		var local, remote *access.Cluster
		if a.remote.chosen() {
			local, remote, err = a.two(cmd.Context())
		} else {
			local, err = a.one(cmd.Context())
		}
		if err != nil {
			return err
		}
		o.Service = types.NamespacedName{Namespace: local.Namespace, Name: args[0]}
		if remote != nil && remote.NamespaceGiven {
			o.PeerNamespace = remote.Namespace
		}
		objects, err := peering.ExposeService(cmd.Context(), local, remote, o, a.console.Progress())
		if err != nil || remote != nil && !out.given() {
			return err
		}
		if !out.given() {
			out = out.as(formatYAML)
		}
		return out.objects(objects...)
	}
	return cmd
}
