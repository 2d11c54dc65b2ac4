package main

import (
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/admin/peering"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
)

func createResourceSliceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Ask the other cluster for resources",
		Long: `Ask the other cluster, the provider, for resources, and wait for its answer.

This cluster needs an identity at the provider, which 'liqoctl authenticate' creates. The provider decides about
resources that you do not ask for. If offloading is enabled, the granted resources become a virtual node of the same
name, unless you set --no-virtual-node. If it is not enabled in this cluster, the command says so.`,
		Example: `  liqoctl create resourceslice milan --remote-cluster-id milan --cpu 8 --memory 32Gi

  # Other resources, of another class at the provider.
  liqoctl create resourceslice gpus --remote-cluster-id milan \
    --class gold --resource nvidia.com/gpu=2`,
	}
	c := newCreation(a, kindResourceSlice, cmd)
	fs := cmd.Flags()
	var f sliceFlags
	f.add(fs, "class")
	without := fs.Bool("no-virtual-node", false, "do not create a virtual node")
	fs.DurationVar(&c.timeout, "timeout", 2*time.Minute, "`DURATION` to wait for the answer before giving up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := f.slice()
		if err != nil {
			return err
		}
		s.VirtualNode = !*without
		if c.out.given() {
			return c.out.objects(peering.NewResourceSlice(c.metadata(args[0], c.offline()), s))
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		return peering.Request(cmd.Context(), in, c.metadata(args[0], ""), s, peering.Options{Timeout: c.timeout, UntilTimeout: fs.Changed("timeout")}, a.console.Progress())
	}
	return cmd
}

// sliceFlags say what to ask a provider for.
type sliceFlags struct {
	class string
	resourceFlags
}

// resourceFlags say how much of what.
type resourceFlags struct {
	amounts map[corev1.ResourceName]*string
	others  map[string]string
}

// add adds the flags; class is the name of that of the class.
func (f *sliceFlags) add(fs *pflag.FlagSet, class string) {
	fs.StringVar(&f.class, class, authv1beta1.SliceClassDefault, "`NAME` of the class, which selects the controller at the provider that decides")
	f.resourceFlags.add(fs, nil)
}

// add adds the flags, with the defaults that are given.
func (f *resourceFlags) add(fs *pflag.FlagSet, defaults map[corev1.ResourceName]string) {
	f.amounts = map[corev1.ResourceName]*string{}
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		f.amounts[r] = fs.String(string(r), defaults[r], "`QUANTITY` of "+string(r))
	}
	fs.StringToStringVar(&f.others, "resource", nil, "`NAME=QUANTITY` of another resource, or several separated by commas")
}

// slice is what they say.
func (f *sliceFlags) slice() (peering.Slice, error) {
	resources, err := f.resources()
	return peering.Slice{Class: f.class, Resources: resources}, err
}

// resources are what they say.
func (f *resourceFlags) resources() (corev1.ResourceList, error) {
	all := corev1.ResourceList{}
	wanted := maps.Clone(f.others)
	for name := range f.others {
		if _, own := f.amounts[corev1.ResourceName(name)]; own {
			return all, fmt.Errorf("--resource %s: use --%[1]s", name)
		}
		if why := validation.IsQualifiedName(name); len(why) > 0 {
			return all, fmt.Errorf("--resource %q: must be the name of a resource, such as nvidia.com/gpu", name)
		}
	}
	for name, text := range f.amounts {
		if *text != "" {
			if wanted == nil {
				wanted = make(map[string]string, 1)
			}
			wanted[string(name)] = *text
		}
	}
	for name, text := range wanted {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return all, fmt.Errorf("%s %q: must be a quantity, such as 4, 500m or 8Gi", name, text)
		}
		if q.Sign() < 0 {
			return all, fmt.Errorf("%s %q: must not be less than zero", name, text)
		}
		all[corev1.ResourceName(name)] = q
	}
	return all, nil
}
