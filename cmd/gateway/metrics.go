package main

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/tunnel"
)

// driver is the value of the label by which dashboards for Liqo tell tunnel
// technologies apart.
const driver = "wireguard"

// peerFamilies have the names, units and labels that Liqo's have.
var peerFamilies = []daemon.Metric[report]{
	daemon.Counter("liqo_peer_receive_bytes_total", "Bytes received from the peer, WireGuard messages as a whole.",
		ofPeer(func(r report) float64 { return float64(r.DataPlane.Tunnel.Total().RxBytes) }), "driver", "cluster_id"),
	daemon.Counter("liqo_peer_transmit_bytes_total", "Bytes sent to the peer, WireGuard messages as a whole.",
		ofPeer(func(r report) float64 { return float64(r.DataPlane.Tunnel.Total().TxBytes) }), "driver", "cluster_id"),
	daemon.Gauge("liqo_peer_latency_us", "Last round trip of the health ping, in microseconds; 0 when there is none.",
		ofPeer(func(r report) float64 { return float64(r.Sync.Peer.Latency.Microseconds()) }), "driver", "cluster_id"),
	daemon.Gauge("liqo_peer_is_connected", "1 while the peer answers the health ping.",
		ofPeer(func(r report) float64 { return daemon.Bool(r.Sync.Peer.Value == networkingv1beta1.Connected) }), "driver", "cluster_id"),
	daemon.Gauge("liqo_wireguard_implementation", "1 for the implementation of WireGuard in use.",
		func(_ report, emit daemon.Emit) { emit(1, driver, "userspace") }, "driver", "implementation"),
}

