package main

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/cluster"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/objects/mirror"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// busyReport has something to show in every place.
func busyReport() report {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	r := report{
		Version: "v0.1.0", Time: now, Started: now.Add(-90 * time.Minute), Manifests: "/etc/sluice",
		Sync: control.State{
			Gateway:    control.Gateway{Type: "Server", Kind: "GatewayServer", Namespace: "tenant", Name: "server", ClusterID: "milan"},
			Generation: 3, AppliedAt: now.Add(-time.Hour), RefusedAt: now.Add(-5 * time.Second), ReloadErrors: 1,
			Refused: manifests.Problems{
				{File: "peer.yaml", Line: 12, Object: "PublicKey tenant/milan", Field: "spec.publicKey", Reason: "decodes to 5 bytes, but a WireGuard key has 32"},
				{File: "peer.yaml", Line: 20, Object: "GeneveTunnel tenant/a", Field: "spec.id", Reason: "-1 is not a VNI: 0 to 16777215"},
			},
			RefusedWarnings: manifests.Problems{{File: "peer.yaml", Line: 30, Object: "secret a", Reason: "v1 secret is not used by the gateway and ignored"}},
			Warnings:        manifests.Problems{{Object: "InternalNode worker-3", Field: "status.nodeIP", Reason: "is not known yet: the node waits"}},
			Peer: control.Peer{
				Value: "Connected", Latency: 12345 * time.Microsecond, LatencyText: "12ms", Timestamp: now.Add(-time.Second),
				MTU: 1400, MTUMismatch: "the peer's MTU is 1400, ours 1340",
			},
		},
		DataPlane: dataplane.Status{
			Configured: true, MTU: 1340,
			Tunnel: tunnel.Stats{
				Peer: tunnel.PublicKey{1, 2, 3}, Endpoint: netip.MustParseAddrPort("203.0.113.7:51840"), ListenPort: 51840,
				LastHandshake: now.Add(-100 * time.Second), RxBytes: 5 << 30, TxBytes: 1023, RxPackets: 4_000_000, TxPackets: 7,
				Waiting: 12, DropNoSession: 9,
			},
			Internal: []netip.Addr{addr("10.80.0.1")}, TunnelAddr: addr("169.254.18.1"),
			Nodes: []dataplane.NodeStatus{
				{
					Name: "worker-1", VNI: 7, Underlay: addr("172.18.0.2"), Internal: []netip.Addr{addr("10.80.0.2")}, MAC: "0a:00:00:00:00:01",
					Encapsulation: geneve.VXLAN, LastSeen: now.Add(-2 * time.Second), RxPackets: 100, RxBytes: 150000, TxPackets: 50, TxBytes: 2500,
				},
				{Name: "worker-2", VNI: 8, Underlay: addr("172.18.0.3"), Internal: []netip.Addr{addr("10.80.0.3")}},
			},
			Remote: []nat.Mapping{
				{Inside: prefix("10.61.0.0/16"), Outside: prefix("10.243.0.0/16")},
				{Inside: prefix("10.71.0.0/16"), Outside: prefix("10.71.0.0/16")},
			},
			LocalPods: []netip.Prefix{prefix("10.243.0.0/16"), prefix("fd00:243::/64")},
			External:  []netip.Prefix{prefix("10.70.0.0/16"), prefix("10.72.0.0/16")},
			Addresses: []dataplane.AddressMapping{{Inside: addr("192.168.1.10"), Outside: addr("10.70.0.5")}},
			Flows:     dataplane.FlowStatus{Entries: 2, Capacity: 65536},
			PodFlows:  dataplane.FlowStatus{Entries: 3, Capacity: 65536},
			Egress:    dataplane.DirectionStatus{Packets: 90, Bytes: 100000, Repaired: 5, Segmented: 2, Verdicts: map[string]uint64{"Forwarded": 90, "DropNoMapping": 4, "DropSpoofedSource": 1}},
			Ingress:   dataplane.DirectionStatus{Packets: 50, Bytes: 2500, Fragmented: 1, Fallback: 6, Verdicts: map[string]uint64{"Forwarded": 50, "DropNoNode": 2}},
			Sockets: map[string]dataplane.SocketStatus{
				"geneve":    {LocalAddr: netip.MustParseAddrPort("[::]:6091"), Sockets: 3, Stats: underlay.Stats{Reads: 10, ReadDatagrams: 100, Writes: 5, WriteDatagrams: 50, GSO: true, ReadBuffer: 4 << 20}},
				"wireguard": {LocalAddr: netip.MustParseAddrPort("[::]:51840"), Sockets: 1, Stats: underlay.Stats{Overruns: 3, WriteErrors: 1, GRO: true, ReadBuffer: 212992}},
			},
		},
		Memory: daemon.Memory{Heap: 20 << 20, Resident: 30 << 20, Limit: 100 << 20, Goroutines: 36},
	}
	r.Services = &services.Status{
		Exported: 3, ExportedEndpoints: 7, LeftOut: []string{"ExportedService shop.old: slices: 1001 endpoints: 1000 are allowed"}, Told: true,
		Imported: []services.Summary{{Name: "shop.web", Type: "ClusterSetIP", Endpoints: 4}, {Name: "shop.db", Type: "Headless", Endpoints: 1}}, ImportedEndpoints: 5,
		Problem: "refused what the peer's gateway tells: TooManyServices: more than 2000", Refused: map[services.Reason]uint64{services.ReasonTooManyServices: 2}, Strangers: 1,
	}
	for i := range 12 {
		pod := netip.AddrFrom4([4]byte{10, 243, 1, byte(i)})
		r.DataPlane.Routes = append(r.DataPlane.Routes, dataplane.Route{Dst: netip.PrefixFrom(pod, 32), Node: "worker-1"})
	}
	return r
}

