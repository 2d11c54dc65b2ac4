package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// offloadCommands are those by which pods of this cluster may run in others.
func offloadCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		parent("offload", "Let pods of a namespace run in other clusters",
			`Let pods of a namespace run in other clusters, on the virtual nodes that stand for these clusters.`,
			offloadNamespaceCommand(a)),
		parent("unoffload", "Undo an offload",
			`Undo 'liqoctl offload': the pods run only in this cluster again.`,
			unoffloadNamespaceCommand(a)),
	}
}

func offloadNamespaceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "namespace NAME...", Aliases: kindNamespace.allAliases(),
		Short: "Let pods of a namespace run in other clusters",
		Long: `Let pods of a namespace run in other clusters, the providers, and wait until the providers have a
namespace for them.

Each selected provider gets a namespace. --namespace-mapping-strategy decides on its name:
  DefaultName      NAME-CLUSTERID, with the ID of this cluster
  EnforceSameName  NAME
  SelectedName     the value of --remote-namespace-name

--pod-offloading-strategy decides where new pods run:
  LocalAndRemote   on any node
  Remote           on virtual nodes, at a provider
  Local            on nodes of this cluster; Services are reflected nevertheless

A pod that is already waiting for a node may also run on virtual nodes, if all of them are selected. Other pods stay
where they are; recreate them to move them.

To change the name at the providers later, run 'liqoctl unoffload namespace' first. If no provider is selected yet,
there is only a warning; if a provider cannot create the namespace, the command fails.`,
		Example: `  liqoctl offload namespace demo

  # Only at providers in Europe that have GPUs, or in the region us-east; under the same name.
  liqoctl offload namespace demo -l region=eu,gpu -l region=us-east \
    --namespace-mapping-strategy EnforceSameName

  # For GitOps.
  liqoctl offload namespace demo --pod-offloading-strategy Remote -o yaml`,
	}
	cmd.ValidArgsFunction = completeNames(a, kindNamespace)
	fs := cmd.Flags()
	var spec offloadingv1beta1.NamespaceOffloadingSpec
	mapping, pods := string(offloadingv1beta1.DefaultNameMappingStrategy), string(offloadingv1beta1.LocalAndRemotePodOffloadingStrategy)
	var selectors []string
	var chosen string
	var timeout time.Duration
	fs.StringVar(&pods, "pod-offloading-strategy", pods, "where pods run: LocalAndRemote, Local or Remote (`STRATEGY`)")
	fs.StringVar(&mapping, "namespace-mapping-strategy", mapping, "`STRATEGY` for the namespaces' names at the providers: DefaultName, EnforceSameName or SelectedName")
	fs.StringVar(&spec.RemoteNamespaceName, "remote-namespace-name", "", "`NAME` of the namespace at the providers, for SelectedName")
	complete(cmd, "pod-offloading-strategy", string(offloadingv1beta1.LocalAndRemotePodOffloadingStrategy), string(offloadingv1beta1.LocalPodOffloadingStrategy), string(offloadingv1beta1.RemotePodOffloadingStrategy))
	complete(cmd, "namespace-mapping-strategy", string(offloadingv1beta1.DefaultNameMappingStrategy), string(offloadingv1beta1.EnforceSameNameMappingStrategy), string(offloadingv1beta1.SelectedNameMappingStrategy))
	fs.StringArrayVarP(&selectors, "selector", "l", nil, "`LABELS` of virtual nodes, as for kubectl -l; if repeated, one match is enough (default: every virtual node)")
	fs.StringVar(&chosen, "ns-selector", "", "`LABELS` of the namespaces to offload, instead of their names")
	fs.DurationVar(&timeout, "timeout", 20*time.Second, "`DURATION` to wait for the providers before giving up")
	out := a.outputFlag(cmd, formatYAML, formatJSON, formatName)
	cmd.Args = func(cmd *cobra.Command, args []string) error { return namesOrSelector(args, chosen) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		spec.NamespaceMappingStrategy, spec.PodOffloadingStrategy = offloadingv1beta1.NamespaceMappingStrategy(mapping), offloadingv1beta1.PodOffloadingStrategy(pods)
		if err := checkOffloading(spec); err != nil {
			return err
		}
		spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{}
		for _, text := range selectors {
			term, err := peering.Selector(text)
			if err != nil {
				return fmt.Errorf("--selector %q: %w", text, err)
			}
			spec.ClusterSelector.NodeSelectorTerms = append(spec.ClusterSelector.NodeSelectorTerms, term)
		}
		object := func(namespace string) *offloadingv1beta1.NamespaceOffloading {
			return peering.NewNamespaceOffloading(peering.Metadata{Namespace: namespace, Labels: a.labels, Annotations: a.annotations}, spec)
		}
		var in *access.Cluster
		var all []corev1.Namespace
		if chosen == "" && out.given() { // what is printed of names needs no cluster
			for _, name := range args {
				all = append(all, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		} else {
			var err error
			if in, err = a.one(cmd.Context()); err != nil {
				return err
			}
			if all, err = namespaces(cmd.Context(), in, args, chosen); err != nil {
				return err
			}
		}
		if out.given() {
			var objects []client.Object
			for i := range all {
				if why := reserved.FromOffloading(all[i].Name, all[i].Labels, a.local.liqoNamespace); why != "" {
					return fmt.Errorf("%s; nothing was printed", why)
				}
				objects = append(objects, object(all[i].Name))
			}
			return out.objects(objects...)
		}
		var errs []error
		for i := range all {
			errs = append(errs, peering.Offload(cmd.Context(), in, object(all[i].Name), peering.Options{Timeout: timeout}, a.console.Progress()))
		}
		return errors.Join(errs...)
	}
	return cmd
}

func unoffloadNamespaceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "namespace NAME...", Aliases: kindNamespace.allAliases(),
		Short: "Let the pods of a namespace run only in this cluster again",
		Long: `Let the pods of a namespace run only in this cluster again, and wait until the providers have deleted
their namespaces for it, with everything in them. Pods that run there end. The namespace in this cluster stays.`,
		Example: "  liqoctl unoffload namespace demo",
	}
	cmd.ValidArgsFunction = completeNames(a, kindNamespace)
	chosen := cmd.Flags().String("ns-selector", "", "`LABELS` of namespaces, instead of their names")
	timeout := cmd.Flags().Duration("timeout", timeoutOfIdentities, "`DURATION` to wait for the providers before giving up")
	cmd.Args = func(cmd *cobra.Command, args []string) error { return namesOrSelector(args, *chosen) }
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, args []string) error {
		all, err := namespaces(ctx, in, args, *chosen)
		if err != nil {
			return err
		}
		var names []string
		for i := range all {
			names = append(names, all[i].Name)
		}
		what, err := peering.Unoffloading(ctx, in, names)
		if err != nil {
			return err
		}
		if len(what) > 0 {
			if err := a.confirm(ctx, "unoffload namespace", what); err != nil {
				return err
			}
		}
		var errs []error
		for _, name := range names {
			errs = append(errs, peering.Unoffload(ctx, in, name, peering.Options{Timeout: *timeout}, a.console.Progress()))
		}
		return errors.Join(errs...)
	})
	return cmd
}

