package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/underlay"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// noGeneve is what probing says of a kernel without the device.
var noGeneve = hostnet.KindSupport{Kind: hostnet.KindGeneve, Reason: "the kernel has no geneve device"}

// standaloneReport is that of a node whose files have a mistake, and that works
// by the ones before.
func standaloneReport() report {
	addr := netip.MustParseAddr
	r := report{
		Version: "v0.1.0", Running: true, Time: now, Started: now.Add(-90 * time.Minute), Manifests: "/etc/sluice",
		State: fabric.State{
			Node: "worker-1", Port: 6091,
			Link: fabric.LinkChoice{
				Kind: hostnet.KindVXLAN, Reason: "no geneve: the kernel has no geneve device",
				Supported: []hostnet.KindSupport{noGeneve, {Kind: hostnet.KindVXLAN, OK: true}, {Kind: hostnet.KindTUN, Reason: "there is no /dev/net/tun"}},
			},
			Generation: 3, AppliedAt: now.Add(-time.Hour), SampledAt: now, Applies: 5, Repairs: 1, ApplyErrors: 2, ReloadErrors: 1, LastApply: 3141592 * time.Nanosecond,
			Tunnels: []fabric.TunnelState{
				{
					Name: "liqo.abcdefghij", Owner: "InternalFabric tenant/milan", Status: fabric.TunnelUp, Kind: hostnet.KindVXLAN, VNI: 7,
					Gateway: addr("10.243.9.9"), Port: 6091, MTU: 1340, Address: addr("10.80.0.2"), GatewayAddress: addr("10.80.0.1"), Neighbor: "reachable",
					Path:      &hostnet.Path{Source: addr("172.18.0.2"), Device: "eth0", MTU: 1500},
					RxPackets: 100, RxBytes: 150000, TxPackets: 50, TxBytes: 2500, TxDropped: 3, LastSeen: now.Add(-2 * time.Second),
				},
				{
					Name: "liqo.klmnopqrst", Owner: "InternalFabric tenant/rome", Status: fabric.TunnelMissing, Kind: hostnet.KindVXLAN, VNI: 8,
					Gateway: addr("10.243.9.10"), Port: 6091, MTU: 1340, Address: addr("10.80.0.2"), GatewayAddress: addr("10.80.0.4"),
					Problem: "there is a link of this name that is not ours",
				},
			},
			Rules: []string{"600: not from all fwmark 0x5c lookup 6091", "600: not from all fwmark 0x5c lookup 6091 (IPv6)"},
			Translation: hostnet.TranslationState{
				Available: true, Exists: true,
				Sets: []hostnet.TranslationSet{
					{Name: "hosts4", Type: "ipv4_addr : ipv4_addr", Elements: []hostnet.TranslationElement{{First: addr("10.70.0.5"), Last: addr("10.70.0.5"), Value: addr("192.168.1.10")}}},
					{Name: "local4", Type: "ipv4_addr, interval", Elements: []hostnet.TranslationElement{{First: addr("10.243.0.0"), Last: addr("10.243.255.255")}}},
					{Name: "local6", Type: "ipv6_addr, interval"},
					{Name: "remote4", Type: "ipv4_addr, interval"},
				},
				Chains: []hostnet.TranslationChain{{Name: "postrouting", Rules: []hostnet.TranslationRule{
					{Comment: "others_unknown: nodes", Family: "ipv4"},
					{Comment: "pods_kept: pods", Family: "ipv4", Packets: 12, Bytes: 720},
				}}},
			},
			Planned: true, NodeIP: networkingv1beta1.NodeIP{Local: "10.243.1.1", Remote: "172.18.0.2"},
			Conditions: []metav1.Condition{
				{Type: "TunnelsReady", Status: metav1.ConditionFalse, Reason: "TunnelRefused", Message: "link liqo.klmnopqrst: there is a link of this name that is not ours" + strings.Repeat(" and more", 20)},
				{Type: "AddressTranslationReady", Status: metav1.ConditionTrue, Reason: "AddressTranslationReady", Message: "Addresses are kept"},
			},
			Drift:     []string{"add link liqo.klmnopqrst: vxlan, VNI 8, remote 10.243.9.10:6091, MTU 1340", "add route 10.62.0.0/16 via 10.80.0.4 dev liqo.klmnopqrst onlink"},
			Refused:   manifests.Problems{{File: "nodes.yaml", Line: 12, Object: "GeneveTunnel tenant/a", Field: "spec.id", Reason: "-1 is not a VNI: 0 to 16777215"}},
			RefusedAt: now.Add(-5 * time.Second),
			Warnings:  manifests.Problems{{Object: "Configuration tenant/milan", Reason: "is not complete"}},
			Failures:  []string{"link liqo.klmnopqrst: there is a link of this name that is not ours"},
			Contested: "remove rule 600",
			Liqo:      &fabric.LiqoState{Left: "2 rules, 3 routes, table ip milan-masquerade-bypass", Rules: 2, Routes: 3, Tables: 1, Waits: "not everything is put in force"},
		},
		Memory: daemon.Memory{Heap: 5 << 20, Resident: 20 << 20, Goroutines: 17},
	}
	for i := range 12 {
		r.Tunnels[0].Routes = append(r.Tunnels[0].Routes, fmt.Sprintf("10.%d.0.0/16 via 10.80.0.1 dev liqo.abcdefghij onlink", 100+i))
	}
	for i := range 11 {
		e := hostnet.TranslationElement{First: netip.AddrFrom4([4]byte{10, byte(100 + i)}), Last: netip.AddrFrom4([4]byte{10, byte(100 + i), 255, 255})}
		r.Translation.Sets[3].Elements = append(r.Translation.Sets[3].Elements, e)
	}
	return r
}

