package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/gatewaysync"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/tunnel"
)

// driver is the value of the label by which dashboards for Liqo tell tunnel
// technologies apart.
const driver = "wireguard"

// family is one metric: its values are read from a report when it is asked for.
type family struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(r report, emit func(v float64, labels ...string))
}

func counter(name, help string, value func(report, func(float64, ...string)), labels ...string) family {
	return family{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue, value}
}

func gauge(name, help string, value func(report, func(float64, ...string)), labels ...string) family {
	return family{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, value}
}

// peerFamilies have the names, units and labels that Liqo's have.
var peerFamilies = []family{
	counter("liqo_peer_receive_bytes_total", "Bytes received from the peer, WireGuard messages as a whole.",
		func(r report, emit func(float64, ...string)) {
			emit(float64(r.DataPlane.Tunnel.RxBytes), driver, r.Sync.Gateway.ClusterID)
		}, "driver", "cluster_id"),
	counter("liqo_peer_transmit_bytes_total", "Bytes sent to the peer, WireGuard messages as a whole.",
		func(r report, emit func(float64, ...string)) {
			emit(float64(r.DataPlane.Tunnel.TxBytes), driver, r.Sync.Gateway.ClusterID)
		}, "driver", "cluster_id"),
	gauge("liqo_peer_latency_us", "Last round trip of the health ping, in microseconds; 0 when there is none.",
		func(r report, emit func(float64, ...string)) {
			emit(float64(r.Sync.Peer.Latency.Microseconds()), driver, r.Sync.Gateway.ClusterID)
		}, "driver", "cluster_id"),
	gauge("liqo_peer_is_connected", "1 while the peer answers the health ping.",
		func(r report, emit func(float64, ...string)) {
			emit(boolean(r.Sync.Peer.Value == networkingv1beta1.Connected), driver, r.Sync.Gateway.ClusterID)
		}, "driver", "cluster_id"),
	gauge("liqo_wireguard_implementation", "1 for the implementation of WireGuard in use.",
		func(_ report, emit func(float64, ...string)) { emit(1, driver, "userspace") }, "driver", "implementation"),
}

