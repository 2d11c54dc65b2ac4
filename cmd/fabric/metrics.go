package main

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/underlay"
)

// choice is a label: why links are of their kind. The whole reason is in the
// status, as its texts are without number.
func choice(l fabric.LinkChoice) string {
	switch {
	case l.Forced:
		return "flag"
	case l.Kind == hostnet.Kinds[0]:
		return "best"
	case len(l.Failed) > 0:
		return "refused_by_kernel"
	}
	return "unsupported_by_kernel"
}

// families are the metrics of the node agent.
var families = []daemon.Metric[report]{
	daemon.Gauge("sluice_fabric_link_kind_info", "1 for the kind of the links: geneve, vxlan, tun, or none while none can be had; and why it was chosen.",
		func(r report, emit daemon.Emit) {
			kind := string(r.Link.Kind)
			if kind == "" {
				kind = "none"
			}
			emit(1, kind, choice(r.Link))
		}, "kind", "reason"),
	daemon.Gauge("sluice_fabric_link_kind_supported", "1 for each kind of link that this host can have, 0 for the others.",
		func(r report, emit daemon.Emit) {
			for _, s := range r.Link.Supported {
				emit(daemon.Bool(s.OK), string(s.Kind))
			}
		}, "kind"),
	daemon.Gauge("sluice_fabric_tunnels", "Tunnels by what has become of them.", emitTunnels, "status"),
	daemon.Gauge("sluice_fabric_routes", "Routes into the tunnels.",
		func(r report, emit daemon.Emit) {
			n := 0
			for _, t := range r.Tunnels {
				n += len(t.Routes)
			}
			emit(float64(n))
		}),
	daemon.Counter("sluice_fabric_tunnel_packets_total", "Inner packets to (egress) and from (ingress) a gateway.",
		eachTunnel(func(t fabric.TunnelState) (to, from uint64) { return t.TxPackets, t.RxPackets }), "link", "owner", "direction"),
	daemon.Counter("sluice_fabric_tunnel_bytes_total", "Inner bytes to (egress) and from (ingress) a gateway.",
		eachTunnel(func(t fabric.TunnelState) (to, from uint64) { return t.TxBytes, t.RxBytes }), "link", "owner", "direction"),
	daemon.Counter("sluice_fabric_tunnel_dropped_total", "Inner packets that went nowhere.",
		eachTunnel(func(t fabric.TunnelState) (to, from uint64) { return t.TxDropped, t.RxDropped }), "link", "owner", "direction"),
	daemon.Gauge("sluice_fabric_tunnel_last_seen_seconds", "When a packet last came from a gateway, in seconds since 1970; absent before the first.",
		func(r report, emit daemon.Emit) {
			for _, t := range r.Tunnels {
				if !t.LastSeen.IsZero() {
					emit(float64(t.LastSeen.UnixMilli())/1000, t.Name, owner(t))
				}
			}
		}, "link", "owner"),
	daemon.Gauge("sluice_fabric_generation", "Number of the state of the objects that is in force; 0 before the first.",
		func(r report, emit daemon.Emit) { emit(float64(r.Generation)) }),
	daemon.Counter("sluice_fabric_applies_total", "Changes made to the network of the host.",
		func(r report, emit daemon.Emit) { emit(float64(r.Applies)) }),
	daemon.Counter("sluice_fabric_apply_errors_total", "Changes that the kernel refused at least in part.",
		func(r report, emit daemon.Emit) { emit(float64(r.ApplyErrors)) }),
	daemon.Gauge("sluice_fabric_apply_duration_seconds", "How long the last change took.",
		func(r report, emit daemon.Emit) { emit(r.LastApply.Seconds()) }),
	daemon.Counter("sluice_fabric_repairs_total", "Changes by others to what is ours that were undone.",
		func(r report, emit daemon.Emit) { emit(float64(r.Repairs)) }),
	daemon.Gauge("sluice_fabric_contested", "1 while another program keeps changing what is ours, or Liqo's node agent runs beside this one.",
		func(r report, emit daemon.Emit) {
			emit(daemon.Bool(r.Contested != "" || r.Liqo != nil && r.Liqo.Contested))
		}),
	daemon.Gauge("sluice_fabric_liqo_left", "What is left of Liqo's node agent, by kind; absent without --take-over-liqo.",
		func(r report, emit daemon.Emit) {
			if l := r.Liqo; l != nil {
				emit(float64(l.Rules), "rule")
				emit(float64(l.Routes), "route")
				emit(float64(l.Tables), "table")
			}
		}, "kind"),
	daemon.Gauge("sluice_fabric_drift", "Changes that would make the network as it is desired and are not made.",
		func(r report, emit daemon.Emit) { emit(float64(len(r.Drift))) }),
	daemon.Gauge("sluice_fabric_problems", "What is wrong with the objects, or with what is made of them.",
		func(r report, emit daemon.Emit) {
			emit(float64(len(r.Refused)), "refused")
			emit(float64(len(r.Ignored)), "ignored")
			emit(float64(len(r.Waiting)), "waiting")
			emit(float64(len(r.Unreachable)), "unreachable")
			emit(float64(len(r.Untranslated)), "untranslated")
			emit(float64(len(r.Warnings)), "warning")
			emit(float64(len(r.Failures)), "failure")
			emit(daemon.Bool(r.ReportError != ""), "unreported")
		}, "kind"),
	daemon.Counter("sluice_fabric_reload_errors_total", "States of the objects that were refused.",
		func(r report, emit daemon.Emit) { emit(float64(r.ReloadErrors)) }),
	daemon.Gauge("sluice_fabric_condition", "1 for a condition of the InternalNode that is True, 0 for another.",
		func(r report, emit daemon.Emit) {
			for _, c := range r.Conditions {
				emit(daemon.Bool(c.Status == metav1.ConditionTrue), c.Type)
			}
		}, "type"),
	daemon.Gauge("sluice_fabric_translation_available", "1 where the kernel has nf_tables.",
		func(r report, emit daemon.Emit) {
			emit(daemon.Bool(r.Translation.Available))
		}),
	daemon.Counter("sluice_fabric_translation_packets_total", "First packets of connections, and datagrams of strangers, that a rule was about.",
		eachTranslation(func(c hostnet.TranslationCounter) uint64 { return c.Packets }), "rule", "family"),
	daemon.Counter("sluice_fabric_translation_bytes_total", "Bytes of what sluice_fabric_translation_packets_total counts.",
		eachTranslation(func(c hostnet.TranslationCounter) uint64 { return c.Bytes }), "rule", "family"),
	daemon.Gauge("sluice_fabric_api_connected", "1 while the API server answers; absent outside of clusters.",
		func(r report, emit daemon.Emit) {
			if r.API != nil {
				emit(daemon.Bool(r.API.Connected))
			}
		}),
	daemon.Gauge("sluice_fabric_start_time_seconds", "When fabric started, in seconds since 1970.",
		func(r report, emit daemon.Emit) { emit(float64(r.Started.UnixMilli()) / 1000) }),
}

