package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"text/tabwriter"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/virtualkubelet"
)

// serve keeps the virtual nodes until ctx ends.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	config, err := mirror.Config(o.kubeconfig)
	if err != nil {
		return err
	}
	k, err := virtualkubelet.New(config, virtualkubelet.Options{
		ClusterID: o.clusterID, PeerID: o.peerID, TenantNamespace: o.tenantNamespace, LiqoNamespace: o.namespace,
		Address: o.address, Port: int32(o.port), APIServerPort: cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443"), LeaseDuration: o.lease, Policies: o.policies, Logger: log,
	})
	if err != nil {
		return err
	}
	where := netip.AddrPortFrom(o.address, o.port)
	l, err := net.Listen("tcp", where.String())
	if err != nil {
		return daemon.SocketError("TCP", where, "the kubelet API", "--listen-port", err)
	}
	defer l.Close()
	servers, err := program.Listen(&o.listen, daemon.Pages{
		Status:  func() any { return report{Version: daemon.Version(version), State: k.State()} },
		Metrics: daemon.MetricsHandler(metricsOf(k.State)), Ready: k.Ready,
	}, log)
	if err != nil {
		servers.Close()
		return err
	}
	defer servers.Close()
	parts, _ := daemon.NewGroup(ctx)
	parts.Go("virtual nodes", k.Run)
	parts.Go("kubelet API", func(ctx context.Context) error { return k.Serve(ctx, l) })
	servers.Go(parts)
	log.Info("virtualkubelet runs", "version", daemon.Version(version), "provider", o.peerID, "namespace", o.tenantNamespace, "address", where)
	if err := parts.Wait(); err != nil {
		return err
	}
	log.Info("virtualkubelet ends")
	return nil
}

// report is what status shows.
type report struct {
	Version string
	virtualkubelet.State
}

// status asks the running process and prints its answer.
func status(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := program.ParseStatusFlags(args, stdout, statusHead, statusTail, "")
	if err != nil {
		return err
	}
	return daemon.ShowStatus(ctx, program, o, stdout, writeStatus)
}

func writeStatus(w io.Writer, r report, _ bool) error {
	fmt.Fprintf(w, "virtualkubelet %s\n", r.Version)
	if !r.Connected {
		fmt.Fprintf(w, "API server of this cluster: %s\n", r.Error)
	}
	if r.Network != "" {
		fmt.Fprintf(w, "network: %s\n", r.Network)
	}
	if len(r.Nodes) == 0 {
		_, err := fmt.Fprintln(w, "no virtual nodes")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tPODS\tNAMESPACES\tPROVIDER")
	for _, n := range r.Nodes {
		why := n.Provider
		if why == "" {
			why = "answers"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", n.Name, n.Pods, n.Namespaces, why)
	}
	return t.Flush()
}

// families are the metrics.
var families = []daemon.Metric[virtualkubelet.State]{
	daemon.Gauge("sluice_virtualkubelet_node_provider_up", "1 while the provider's API server answers, with the credentials of a virtual node.",
		func(s virtualkubelet.State, emit daemon.Emit) {
			for _, n := range s.Nodes {
				emit(daemon.Bool(n.Provider == ""), n.Name)
			}
		}, "node"),
	daemon.Gauge("sluice_virtualkubelet_node_pods", "Pods on a virtual node.",
		func(s virtualkubelet.State, emit daemon.Emit) {
			for _, n := range s.Nodes {
				emit(float64(n.Pods), n.Name)
			}
		}, "node"),
	daemon.Gauge("sluice_virtualkubelet_node_namespaces", "Namespaces of the provider in which pods of a virtual node may run.",
		func(s virtualkubelet.State, emit daemon.Emit) {
			for _, n := range s.Nodes {
				emit(float64(n.Namespaces), n.Name)
			}
		}, "node"),
	daemon.Gauge("sluice_virtualkubelet_objects_waiting", "Objects that wait to be reflected.",
		func(s virtualkubelet.State, emit daemon.Emit) { emit(float64(s.Waiting)) }),
	daemon.Gauge("sluice_virtualkubelet_network_up", "1 while the network of the peering works, or there is none.",
		func(s virtualkubelet.State, emit daemon.Emit) { emit(daemon.Bool(s.Network == "")) }),
	daemon.Gauge("sluice_virtualkubelet_api_connected", "1 while the API server of this cluster answers.",
		func(s virtualkubelet.State, emit daemon.Emit) { emit(daemon.Bool(s.Connected)) }),
}

// metricsOf collects the metrics.
func metricsOf(state func() virtualkubelet.State) prometheus.Collector {
	return daemon.Collector[virtualkubelet.State]{Report: state, Metrics: families}
}
