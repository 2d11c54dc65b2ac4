package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// timeoutOfExport is how long a controller has to look at a ServiceExport.
const timeoutOfExport = 20 * time.Second

// serviceCommands are those by which other clusters use Services of this one.
func serviceCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		parent("export", "Let other clusters use a Service",
			`Let other clusters use a Service of this one. In each of them it has an address of its own, and the endpoints of this cluster.`,
			exportServiceCommand(a)),
		parent("unexport", "Undo an export",
			`Undo 'liqoctl export': other clusters can no longer use the Service.`,
			unexportServiceCommand(a)),
	}
}

func exportServiceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "service NAME", Aliases: []string{"svc"},
		Short: "Let other clusters use a Service",
		Long: `Let other clusters use a Service: all clusters that this one is connected to, or those listed with --to.
The command creates a ServiceExport with the name of the Service. Each of the clusters that has a namespace of the same
name then creates a ServiceImport in it, and a Service with the endpoints of all clusters that export it. Both clusters
need services.enabled=true in their installation.

Repeat the command to export to other clusters, or without --prefer-local. If no cluster is connected yet, there is only a warning.`,
		Example: `  liqoctl export service web -n shop

  # To one cluster only.
  liqoctl export service web -n shop --to milan

  # For failover: here, pods of other clusters are used only while none of this one is ready.
  liqoctl export service web -n shop --prefer-local

  # For GitOps.
  liqoctl export service web -n shop -o yaml`,
		Args:              oneName,
		ValidArgsFunction: a.completeServices(),
	}
	to := cmd.Flags().StringSlice("to", nil, "`IDS` of the clusters that may use the Service, separated by commas (default: all)")
	preferLocal := cmd.Flags().Bool("prefer-local", false, "in this cluster, use endpoints of other clusters only while none of this one is ready")
	timeout := cmd.Flags().Duration("timeout", timeoutOfExport, "`DURATION` to wait for the controller before giving up")
	out := a.outputFlag(cmd, formatYAML, formatJSON, formatName)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, id := range *to {
			if len(validation.IsDNS1123Label(id)) > 0 {
				return fmt.Errorf("--to %q: not the ID of a cluster; 'liqoctl get peerings' lists the IDs", id)
			}
		}
		in, err := a.one(cmd.Context())
		if err != nil {
			return err
		}
		object := peering.NewServiceExport(peering.Metadata{Namespace: in.Namespace, Name: args[0], Labels: a.labels, Annotations: a.annotations}, *to, *preferLocal)
		if out.given() {
			return out.objects(object)
		}
		return peering.Export(cmd.Context(), in, object, peering.Options{Timeout: *timeout}, a.console.Progress())
	}
	return cmd
}

func unexportServiceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "service NAME", Aliases: []string{"svc"},
		Short: "Stop letting other clusters use a Service",
		Long: `Stop letting other clusters use a Service: delete its ServiceExport. The Service itself stays. Open
connections from other clusters to its endpoints are not cut, but there are no new ones.`,
		Example:           "  liqoctl unexport service web -n shop",
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	timeout := cmd.Flags().Duration("timeout", timeoutOfExport, "`DURATION` to wait before giving up")
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, args []string) error {
		return peering.Unexport(ctx, in, types.NamespacedName{Namespace: in.Namespace, Name: args[0]}, peering.Options{Timeout: *timeout}, a.console.Progress())
	})
	return cmd
}

func getServicesCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "services", Aliases: []string{"service", "svc"},
		Short: "List the Services that clusters share: exported from here, imported from others",
		Long: `List the Services that clusters share: those of this cluster that others may use (TO), and those with
endpoints in other clusters (FROM). ADDRESS is the address at which pods of this cluster reach the Service, READY the
number of ready endpoints. -o wide also shows what differs from the request, and why.`,
		Args:    cobra.NoArgs,
		Example: "  liqoctl get services\n  liqoctl get services -n shop -o wide\n  liqoctl get services -o json",
	}
	out := a.outputFlag(cmd, formatWide, formatJSON, formatYAML)
	all := allNamespacesFlag(cmd)
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, _ []string) error {
		in.NamespaceGiven = in.NamespaceGiven && !*all
		namespace := ""
		if in.NamespaceGiven {
			namespace = in.Namespace
		}
		shared, served, err := survey.SharedServices(ctx, in, namespace)
		if err != nil {
			return err
		}
		switch {
		case !served:
			return in.Errorf("cluster %s does not share Services, as it lacks the kinds for it; to enable it, run: %s", in.Where(), in.Command("install", "--set", "services.enabled=true"))
		case out.given() && out.format != formatWide:
			return out.data(shared)
		case len(shared) == 0:
			a.console.Info("No Service is exported or imported; 'liqoctl export service' exports one")
		default:
			a.console.Show(func(p *console.Page) { p.Table(serviceTable(shared, out.format == formatWide)) })
		}
		return nil
	})
	return cmd
}

// serviceTable is the table of Services: dashes stand for what is not there.
func serviceTable(shared []survey.SharedService, wide bool) (header []string, cells [][]string) {
	header = []string{"NAMESPACE", "NAME", "TO", "FROM", "TYPE", "ADDRESS", "READY", "STATUS"}
	if wide {
		header = append(header, "DETAILS")
	}
	for _, s := range shared {
		ready, status := "", console.Good("OK")
		if s.Type != "" {
			ready = fmt.Sprintf("%d/%d", s.Ready, s.Endpoints)
		}
		switch {
		case len(s.Problems) > 0:
			status = console.Bad("Problem")
		case s.Type != "" && s.Ready == 0:
			status = console.Caution("NoEndpoints")
		}
		row := []string{s.Namespace, s.Name, strings.Join(s.To, ","), strings.Join(s.From, ","), string(s.Type), strings.Join(s.IPs, ","), ready, status}
		if wide {
			row = append(row, strings.Join(slices.Concat(s.Problems, s.Notes), "; "))
		}
		cells = append(cells, dashed(row))
	}
	return header, cells
}