// ownFamilies are what only this gateway has.
var ownFamilies = []family{
	counter("sluice_packets_total", "Inner packets forwarded, after segmentation.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Packets }), "direction"),
	counter("sluice_bytes_total", "Inner bytes forwarded.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Bytes }), "direction"),
	counter("sluice_repaired_checksums_total", "Packets that came with an unfinished checksum.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Repaired }), "direction"),
	counter("sluice_segmented_total", "Super-segments that were cut to the MTU.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Segmented }), "direction"),
	counter("sluice_fragmented_total", "Packets that were cut by IPv4 fragmentation.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Fragmented }), "direction"),
	counter("sluice_fallback_routes_total", "Packets sent to a node that was chosen without a route.",
		eachDirection(func(d dataplane.DirectionStatus) uint64 { return d.Fallback }), "direction"),
	counter("sluice_drops_total", "Packets dropped, by reason.", emitDrops, "direction", "reason"),
	counter("sluice_node_packets_total", "Inner packets from (egress) and to (ingress) a node.",
		eachNode(func(n dataplane.NodeStatus) (uint64, uint64) { return n.RxPackets, n.TxPackets }), "node", "direction"),
	counter("sluice_node_bytes_total", "Inner bytes from (egress) and to (ingress) a node.",
		eachNode(func(n dataplane.NodeStatus) (uint64, uint64) { return n.RxBytes, n.TxBytes }), "node", "direction"),
	gauge("sluice_handshake_age_seconds", "Time since the last WireGuard handshake; absent before the first.",
		func(r report, emit func(float64, ...string)) {
			if t := r.DataPlane.Tunnel.LastHandshake; !t.IsZero() {
				emit(r.Time.Sub(t).Seconds())
			}
		}),
	gauge("sluice_in_flight_packets", "Packets inside WireGuard.",
		func(r report, emit func(float64, ...string)) {
			emit(float64(r.DataPlane.Tunnel.InFlightEgress), "egress")
			emit(float64(r.DataPlane.Tunnel.InFlightIngress), "ingress")
		}, "direction"),
	gauge("sluice_in_flight_limit_packets", "Bound of sluice_in_flight_packets in each direction.",
		func(r report, emit func(float64, ...string)) { emit(float64(r.DataPlane.Tunnel.MaxInFlight)) }),
	counter("sluice_socket_overruns_total", "Datagrams that the kernel dropped because the socket's buffer was full.",
		eachSocket(func(s dataplane.SocketStatus) uint64 { return s.Overruns }), "socket"),
	counter("sluice_socket_write_errors_total", "Datagrams that the kernel refused to send.",
		eachSocket(func(s dataplane.SocketStatus) uint64 { return s.WriteErrors }), "socket"),
	counter("sluice_socket_calls_total", "System calls; sluice_socket_datagrams_total divided by it is the batch size.",
		eachSocketOperation(func(s dataplane.SocketStatus) (uint64, uint64) { return s.Reads, s.Writes }), "socket", "operation"),
	counter("sluice_socket_datagrams_total", "Datagrams read and written.",
		eachSocketOperation(func(s dataplane.SocketStatus) (uint64, uint64) { return s.ReadDatagrams, s.WriteDatagrams }), "socket", "operation"),
	gauge("sluice_socket_batch_size", "Datagrams per system call, averaged since the start.", emitBatchSize, "socket", "operation"),
	gauge("sluice_socket_offload", "1 while the offload is in use.",
		func(r report, emit func(float64, ...string)) {
			for name, s := range r.DataPlane.Sockets {
				emit(boolean(s.GRO), name, "gro")
				emit(boolean(s.GSO), name, "gso")
			}
		}, "socket", "offload"),
	gauge("sluice_flows", "Flows of senders that share an address.",
		func(r report, emit func(float64, ...string)) { emit(float64(r.DataPlane.Flows.Entries)) }),
	gauge("sluice_flows_limit", "Bound of sluice_flows.",
		func(r report, emit func(float64, ...string)) { emit(float64(r.DataPlane.Flows.Capacity)) }),
	gauge("sluice_mtu_mismatch", "1 while the peer tells another MTU than ours.",
		func(r report, emit func(float64, ...string)) { emit(boolean(r.Sync.Peer.MTUMismatch != "")) }),
	gauge("sluice_config_generation", "Number of the state of the manifests that is in force.",
		func(r report, emit func(float64, ...string)) { emit(float64(r.Sync.Generation)) }),
	counter("sluice_config_reload_errors_total", "States of the manifests that were refused.",
		func(r report, emit func(float64, ...string)) { emit(float64(r.Sync.ReloadErrors)) }),
	gauge("sluice_config_refused", "1 while the newest state of the manifests is refused.",
		func(r report, emit func(float64, ...string)) { emit(boolean(len(r.Sync.Refused) > 0)) }),
	gauge("sluice_ignored_objects", "Objects of the cluster that cannot be used and were left out.",
		func(r report, emit func(float64, ...string)) { emit(float64(len(r.Sync.Ignored))) }),
	gauge("sluice_api_connected", "1 while the API server answers; absent outside of clusters.",
		func(r report, emit func(float64, ...string)) {
			if r.Cluster != nil {
				emit(boolean(r.Cluster.API.Connected))
			}
		}),
	gauge("sluice_leader", "1 while this replica carries the traffic, 0 while it stands by; absent outside of clusters.",
		func(r report, emit func(float64, ...string)) {
			if r.Cluster != nil {
				emit(boolean(r.Sync.Role == gatewaysync.RoleActive))
			}
		}),
	gauge("sluice_start_time_seconds", "When the gateway started, in seconds since 1970.",
		func(r report, emit func(float64, ...string)) { emit(float64(r.Started.UnixMilli()) / 1000) }),
}

func eachDirection(of func(dataplane.DirectionStatus) uint64) func(report, func(float64, ...string)) {
	return func(r report, emit func(float64, ...string)) {
		for _, d := range directions(r.DataPlane) {
			emit(float64(of(d.DirectionStatus)), d.name)
		}
	}
}

func eachNode(of func(dataplane.NodeStatus) (from, to uint64)) func(report, func(float64, ...string)) {
	return func(r report, emit func(float64, ...string)) {
		for _, n := range r.DataPlane.Nodes {
			from, to := of(n)
			emit(float64(from), n.Name, "egress")
			emit(float64(to), n.Name, "ingress")
		}
	}
}

func eachSocket(of func(dataplane.SocketStatus) uint64) func(report, func(float64, ...string)) {
	return func(r report, emit func(float64, ...string)) {
		for name, s := range r.DataPlane.Sockets {
			emit(float64(of(s)), name)
		}
	}
}

func eachSocketOperation(of func(dataplane.SocketStatus) (read, write uint64)) func(report, func(float64, ...string)) {
	return func(r report, emit func(float64, ...string)) {
		for name, s := range r.DataPlane.Sockets {
			read, write := of(s)
			emit(float64(read), name, "read")
			emit(float64(write), name, "write")
		}
	}
}

func emitBatchSize(r report, emit func(float64, ...string)) {
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
func emitDrops(r report, emit func(float64, ...string)) {
	for _, d := range directions(r.DataPlane) {
		for _, v := range dataplane.Drops() {
			emit(float64(d.Verdicts[v.String()]), d.name, v.String())
		}
	}
	for _, d := range tunnelDrops(r.DataPlane.Tunnel) {
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
		{"egress", "DropTunnelInFlight", t.DropInFlight},
		{"egress", "DropTunnelNoPeer", t.DropNoPeer},
		{"egress", "DropTunnelFlushed", t.DropFlushed},
		{"ingress", "DropTunnelUnknownSession", t.DropUnknownSession},
		{"ingress", "DropTunnelRejected", t.DropRejected},
		{"ingress", "DropTunnelMalformed", t.DropMalformed},
	}
}

func boolean(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// collector reads a report once for all metrics of a scrape, so that they fit
// together.
type collector struct{ report func() report }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, fs := range [][]family{peerFamilies, ownFamilies} {
		for _, f := range fs {
			ch <- f.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	r := c.report()
	for _, fs := range [][]family{peerFamilies, ownFamilies} {
		for _, f := range fs {
			f.value(r, func(v float64, labels ...string) {
				for i, l := range labels {
					labels[i] = strings.ToValidUTF8(l, "?")
				}
				ch <- prometheus.MustNewConstMetric(f.desc, f.kind, v, labels...)
			})
		}
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

// metricsHandler serves /metrics.
func metricsHandler(status func() report, latency prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{status}, latency, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: 5 * time.Second}))
	return mux
}
