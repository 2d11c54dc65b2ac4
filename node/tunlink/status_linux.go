package tunlink

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/underlay"
)

// Status is what an Endpoint is doing.
type Status struct {
	// Sockets are those that are open: none without a tunnel.
	Sockets []SocketStatus `json:"sockets"`
	// Tunnels are those in force, by device.
	Tunnels []TunnelStatus `json:"tunnels"`
	// Drops counts datagrams that belong to no tunnel, by the name of a Drop.
	Drops map[string]uint64 `json:"drops"`
}

// SocketStatus is about one socket.
type SocketStatus struct {
	Local netip.AddrPort `json:"local"`
	underlay.Stats
}

// TunnelStatus is about one tunnel.
type TunnelStatus struct {
	Device          string     `json:"device"`
	VNI             geneve.VNI `json:"vni"`
	Gateway         netip.Addr `json:"gateway"`
	Internal        netip.Addr `json:"internal"`
	GatewayInternal netip.Addr `json:"gatewayInternal"`
	// MAC is the node's own link-layer address in the tunnel, GatewayMAC the
	// gateway's, empty while it is not known.
	MAC        string `json:"mac"`
	GatewayMAC string `json:"gatewayMAC"`
	// Encapsulation is what was heard last; we speak Geneve.
	Encapsulation geneve.Encapsulation `json:"encapsulation"`
	// Queues is how many of the device are in use, Offloads what the kernel leaves
	// to us.
	Queues   int      `json:"queues"`
	Offloads []string `json:"offloads"`
	// Packets and bytes inside the tunnel, as many as on the wire; rx: from the
	// gateway.
	RxPackets uint64 `json:"rxPackets"`
	RxBytes   uint64 `json:"rxBytes"`
	TxPackets uint64 `json:"txPackets"`
	TxBytes   uint64 `json:"txBytes"`
	// Super-segments given to and taken from the kernel.
	RxSupers uint64 `json:"rxSupers"`
	TxSupers uint64 `json:"txSupers"`
	// LastSeen is when the gateway was last heard; zero: never.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Drops counts packets by the name of a Drop.
	Drops map[string]uint64 `json:"drops"`
	// Broken is why the device cannot be used any more; Apply opens it again.
	Broken string `json:"broken,omitempty"`
}

func (t *tunnel) status(start time.Time) TunnelStatus {
	c := t.count
	s := TunnelStatus{
		Device: t.Device, VNI: t.VNI, Gateway: t.Gateway, Internal: t.Internal, GatewayInternal: t.GatewayInternal,
		MAC: t.mac.String(), Encapsulation: geneve.Encapsulation(t.learned.encapsulation.Load()),
		Queues: len(t.device.queues), Offloads: t.device.offloadList(),
		RxPackets: c.rxPackets.Load(), RxBytes: c.rxBytes.Load(), RxSupers: c.rxSupers.Load(),
		TxPackets: c.txPackets.Load(), TxBytes: c.txBytes.Load(), TxSupers: c.txSupers.Load(),
		Drops: c.drops.named(),
	}
	if mac := t.gatewayMAC(); mac != (neighbor.MAC{}) {
		s.GatewayMAC = mac.String()
	}
	if ns := c.lastSeen.Load(); ns != 0 {
		s.LastSeen = start.Add(time.Duration(ns))
	}
	if why := t.device.broken.Load(); why != nil {
		s.Broken = *why
	}
	return s
}

// Status returns what the Endpoint is doing. Safe at any time, also after Run.
func (e *Endpoint) Status() Status {
	s := Status{Sockets: []SocketStatus{}, Tunnels: []TunnelStatus{}, Drops: e.drops.named()}
	e.mu.Lock()
	if e.conn != nil {
		s.Sockets = append(s.Sockets, SocketStatus{e.conn.LocalAddr(), e.conn.Stats()})
	}
	e.mu.Unlock()
	for _, t := range e.snap.Load().sorted {
		s.Tunnels = append(s.Tunnels, t.status(e.start))
	}
	return s
}