// standByReport is that of a replica in a cluster whose API server is away.
func standByReport() report {
	r := idleReport()
	r.Sync.Role = control.RoleStandBy
	r.Sync.Gateway.Namespace = "tenant"
	r.Sync.Peer = control.Peer{LatencyText: "N/A"}
	r.Sync.Waiting = manifests.Problems{{Reason: "reading the objects of the cluster"}}
	r.Sync.Ignored = manifests.Problems{{Object: "IP default/printer", Field: "spec.ip", Reason: "192.168.1.10 is mapped by IP scanner already"}}
	r.Cluster = &clusterReport{
		API: mirror.State{
			Away: r.Time.Add(-3 * time.Minute), Error: "ips: dial tcp 10.96.0.1:443: connect: connection refused",
			Watches: []mirror.WatchState{{Name: "internalnodes", Objects: 3, Synced: true}, {Name: "ips"}},
		},
		Election: &cluster.ElectionState{Lease: "client.tenant.client.connections.liqo.io", Identity: "gw-client-b", Holder: "gw-client-a"},
	}
	return r
}

// tunnelsReport is that of a client with three tunnels, of which one carries packets.
func tunnelsReport() report {
	r := idleReport()
	r.Sync.Peer = control.Peer{Value: "Connected", Latency: 12 * time.Millisecond, LatencyText: "12ms", LeftOut: "1 of 3 tunnels carry packets; gw.example.com:51841: no answer"}
	at := netip.MustParseAddrPort("203.0.113.7:51840")
	of := func(i uint16, t tunnel.Stats) tunnel.Stats {
		t.Peer, t.ListenPort, t.Endpoint = tunnel.PublicKey{1, 2, 3}, 40000+i, netip.AddrPortFrom(at.Addr(), at.Port()+i)
		return t
	}
	r.DataPlane.Tunnel = of(0, tunnel.Stats{LastHandshake: r.Time.Add(-time.Minute), RxBytes: 1 << 20, RxPackets: 800, TxBytes: 2 << 20, TxPackets: 1600})
	r.DataPlane.Tunnel.Further = []tunnel.Stats{
		of(1, tunnel.Stats{LeftOut: true, TxBytes: 148, TxPackets: 1, Waiting: 1}),
		of(2, tunnel.Stats{LeftOut: true, Problem: "listen on UDP port 40002: address already in use"}),
	}
	return r
}

// idleReport is that of a gateway that has just started.
func idleReport() report {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	return report{
		Version: "devel", Time: now, Started: now,
		Sync: control.State{
			Gateway:    control.Gateway{Type: "Client", Kind: "GatewayClient", Name: "client", ClusterID: "rome"},
			Endpoint:   "gw.example.com:51840",
			Generation: 1, AppliedAt: now, Peer: control.Peer{Value: "Connecting", LatencyText: "N/A"},
		},
		DataPlane: dataplane.Status{MTU: 1340, TunnelAddr: netip.MustParseAddr("169.254.18.2")},
		Memory:    daemon.Memory{Heap: 5 << 20, Goroutines: 20},
	}
}