// tunFamilies are about links of kind tun, whose packets pass through fabric.
var tunFamilies = []daemon.Metric[report]{
	daemon.Counter("sluice_fabric_tun_super_segments_total", "Super-segments taken from (egress) and given to (ingress) the kernel.",
		func(r report, emit daemon.Emit) {
			for _, t := range tunTunnels(r) {
				emit(float64(t.TxSupers), t.Device, "egress")
				emit(float64(t.RxSupers), t.Device, "ingress")
			}
		}, "link", "direction"),
	daemon.Counter("sluice_fabric_tun_drops_total", "Packets dropped, by reason. The status has them by tunnel.", emitDrops, "reason"),
	daemon.Gauge("sluice_fabric_tun_queues", "Queues of a device that are in use.",
		func(r report, emit daemon.Emit) {
			for _, t := range tunTunnels(r) {
				emit(float64(t.Queues), t.Device)
			}
		}, "link"),
	daemon.Counter("sluice_fabric_tun_socket_calls_total", "System calls; sluice_fabric_tun_socket_datagrams_total divided by it is the batch size.",
		eachSocket(func(s underlay.Stats) (read, write uint64) { return s.Reads, s.Writes }), "operation"),
	daemon.Counter("sluice_fabric_tun_socket_datagrams_total", "Datagrams read and written.",
		eachSocket(func(s underlay.Stats) (read, write uint64) { return s.ReadDatagrams, s.WriteDatagrams }), "operation"),
	daemon.Counter("sluice_fabric_tun_socket_errors_total", "Datagrams that the kernel dropped because the socket's buffer was full (read) or refused to send (write).",
		eachSocket(func(s underlay.Stats) (read, write uint64) { return s.Overruns, s.WriteErrors }), "operation"),
}

// emitTunnels gives every status, also those that no tunnel has.
func emitTunnels(r report, emit daemon.Emit) {
	n := make(map[fabric.TunnelStatus]int)
	for _, t := range r.Tunnels {
		n[t.Status]++
	}
	for _, s := range []fabric.TunnelStatus{fabric.TunnelUp, fabric.TunnelMissing, fabric.TunnelKept, fabric.TunnelDown, fabric.TunnelSurplus} {
		emit(float64(n[s]), string(s))
	}
}

func eachTunnel(of func(fabric.TunnelState) (to, from uint64)) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		for _, t := range r.Tunnels {
			to, from := of(t)
			emit(float64(to), t.Name, owner(t), "egress")
			emit(float64(from), t.Name, owner(t), "ingress")
		}
	}
}

func eachTranslation(of func(hostnet.TranslationCounter) uint64) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		for _, c := range r.Translation.Counters() {
			emit(float64(of(c)), c.Name, c.Family)
		}
	}
}

// tunTunnels are those of kind tun.
func tunTunnels(r report) []tunlink.TunnelStatus {
	if r.Userspace == nil {
		return nil
	}
	return r.Userspace.Tunnels
}

func eachSocket(of func(underlay.Stats) (read, write uint64)) func(report, daemon.Emit) {
	return func(r report, emit daemon.Emit) {
		if r.Userspace == nil {
			return
		}
		for _, s := range r.Userspace.Sockets { // there is one at most
			read, write := of(s.Stats)
			emit(float64(read), "read")
			emit(float64(write), "write")
		}
	}
}

// emitDrops gives every reason from the start, at zero: a rate over a counter
// that appears with its first drop misses that drop.
func emitDrops(r report, emit daemon.Emit) {
	if r.Userspace == nil {
		return
	}
	for _, d := range tunlink.Drops() {
		n := r.Userspace.Drops[d.String()]
		for _, t := range r.Userspace.Tunnels {
			n += t.Drops[d.String()]
		}
		emit(float64(n), d.String())
	}
}

// metricsOf collects the metrics of a node agent.
func metricsOf(status func() report) prometheus.Collector {
	return daemon.Collector[report]{Report: status, Metrics: append(families[:len(families):len(families)], tunFamilies...)}
}

// owner is the object behind a tunnel, without its kind.
func owner(t fabric.TunnelState) string {
	return strings.TrimPrefix(t.Owner, "InternalFabric ")
}
