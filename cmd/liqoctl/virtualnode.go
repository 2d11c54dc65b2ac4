package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

func createVirtualNodeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Create a node that stands for the other cluster",
		Long: `Create a VirtualNode: a node of this cluster that stands for the other one, the provider. Wait until it is ready.

'liqoctl peer' and 'liqoctl create resourceslice' create one for the granted resources. This command creates another one
for the same ResourceSlice, or one with credentials of your own: a Secret in the tenant namespace with a kubeconfig for
the provider.

With --resource-slice-name the node has the resources that the provider has granted. With --kubeconfig-secret-name it
has the resources that the flags set.`,
		Example: `  liqoctl create virtualnode milan --remote-cluster-id milan --resource-slice-name milan

  # With a kubeconfig of your own.
  liqoctl create virtualnode gpus --remote-cluster-id milan \
    --kubeconfig-secret-name milan-gpus --cpu 8 --resource nvidia.com/gpu=2`,
	}
	c := newCreation(a, kindVirtualNode, cmd)
	fs := cmd.Flags()
	var f virtualNodeFlags
	f.createNode = fs.Bool("create-node", true, "create a Node; without one Services are reflected, but no pods run there")
	f.noCheck = fs.Bool("disable-network-check", false, "report the node as ready even if the networks are not connected")
	fs.StringVar(&f.secret, "kubeconfig-secret-name", "", "`NAME` of the Secret with a kubeconfig for the provider")
	fs.StringVar(&f.slice, "resource-slice-name", "", "`NAME` of the ResourceSlice whose resources and credentials the node uses")
	fs.StringVar(&f.template, "vk-options-template", "", "`NAMESPACE/NAME` of the VkOptionsTemplate (default: that of the installation)")
	f.resourceFlags.add(fs, map[corev1.ResourceName]string{corev1.ResourceCPU: "2", corev1.ResourceMemory: "4Gi", corev1.ResourcePods: "110"})
	fs.StringSliceVar(&f.storage, "storage-classes", nil, "`NAMES` of the provider's storage classes, the default first")
	fs.StringSliceVar(&f.ingress, "ingress-classes", nil, "`NAMES` of the provider's ingress classes, the default first")
	fs.StringSliceVar(&f.loadBalancer, "load-balancer-classes", nil, "`NAMES` of the provider's load balancer classes, the default first")
	fs.StringToStringVar(&f.labels, "labels", nil, "`LABELS` of the node: key=value,...")
	fs.StringToStringVar(&f.nodeSelector, "node-selector", nil, "`LABELS` of the provider's nodes on which pods run: key=value,...")
	fs.StringVar(&f.runtimeClass, "runtime-class-name", "", "`NAME` of the provider's runtime class for pods that do not name one")
	cmd.MarkFlagsOneRequired("kubeconfig-secret-name", "resource-slice-name")
	cmd.MarkFlagsMutuallyExclusive("kubeconfig-secret-name", "resource-slice-name")
	for _, flag := range []string{"cpu", "memory", "pods", "resource", "storage-classes", "ingress-classes", "load-balancer-classes"} {
		cmd.MarkFlagsMutuallyExclusive("resource-slice-name", flag)
	}
	fs.DurationVar(&c.timeout, "timeout", 2*time.Minute, "`DURATION` to wait before giving up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		spec, err := f.spec()
		if err != nil {
			return err
		}
		if c.out.given() {
			if f.slice != "" {
				return errors.New("-o: only the cluster knows what a ResourceSlice was granted: name a Secret with --kubeconfig-secret-name")
			}
			namespace := peering.TenantNamespaceName(c.remoteClusterID) // where it counts
			if cmd.Flags().Changed("namespace") {
				namespace = c.offline()
			}
			return c.out.objects(peering.NewVirtualNode(c.metadata(args[0], namespace), spec))
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		return peering.CreateVirtualNode(cmd.Context(), in, c.metadata(args[0], ""), spec, f.slice, peering.Options{Timeout: c.timeout}, a.console.Progress())
	}
	return cmd
}

// virtualNodeFlags say what a virtual node is to be.
type virtualNodeFlags struct {
	createNode, noCheck                   *bool
	secret, slice, template, runtimeClass string
	storage, ingress, loadBalancer        []string
	labels, nodeSelector                  map[string]string
	resourceFlags
}

// spec is what they say.
func (f *virtualNodeFlags) spec() (s offloadingv1beta1.VirtualNodeSpec, err error) {
	s.CreateNode, s.DisableNetworkCheck, s.Labels = f.createNode, f.noCheck, f.labels
	if f.template != "" {
		namespace, name, ok := strings.Cut(f.template, "/")
		if !ok || namespace == "" || name == "" {
			return s, fmt.Errorf("--vk-options-template %q: must be NAMESPACE/NAME", f.template)
		}
		s.VkOptionsTemplateRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	}
	if len(f.nodeSelector) > 0 || f.runtimeClass != "" {
		s.OffloadingPatch = &offloadingv1beta1.OffloadingPatch{NodeSelector: f.nodeSelector}
		if f.runtimeClass != "" {
			s.OffloadingPatch.RuntimeClassName = &f.runtimeClass
		}
	}
	if f.slice != "" {
		return s, nil
	}
	s.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: f.secret}
	for i, name := range f.storage {
		s.StorageClasses = append(s.StorageClasses, offloadingv1beta1.StorageClass{StorageClassName: name, Default: i == 0})
	}
	for i, name := range f.ingress {
		s.IngressClasses = append(s.IngressClasses, offloadingv1beta1.IngressClass{IngressClassName: name, Default: i == 0})
	}
	for i, name := range f.loadBalancer {
		s.LoadBalancerClasses = append(s.LoadBalancerClasses, offloadingv1beta1.LoadBalancerClass{LoadBalancerClassName: name, Default: i == 0})
	}
	s.ResourceQuota.Hard, err = f.resources()
	return s, err
}

func deleteVirtualNodeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: kindVirtualNode.name + " NAME", Aliases: kindVirtualNode.allAliases(),
		Short: "Delete a node that stands for another cluster",
		Long: `Delete a VirtualNode, and wait until its pods have ended in both clusters and its Node is gone. The pods
are evicted; those of a Deployment start elsewhere.

A ResourceSlice that asked for the node stays, but its annotation liqo.io/create-virtual-node is set to false, so that
no node is created for it again.`,
		Example: "  liqoctl delete virtualnode milan",
		Args:    oneName,
	}
	cmd.ValidArgsFunction = completeNames(a, kindVirtualNode)
	timeout := cmd.Flags().Duration("timeout", 2*time.Minute, "`DURATION` to wait before giving up")
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, args []string) error {
		return peering.DeleteVirtualNode(ctx, in, args[0], peering.Options{Timeout: *timeout}, a.console.Progress())
	})
	return cmd
}
