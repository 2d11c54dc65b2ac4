package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

func getCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List the objects of peerings",
		Long: `List the objects of peerings in one cluster, as kubectl does. 'liqoctl get peerings' prints one line per
peering, and 'liqoctl get pods' one line per pod that may run in another cluster.

'liqoctl network status' adds data from the gateways themselves.`,
	}
	cmd.AddCommand(getPeeringsCommand(a), getPodsCommand(a), getServicesCommand(a))
	for _, k := range append(userKinds, kindConnection, kindTenant, kindIdentity, kindResourceSlice, kindVirtualNode) {
		cmd.AddCommand(getKindCommand(a, k))
	}
	cmd.AddCommand(getNonceCommand(a), getKubeconfigCommand(a))
	return cmd
}

func getKindCommand(a *app, k *kind) *cobra.Command {
	q := query{app: a, kind: k}
	cmd := &cobra.Command{
		Use:     k.name + " [NAME...]",
		Aliases: k.allAliases(),
		Short:   "List " + k.titles(),
		Long:    fmt.Sprintf("List the %s of a namespace or of all namespaces, or only the named ones.", k.titles()),
		Args:    cobra.ArbitraryArgs,
		Example: fmt.Sprintf("  liqoctl get %s -A -o wide\n  liqoctl get %[1]s -n liqo-tenant-milan milan -o yaml", k.plural),
	}
	cmd.ValidArgsFunction = completeNames(a, k)
	q.out = q.outputFlag(cmd, formatWide, formatYAML, formatJSON, formatName)
	fs := cmd.Flags()
	fs.BoolVarP(&q.all, "all-namespaces", "A", false, "list the objects of all namespaces")
	fs.StringVarP(&q.selector, "selector", "l", "", "only objects with these `LABELS`: key=value,...")
	fs.StringVar(&q.remoteClusterID, "remote-cluster-id", "", "only objects about the cluster with this `ID`")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if len(names) > 0 && (q.all || q.selector != "") {
			return fmt.Errorf("names cannot be combined with --all-namespaces or --selector")
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		if q.out.given() && q.out.format != formatWide {
			return q.printObjects(cmd.Context(), in, names)
		}
		return q.printTable(cmd.Context(), in, names)
	}
	return cmd
}

// query is what to list and how.
type query struct {
	*app
	kind            *kind
	out             *output
	all             bool
	selector        string
	remoteClusterID string
}

// labels are those that objects must have.
func (q *query) labels() (labels.Selector, error) {
	s := q.selector
	if q.remoteClusterID != "" {
		s = strings.Trim(s+","+networkingv1beta1.LabelRemoteClusterID+"="+q.remoteClusterID, ",")
	}
	selector, err := labels.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	return selector, nil
}

// namespace is where to look; empty: everywhere.
func (q *query) namespace(in *access.Cluster) string {
	if q.all {
		return ""
	}
	return in.Namespace
}

// printObjects prints whole objects.
func (q *query) printObjects(ctx context.Context, in *access.Cluster, names []string) error {
	objs, err := q.objects(ctx, in, names)
	if err != nil {
		return err
	}
	plain := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		if plain[i], err = plainObject(obj); err != nil {
			return err
		}
	}
	return q.out.print(plain, len(names) == 1)
}

func (q *query) objects(ctx context.Context, in *access.Cluster, names []string) ([]client.Object, error) {
	var objs []client.Object
	for _, name := range names {
		obj, key := q.kind.object(), client.ObjectKey{Namespace: in.Namespace, Name: name}
		if err := in.Client.Get(ctx, key, obj); err != nil {
			return nil, in.Explain("read "+q.kind.of(key), err)
		}
		objs = append(objs, obj)
	}
	if len(names) > 0 {
		return objs, nil
	}
	selector, err := q.labels()
	if err != nil {
		return nil, err
	}
	list := q.kind.list()
	if err := in.Client.List(ctx, list, client.InNamespace(q.namespace(in)), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, in.Explain("list "+q.kind.titles(), err)
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		objs = append(objs, o.(client.Object))
		return nil
	})
	return objs, err
}

// printTable prints the columns that the API server has for the kind.
func (q *query) printTable(ctx context.Context, in *access.Cluster, names []string) error {
	selector, err := q.labels()
	if err != nil {
		return err
	}
	var t serverTable
	if len(names) == 0 {
		err = t.list(ctx, in, q.kind, q.namespace(in), selector)
	}
	for _, name := range names {
		if err = t.get(ctx, in, q.kind, client.ObjectKey{Namespace: in.Namespace, Name: name}); err != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if len(t.rows) == 0 {
		where := "in any namespace"
		if !q.all {
			where = "in namespace " + in.Namespace + " (-A: in all)"
		}
		q.console.Info(fmt.Sprintf("There are no %s %s", q.kind.titles(), where))
		return nil
	}
	header, rows := t.columns(q.all, q.out.format == formatWide)
	q.console.Show(func(p *console.Page) { p.Table(header, rows) })
	return nil
}

// completeNames completes names of objects of a kind.
func completeNames(a *app, k *kind) cobra.CompletionFunc {
	return a.completion(0, func(ctx context.Context, in *access.Cluster) (names []string) {
		objs, err := (&query{app: a, kind: k}).objects(ctx, in, nil)
		if err != nil {
			return nil
		}
		for _, obj := range objs {
			names = append(names, obj.GetName())
		}
		return names
	})
}

// allNamespacesFlag adds -A to a command that looks everywhere unless -n is given: those who
// know kubectl add it.
func allNamespacesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("all-namespaces", "A", false, "look into all namespaces, as without -n")
}