// namesOrSelector judges the arguments of commands about namespaces.
func namesOrSelector(names []string, selector string) error {
	switch {
	case len(names) == 0 && selector == "":
		return errors.New("expected one or more NAMEs of namespaces, or --ns-selector")
	case len(names) > 0 && selector != "":
		return errors.New("expected either names of namespaces or --ns-selector, not both")
	}
	return nil
}

// checkOffloading judges what the API server would refuse in other words.
func checkOffloading(s offloadingv1beta1.NamespaceOffloadingSpec) error {
	selected := s.NamespaceMappingStrategy == offloadingv1beta1.SelectedNameMappingStrategy
	switch s.NamespaceMappingStrategy {
	case offloadingv1beta1.DefaultNameMappingStrategy, offloadingv1beta1.EnforceSameNameMappingStrategy, offloadingv1beta1.SelectedNameMappingStrategy:
	default:
		return fmt.Errorf("--namespace-mapping-strategy %q: must be DefaultName, EnforceSameName or SelectedName", s.NamespaceMappingStrategy)
	}
	switch s.PodOffloadingStrategy {
	case offloadingv1beta1.LocalAndRemotePodOffloadingStrategy, offloadingv1beta1.LocalPodOffloadingStrategy, offloadingv1beta1.RemotePodOffloadingStrategy:
	default:
		return fmt.Errorf("--pod-offloading-strategy %q: must be LocalAndRemote, Local or Remote", s.PodOffloadingStrategy)
	}
	if selected != (s.RemoteNamespaceName != "") {
		return errors.New("--remote-namespace-name and --namespace-mapping-strategy SelectedName must be used together")
	}
	return nil
}

// namespaces are the ones that are named, which must be there, or selected.
func namespaces(ctx context.Context, in *access.Cluster, names []string, selector string) ([]corev1.Namespace, error) {
	if selector == "" {
		all := make([]corev1.Namespace, len(names))
		for i, name := range names {
			if err := in.Client.Get(ctx, client.ObjectKey{Name: name}, &all[i]); err != nil {
				return nil, in.Explain("read namespace "+name, err)
			}
		}
		return all, nil
	}
	s, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("--ns-selector %q: %w", selector, err)
	}
	var list corev1.NamespaceList
	if err := in.Client.List(ctx, &list, client.MatchingLabelsSelector{Selector: s}); err != nil {
		return nil, in.Explain("list namespaces", err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("--ns-selector %q selects no namespace", selector)
	}
	return list.Items, nil
}
