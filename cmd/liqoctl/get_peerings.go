package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

func getPeeringsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "peerings [ID...]",
		Aliases: []string{"peering", "peers", "peer"},
		Short:   "List the peerings of a cluster",
		Long: `List the peerings of a cluster, or those with the given clusters: this cluster's end of the tunnel,
whether it is connected, and the CIDRs by which pods of the other cluster are reached from here. -o wide also shows the
other cluster's role: a Consumer asks this cluster for resources, a Provider is asked by it; Unknown is neither, or you
may not see it.`,
		Args:    cobra.ArbitraryArgs,
		Example: "  liqoctl get peerings\n  liqoctl get peerings milan -o json",
	}
	out := a.outputFlag(cmd, formatWide, formatJSON, formatYAML)
	all := allNamespacesFlag(cmd)
	cmd.ValidArgsFunction = a.completePeers()
	cmd.RunE = a.inOne(func(ctx context.Context, in *access.Cluster, ids []string) error {
		in.NamespaceGiven = in.NamespaceGiven && !*all
		// Nodes and their tunnels are nobody's question here.
		cluster, err := a.survey(ctx, in, survey.Options{Nodes: &survey.Cluster{}})
		if err != nil {
			return err
		}
		a.missing(cluster, in)
		peers, err := choosePeers(in, cluster, ids)
		if err != nil {
			return err
		}
		var notAll error
		if len(ids) == 0 {
			notAll = incomplete(cluster, in)
		}
		rows := peeringRows(cluster, peers)
		switch {
		case out.given() && out.format != formatWide:
			return errors.Join(out.data(rows), notAll)
		case len(rows) == 0:
			a.console.Info(noPeersIn(in, cluster))
		default:
			a.console.Show(func(p *console.Page) { p.Table(peeringTable(rows, out.format == formatWide, time.Now())) })
		}
		return notAll
	})
	return cmd
}

// peeringRow is one peering as `get peerings -o json` prints it.
type peeringRow struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	// Role is that of the other cluster: Consumer, Provider, ConsumerAndProvider or Unknown.
	Role corev1beta1.Role `json:"role,omitempty"`
	// Gateway is the end of the tunnel that is in this cluster: Server or Client.
	Gateway    networkingv1beta1.ConnectionType  `json:"gateway,omitempty"`
	Status     networkingv1beta1.ConnectionValue `json:"status,omitempty"`
	Latency    string                            `json:"latency,omitempty"`
	Endpoint   string                            `json:"endpoint,omitempty"`
	MTU        int                               `json:"mtu,omitempty"`
	PodCIDR    networkingv1beta1.CIDRs           `json:"podCIDR,omitzero"`
	RemappedTo networkingv1beta1.CIDRs           `json:"remappedPodCIDR,omitzero"`
	Created    time.Time                         `json:"created,omitzero"`
}

func peeringRows(s *survey.Cluster, peers []*survey.Peer) []peeringRow {
	rows := []peeringRow{}
	for _, p := range peers {
		row := peeringRow{ID: p.ID, Namespace: p.Namespace, Role: s.Role(p)}
		if conf := p.Configuration; conf != nil {
			row.PodCIDR, row.Created = onePrefix(conf.Spec.Remote.CIDR.Pod), conf.CreationTimestamp.Time
			if conf.Status.Remote != nil {
				row.RemappedTo = onePrefix(conf.Status.Remote.CIDR.Pod)
			}
		}
		if g := p.Gateway; g != nil {
			row.Gateway, row.MTU, row.Endpoint = g.Role, g.MTU, endpointText(g.Endpoint)
			if row.Created.IsZero() {
				row.Created = g.Created
			}
		}
		if p.Foreign != nil && row.Created.IsZero() { // without a network
			row.Created = p.Foreign.CreationTimestamp.Time
		}
		if p.Connection != nil {
			row.Status, row.Latency = p.Connection.Status.Value, p.Connection.Status.Latency.Value
		}
		rows = append(rows, row)
	}
	return rows
}

func endpointText(e *networkingv1beta1.Endpoint) string {
	if e == nil || len(e.Addresses) == 0 {
		return ""
	}
	port := e.Port
	if port == 0 && len(e.Ports) > 0 {
		port = e.Ports[0]
	}
	return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(port)))
}

// peeringTable is the table of peerings: dashes stand for what is not there.
func peeringTable(rows []peeringRow, wide bool, now time.Time) (header []string, cells [][]string) {
	header = []string{"PEER", "GATEWAY", "STATUS", "POD CIDR", "REMAPPED POD CIDR", "AGE"}
	if wide {
		header = append(header, "ROLE", "LATENCY", "ENDPOINT", "MTU", "NAMESPACE")
	}
	for _, r := range rows {
		age := "-"
		if !r.Created.IsZero() {
			age = duration.HumanDuration(now.Sub(r.Created))
		}
		row := []string{r.ID, string(r.Gateway), stateText(r.Status), joinCIDRs(r.PodCIDR), joinCIDRs(r.RemappedTo), age}
		if wide {
			row = append(row, string(r.Role), r.Latency, r.Endpoint, strconv.Itoa(r.MTU), r.Namespace)
		}
		cells = append(cells, dashed(row))
	}
	return header, cells
}

func stateText(v networkingv1beta1.ConnectionValue) string {
	switch v {
	case networkingv1beta1.Connected:
		return console.Good(string(v))
	case networkingv1beta1.ConnectionError:
		return console.Bad(string(v))
	}
	return console.Caution(string(v))
}

// onePrefix shows a list of one prefix as that prefix, as most peerings have one.
func onePrefix(c networkingv1beta1.CIDRs) networkingv1beta1.CIDRs {
	c.Scalar = len(c.List) == 1
	return c
}

func onePrefixes(c networkingv1beta1.ClusterCIDR) networkingv1beta1.ClusterCIDR {
	return networkingv1beta1.ClusterCIDR{Pod: onePrefix(c.Pod), External: onePrefix(c.External)}
}
