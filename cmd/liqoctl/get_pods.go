package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

func getPodsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "pods",
		Aliases: []string{"pod", "po"},
		Short:   "List where pods run: those of offloaded namespaces, and those of other clusters",
		Long: `List where pods run: those of offloaded namespaces, and those of other clusters that run in this one.
FROM is the cluster that the pod belongs to, IN the cluster in which it runs.

-o wide also shows the pod's address, its namespace in the other one of the two clusters, and why it is not ready
or waits for a resize. 'liqoctl network doctor' finds out what keeps a pod from running in the other cluster.`,
		Args:    cobra.NoArgs,
		Example: "  liqoctl get pods\n  liqoctl get pods -n shop -o wide\n  liqoctl get pods --remote-cluster-id milan -o json",
	}
	out := a.outputFlag(cmd, formatWide, formatJSON, formatYAML)
	all := allNamespacesFlag(cmd)
	with := cmd.Flags().String("remote-cluster-id", "", "only pods from or in the cluster with this `ID`")
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, _ []string) error {
		in.NamespaceGiven = in.NamespaceGiven && !*all
		namespace := ""
		if in.NamespaceGiven {
			namespace = in.Namespace
		}
		pods, err := survey.OffloadedPods(ctx, in, namespace)
		if err != nil {
			return err
		}
		if *with != "" {
			pods = slices.DeleteFunc(pods, func(p survey.OffloadedPod) bool { return p.From != *with && p.In != *with })
		}
		switch {
		case out.given() && out.format != formatWide:
			return out.data(pods)
		case len(pods) == 0:
			a.console.Info("There are no pods of offloaded namespaces or of other clusters")
		default:
			a.console.Show(func(p *console.Page) { p.Table(podTable(pods, out.format == formatWide, time.Now())) })
		}
		return nil
	})
	return cmd
}

// podTable is the table of pods: dashes stand for what is not there.
func podTable(pods []survey.OffloadedPod, wide bool, now time.Time) (header []string, cells [][]string) {
	header = []string{"NAMESPACE", "NAME", "FROM", "IN", "NODE", "STATUS", "AGE"}
	if wide {
		header = append(header, "IP", "OTHER NAMESPACE", "REASON")
	}
	for _, p := range pods {
		status := string(p.Phase)
		switch {
		case p.Ready || p.Phase == corev1.PodSucceeded:
			status = console.Good(status)
		case p.Phase == corev1.PodFailed:
			status = console.Bad(status)
		default:
			status = console.Caution(status)
		}
		age := "-"
		if !p.Created.IsZero() {
			age = duration.HumanDuration(now.Sub(p.Created))
		}
		row := []string{p.Namespace, p.Name, p.From, p.In, p.Node, status, age}
		if wide {
			row = append(row, p.IP, p.OtherNamespace, p.Reason)
		}
		cells = append(cells, dashed(row))
	}
	return header, cells
}