// ownFamilies are what only this gateway has.
var ownFamilies = []daemon.Metric[report]{
	daemon.Counter("sluice_packets_total", "Inner packets forwarded, after segmentation.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Packets }), "direction"),
	daemon.Counter("sluice_bytes_total", "Inner bytes forwarded.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Bytes }), "direction"),
	daemon.Counter("sluice_repaired_checksums_total", "Packets that came with an unfinished checksum.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Repaired }), "direction"),
	daemon.Counter("sluice_segmented_total", "Super-segments that were cut to the MTU.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Segmented }), "direction"),
	daemon.Counter("sluice_fragmented_total", "Packets that were cut by IPv4 fragmentation.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Fragmented }), "direction"),
	daemon.Counter("sluice_fallback_routes_total", "Packets of pods without a route: ingress, sent to a node that was chosen; egress, from a node that was not checked.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Fallback }), "direction"),
	daemon.Counter("sluice_drops_total", "Packets dropped, by reason.", emitDrops, "direction", "reason"),
	daemon.Counter("sluice_node_packets_total", "Inner packets from (egress) and to (ingress) a node.",
		eachNode(func(n dataplane.NodeStatus) (uint64, uint64) { return n.RxPackets, n.TxPackets }), "node", "direction"),
	daemon.Counter("sluice_node_bytes_total", "Inner bytes from (egress) and to (ingress) a node.",
		eachNode(func(n dataplane.NodeStatus) (uint64, uint64) { return n.RxBytes, n.TxBytes }), "node", "direction"),
	daemon.Gauge("sluice_handshake_age_seconds", "Time since the last WireGuard handshake; absent before the first.",
		func(r report, emit daemon.Emit) {
			if t := r.DataPlane.Tunnel.LastHandshake; !t.IsZero() {
				emit(r.Time.Sub(t).Seconds())
			}
		}),
	daemon.Gauge("sluice_waiting_packets", "Packets that wait for a WireGuard session, up to 64.",
		func(r report, emit daemon.Emit) { emit(float64(r.DataPlane.Tunnel.Total().Waiting)) }),
	daemon.Gauge("sluice_services", "Services that the peer may use (exported) and has told (imported); absent without --services.",
		eachWay(func(s *services.Status) (int, int) { return s.Exported, len(s.Imported) }), "direction"),
	daemon.Gauge("sluice_service_endpoints", "Endpoints of these Services.",
		eachWay(func(s *services.Status) (int, int) { return s.ExportedEndpoints, s.ImportedEndpoints }), "direction"),
	daemon.Gauge("sluice_services_connected", "1 while the peer's gateway listens (exported), and while it has told all its Services (imported).",
		eachWay(func(s *services.Status) (int, int) { return int(daemon.Bool(s.Told)), int(daemon.Bool(s.Heard)) }), "direction"),
	daemon.Counter("sluice_services_refused_total", "What the peer told and must not have, by reason. Invalid is one Service, everything else ends a connection.",
		func(r report, emit daemon.Emit) {
			if r.Services == nil {
				return
			}
			for _, reason := range services.Reasons {
				emit(float64(r.Services.Refused[reason]), string(reason))
			}
		}, "reason"),
	daemon.Gauge("sluice_services_left_out", "ExportedServices that the peer is not told of, as they are beyond a bound.",
		func(r report, emit daemon.Emit) {
			if r.Services != nil {
				emit(float64(len(r.Services.LeftOut)))
			}
		}),
	daemon.Counter("sluice_socket_overruns_total", "Datagrams that the kernel dropped because the socket's buffer was full.",
		eachSocket(func(s dataplane.SocketStatus) uint64 { return s.Overruns }), "socket"),
	daemon.Counter("sluice_socket_write_errors_total", "Datagrams that the kernel refused to send.",
		eachSocket(func(s dataplane.SocketStatus) uint64 { return s.WriteErrors }), "socket"),
	daemon.Counter("sluice_socket_calls_total", "System calls; sluice_socket_datagrams_total divided by it is the batch size.",
		eachSocketOperation(func(s dataplane.SocketStatus) (uint64, uint64) { return s.Reads, s.Writes }), "socket", "operation"),
	daemon.Counter("sluice_socket_datagrams_total", "Datagrams read and written.",
		eachSocketOperation(func(s dataplane.SocketStatus) (uint64, uint64) { return s.ReadDatagrams, s.WriteDatagrams }), "socket", "operation"),
	daemon.Gauge("sluice_socket_batch_size", "Datagrams per system call, averaged since the start.", emitBatchSize, "socket", "operation"),
	daemon.Gauge("sluice_socket_offload", "1 while the offload is in use.",
		func(r report, emit daemon.Emit) {
			for name, s := range r.DataPlane.Sockets {
				emit(daemon.Bool(s.GRO), name, "gro")
				emit(daemon.Bool(s.GSO), name, "gso")
			}
		}, "socket", "offload"),
	daemon.Gauge("sluice_flows", "Flows that need an entry: of senders behind the unknown source, and of the peer to pods through their IP objects.",
		eachFlowTable(func(s dataplane.FlowStatus) int { return s.Entries }), "opened_by"),
	daemon.Gauge("sluice_flows_limit", "Bound of sluice_flows.",
		eachFlowTable(func(s dataplane.FlowStatus) int { return s.Capacity }), "opened_by"),
	daemon.Counter("sluice_captures_total", "Packet captures that were started.",
		func(r report, emit daemon.Emit) { emit(float64(r.DataPlane.Captures.Started)) }),
	daemon.Gauge("sluice_captures_running", "Packet captures under way.",
		func(r report, emit daemon.Emit) { emit(float64(r.DataPlane.Captures.Running)) }),
	daemon.Counter("sluice_captured_packets_total", "Packets that were captured.",
		func(r report, emit daemon.Emit) { emit(float64(r.DataPlane.Captures.Packets)) }),
	daemon.Counter("sluice_capture_lost_packets_total", "Packets that were to be captured, and were not for want of room.",
		func(r report, emit daemon.Emit) { emit(float64(r.DataPlane.Captures.Lost)) }),
	daemon.Gauge("sluice_path_mtu_bytes", "Largest inner packet that leaves for the peer.",
		func(r report, emit daemon.Emit) { emit(float64(r.DataPlane.PathMTU)) }),
	daemon.Gauge("sluice_mtu_mismatch", "1 while the peer tells another MTU than ours.",
		func(r report, emit daemon.Emit) { emit(daemon.Bool(r.Sync.Peer.MTUMismatch != "")) }),
	daemon.Gauge("sluice_config_generation", "Number of the state of the manifests that is in force.",
		func(r report, emit daemon.Emit) { emit(float64(r.Sync.Generation)) }),
	daemon.Counter("sluice_config_reload_errors_total", "States of the manifests that were refused.",
		func(r report, emit daemon.Emit) { emit(float64(r.Sync.ReloadErrors)) }),
	daemon.Gauge("sluice_config_refused", "1 while the newest state of the manifests is refused.",
		func(r report, emit daemon.Emit) { emit(daemon.Bool(len(r.Sync.Refused) > 0)) }),
	daemon.Gauge("sluice_ignored_objects", "Objects of the cluster that cannot be used and were left out.",
		func(r report, emit daemon.Emit) { emit(float64(len(r.Sync.Ignored))) }),
	daemon.Gauge("sluice_api_connected", "1 while the API server answers; absent outside of clusters.",
		inCluster(func(r report) bool { return r.Cluster.API.Connected })),
	daemon.Gauge("sluice_config_kept", "1 while the objects in force are those kept over a restart, as the API server has not answered since then; absent outside of clusters.",
		inCluster(func(r report) bool { return !r.Sync.Kept.IsZero() })),
	daemon.Gauge("sluice_leader", "1 while this replica carries the traffic, 0 while it stands by; absent outside of clusters.",
		inCluster(func(r report) bool { return r.Sync.Role == control.RoleActive })),
	daemon.Gauge("sluice_lead_unconfirmed", "1 while this replica leads, as far as it knows, and sends pings only, as neither the API server nor the peer says so.",
		inCluster(func(r report) bool { return r.DataPlane.Tunnel.Unconfirmed })),
	daemon.Gauge("sluice_start_time_seconds", "When the gateway started, in seconds since 1970.",
		func(r report, emit daemon.Emit) { emit(float64(r.Started.UnixMilli()) / 1000) }),
}

func ofPeer(of func(report) float64) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) { emit(of(r), driver, r.Sync.Gateway.ClusterID) }
}

// inCluster emits a switch that only a gateway in a cluster has.
func inCluster(of func(report) bool) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		if r.Cluster != nil {
			emit(daemon.Bool(of(r)))
		}
	}
}

func eachDirection(of func(dataplane.DirectionStatus) uint64) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		for _, d := range directions(r.DataPlane) {
			emit(float64(of(d.DirectionStatus)), d.name)
		}
	}
}

