package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

func createConfigurationCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Store the other cluster's CIDRs in this one",
		Long: `Create a Configuration. It holds the CIDRs of the other cluster, as that cluster uses them. Its status
then shows the CIDRs by which this cluster reaches them.

'liqoctl generate configuration', run in the other cluster, prints the object ready to apply.`,
		Example: `  liqoctl create configuration milan --remote-cluster-id milan \
    --pod-cidr 10.243.0.0/16 --external-cidr 10.70.0.0/16 --wait`,
	}
	c := newCreation(a, kindConfiguration, cmd)
	pod := cmd.Flags().StringSlice("pod-cidr", nil, "pod `CIDR` of the other cluster; may be repeated")
	external := cmd.Flags().StringSlice("external-cidr", nil, "external `CIDR` of the other cluster, for addresses that are not pods'; may be repeated")
	require(cmd, "pod-cidr", "external-cidr")
	liqo := addForLiqo(cmd, "write CIDRs as lists, for a cluster in which Liqo runs (default: if it does; with -o the cluster is not asked)")
	c.addWait(cmd, "it is known by which CIDRs the other cluster is reached")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var remote networkingv1beta1.ClusterConfig
		var err error
		if remote.CIDR.Pod, err = cidrs("pod-cidr", *pod); err != nil {
			return err
		}
		if remote.CIDR.External, err = cidrs("external-cidr", *external); err != nil {
			return err
		}
		if c.out.given() {
			if liqo.said {
				remote.AsLists()
			}
			return c.out.objects(peering.NewConfiguration(c.metadata(args[0], c.offline()), remote))
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		if lists, err := liqo.runs(cmd.Context(), in); err != nil {
			return err
		} else if lists {
			remote.AsLists()
			c.printed = "--" + flagForLiqo + " -o yaml"
		}
		return c.run(cmd.Context(), in, peering.NewConfiguration(c.metadata(args[0], in.Namespace), remote))
	}
	return cmd
}

// cidrs reads the values of a flag. One stands as a string, as in the documents,
// more as a list. Where Liqo runs, one is a list, too.
func cidrs(flag string, values []string) (networkingv1beta1.CIDRs, error) {
	list := networkingv1beta1.CIDRs{Scalar: len(values) == 1}
	for _, v := range values {
		if _, err := cidr.Parse(v); err != nil {
			return list, fmt.Errorf("--%s: %w", flag, err)
		}
		list.List = append(list.List, networkingv1beta1.CIDR(v))
	}
	return list, nil
}
