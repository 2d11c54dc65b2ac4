package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

func exposeCommand(a *app) *cobra.Command {
	return parent("expose", "Let pods of another cluster reach a Service of this one",
		`Let pods of another cluster reach addresses of the local cluster that are not pods'.`, exposeServiceCommand(a))
}

func exposeServiceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service NAME",
		Short: "Let pods of another cluster reach a Service",
		Long: `Let pods of the remote cluster reach a Service of the local cluster through a Service of the same name
there. The remote cluster uses the address of the Service, so the pods behind it can come and go.

  1. the local cluster gets an IP object with the name and the address of the Service; it gives
     the Service an address in the external CIDR
  2. the remote cluster gets a Service without a selector, and an EndpointSlice with that address
     as the remote cluster uses it

With -o, or without --remote-kubeconfig or --remote-context, the two objects of the second step are printed, and you
apply them in the remote cluster. --external-cidr is then the CIDR that the remote cluster uses for the external CIDR of
the local one; 'liqoctl info peer' shows it there.

All peers learn about the IP object; NetworkPolicies decide who may reach the Service. Repeat the command when the ports
of the Service change. To undo it, delete the IP here, and the Service and its EndpointSlice there.`,
		Example: `  # Pods of milan reach http://web.shop of rome, where Service shop/web is.
  liqoctl expose service web -n shop --kubeconfig rome.yaml --remote-kubeconfig milan.yaml

  # With access to rome only.
  liqoctl expose service web -n shop --kubeconfig rome.yaml \
    --external-cidr 10.71.0.0/16 > web-for-milan.yaml`,
		Args:              oneName,
		ValidArgsFunction: a.completeServices(),
	}
	a.addRemoteFlags(cmd)
	var o peering.ExposeOptions
	external := cmd.Flags().String("external-cidr", "", "`CIDR` that stands for this cluster's external CIDR in the other cluster, if that cluster cannot be queried")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", timeoutOfNetwork, "`DURATION` to wait before giving up and reporting what is missing; 0: no limit")
	out := a.outputFlag(cmd, formatYAML, formatJSON, formatName)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		switch both := a.remote.chosen(); {
		case both && *external != "":
			return errors.New("--external-cidr: leave it out, as the remote cluster is queried for it")
		case !both && *external == "":
			return errors.New("no remote cluster given: name the one that is to reach the Service with --remote-kubeconfig or --remote-context, or set --external-cidr to the CIDR that stands there for this cluster's external CIDR")
		case !both:
			if o.ExternalCIDR, err = cidr.Parse(*external); err != nil {
				return fmt.Errorf("--external-cidr: %w", err)
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