// clusterReport is that of a node with links of kind tun whose API server is
// away.
func clusterReport() report {
	addr := netip.MustParseAddr
	return report{
		Version: "v0.1.0", Running: true, Time: now, Started: now.Add(-50 * time.Hour),
		API: &mirror.State{
			Away: now.Add(-3 * time.Minute), Error: "internalnodes: dial tcp 10.96.0.1:443: connect: connection refused",
			Watches: []mirror.WatchState{{Name: "internalnodes", Objects: 3, Synced: true}, {Name: "ips"}},
		},
		State: fabric.State{
			Node: "worker-1", Port: 6091, Link: fabric.LinkChoice{Kind: hostnet.KindTUN, Reason: "asked for by --link=tun", Forced: true, Supported: []hostnet.KindSupport{noGeneve}},
			Generation: 1, AppliedAt: now.Add(-49 * time.Hour), Planned: true, ReportError: "internalnodes.networking.liqo.io \"worker-1\" is forbidden",
			Tunnels: []fabric.TunnelState{{
				Name: "liqo.abcdefghij", Owner: "InternalFabric tenant/milan", Status: fabric.TunnelKept, Kind: hostnet.KindTUN, VNI: 7, Gateway: addr("fd00:9::9"), Port: 6091, MTU: 1340,
				Address: addr("fd00:80::2"), GatewayAddress: addr("fd00:80::1"), RxPackets: 1, RxBytes: 1, Drops: map[string]uint64{"DropFrame": 2},
			}},
			Translation: hostnet.TranslationState{Reason: "the kernel has no nf_tables: load it (modprobe nf_tables)"},
			Conditions:  []metav1.Condition{{Type: "AddressTranslationReady", Status: metav1.ConditionFalse, Reason: "NFTablesUnavailable", Message: "the kernel has no nf_tables"}},
			Waiting:     manifests.Problems{{Object: "InternalFabric tenant/rome", Reason: "has no gatewayIP yet"}},
			Ignored:     manifests.Problems{{Object: "InternalFabric tenant/milan", Field: "spec.mtu", Reason: "0 is not an MTU"}},
			Unreachable: manifests.Problems{{Object: "InternalFabric tenant/milan", Reason: "the gateway fd00:9::9 cannot be reached"}},
			Liqo: &fabric.LiqoState{
				Contested: true, Removals: 2, Others: []string{"routing table 978431797: it has the route 10.1.0.0/16 dev eth0 (protocol 186)"},
			},
			Diverted: manifests.Problems{{Object: "link liqo.abcdefghij", Reason: `packets of pods to 10.90.0.0/16 do not get into it: the rule "500: from 10.60.0.0/16 lookup 52" of another program ` +
				"comes before ours, and table 52 sends them to device eth0"}},
		},
		Userspace: &tunlink.Status{
			Sockets: []tunlink.SocketStatus{{Local: netip.MustParseAddrPort("[::]:6091"), Stats: underlay.Stats{Reads: 10, ReadDatagrams: 100, Writes: 5, WriteDatagrams: 50, Overruns: 7, WriteErrors: 1, GSO: true, ReadBuffer: 4 << 20}}},
			Tunnels: []tunlink.TunnelStatus{{
				Device: "liqo.abcdefghij", MAC: "02:00:00:00:00:01", Queues: 2, Offloads: []string{"csum", "tso4"}, TxSupers: 8, RxSupers: 9,
				Drops: map[string]uint64{"DropFrame": 2}, Broken: "the device is gone",
			}},
			Drops: map[string]uint64{"DropUnknownTunnel": 4, "DropFrame": 1},
		},
		Memory: daemon.Memory{Heap: 5 << 20, Resident: 20 << 20, Limit: 60 << 20, Goroutines: 17},
	}
}

// startingReport is that of an agent that has done nothing yet.
func startingReport() report {
	return report{Version: "devel", Running: true, Time: now, Started: now, API: &mirror.State{}, State: fabric.State{Node: "worker-1"}}
}

// unseenReport is that of a user to whom neither the agent nor nf_tables answers.
func unseenReport() report {
	r := leftReport()
	r.Elsewhere = true
	r.Translation = hostnet.TranslationState{Reason: "nf_tables may not be used: grant the capability NET_ADMIN; until then the CNI may hide the addresses of pods"}
	return r
}

// leftReport is about a network without an agent.
func leftReport() report {
	r := standaloneReport()
	return report{Version: "v0.1.0", Time: now, State: fabric.State{
		Tunnels: r.Tunnels[:1], Rules: r.Rules, Translation: r.Translation, SampledAt: now,
	}}
}