func eachNode(of func(dataplane.NodeStatus) (from, to uint64)) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		for _, n := range r.DataPlane.Nodes {
			from, to := of(n)
			emit(float64(from), n.Name, "egress")
			emit(float64(to), n.Name, "ingress")
		}
	}
}

func eachSocket(of func(dataplane.SocketStatus) uint64) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		for name, s := range r.DataPlane.Sockets {
			emit(float64(of(s)), name)
		}
	}
}

func eachFlowTable(of func(dataplane.FlowStatus) int) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		emit(float64(of(r.DataPlane.Flows)), "node")
		emit(float64(of(r.DataPlane.PodFlows)), "peer")
	}
}

func eachSocketOperation(of func(dataplane.SocketStatus) (read, write uint64)) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		for name, s := range r.DataPlane.Sockets {
			read, write := of(s)
			emit(float64(read), name, "read")
			emit(float64(write), name, "write")
		}
	}
}

func emitBatchSize(r report, emit daemon.Emit) {
	for name, s := range r.DataPlane.Sockets {
		if s.Reads > 0 {
			emit(float64(s.ReadDatagrams)/float64(s.Reads), name, "read")
		}
		if s.Writes > 0 {
			emit(float64(s.WriteDatagrams)/float64(s.Writes), name, "write")
		}
	}
}

// emitDrops gives every reason from the start, at zero: a rate over a counter
// that appears with its first drop misses that drop.
func emitDrops(r report, emit daemon.Emit) {
	for _, d := range directions(r.DataPlane) {
		for _, v := range dataplane.Drops() {
			emit(float64(d.Verdicts[v.String()]), d.name, v.String())
		}
	}
	for _, d := range tunnelDrops(r.DataPlane.Tunnel.Total()) {
		emit(float64(d.count), d.direction, d.reason)
	}
}

// tunnelDrop is a reason for which the tunnel drops packets.
type tunnelDrop struct {
	direction, reason string
	count             uint64
}

// tunnelDrops are named as the fields of tunnel.Stats, with the tunnel in front:
// the data plane has drops of similar names.
func tunnelDrops(t tunnel.Stats) []tunnelDrop {
	return []tunnelDrop{
		{"egress", "DropTunnelNoEndpoint", t.DropNoEndpoint},
		{"egress", "DropTunnelNoSession", t.DropNoSession},
		{"egress", "DropTunnelUnconfirmed", t.DropUnconfirmed},
		{"egress", "DropTunnelNoPeer", t.DropNoPeer},
		{"egress", "DropTunnelFlushed", t.DropFlushed},
		{"ingress", "DropTunnelUnknownSession", t.DropUnknownSession},
		{"ingress", "DropTunnelRejected", t.DropRejected},
		{"ingress", "DropTunnelMalformed", t.DropMalformed},
		{"ingress", "DropTunnelHandshakeLimit", t.DropHandshakeLimit},
	}
}

// eachWay emits a value of the exchange of Services for each direction.
func eachWay(of func(*services.Status) (exported, imported int)) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		if r.Services == nil {
			return
		}
		exported, imported := of(r.Services)
		emit(float64(exported), "exported")
		emit(float64(imported), "imported")
	}
}

// newLatencyHistogram has buckets from a rack to a satellite.
func newLatencyHistogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "liqo_peer_latency_histogram_us",
		Help:    "Round trips of the health ping, in microseconds.",
		Buckets: prometheus.ExponentialBuckets(50, 2, 15),
	}, []string{"driver", "cluster_id"})
}

// metricsOf collects the metrics of a gateway.
func metricsOf(status func() report) prometheus.Collector {
	return daemon.Collector[report]{Report: status, Metrics: slices.Concat(peerFamilies, ownFamilies)}
}
