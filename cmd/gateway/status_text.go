package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/gateway/control"
	"github.com/sluice-net/sluice/gateway/services"
	"github.com/sluice-net/sluice/tunnel"
)

// shownRoutes is how many routes text output shows without -a.
const shownRoutes = 10

// writeStatus prints a report for a person. Times are relative to the report's.
func writeStatus(out io.Writer, r report, all bool) error {
	w := statusWriter{daemon.NewText(out, r.Time)}
	w.summary(r)
	w.peer(r)
	w.nodes(r.DataPlane.Nodes)
	w.translations(r.DataPlane)
	w.routes(r.DataPlane.Routes, all)
	w.services(r.Services, all)
	w.traffic(r.DataPlane)
	w.drops(r.DataPlane)
	w.sockets(r.DataPlane.Sockets)
	w.memory(r)
	return w.Flush()
}

// statusWriter prints the parts of a report.
type statusWriter struct{ daemon.Text }

func (w statusWriter) summary(r report) {
	s := r.Sync
	name := s.Gateway.Name
	if s.Gateway.Namespace != "" {
		name = s.Gateway.Namespace + "/" + name
	}
	w.Row("Gateway", fmt.Sprintf("%s %s, %s, up %s", s.Gateway.Kind, name, r.Version, w.Age(r.Started)))
	w.Row("Peer", s.Gateway.ClusterID)
	w.mode(r)
	connection := fmt.Sprintf("%s, latency %s", s.Peer.Value, s.Peer.LatencyText)
	if !s.Peer.Timestamp.IsZero() {
		connection += ", measured " + w.Ago(s.Peer.Timestamp)
	}
	if s.Role == control.RoleStandBy {
		connection = "the active replica's"
	}
	w.Row("Connection", connection)
	w.Row("MTU", mtuText(r))
	configuration := fmt.Sprintf("generation %d, applied %s", s.Generation, w.Ago(s.AppliedAt))
	if !s.Kept.IsZero() {
		configuration += fmt.Sprintf("; KEPT over a restart, as it was %s, until the API server answers", w.Ago(s.Kept))
	}
	w.Row("Configuration", configuration)
	if n := r.DataPlane.Captures.Running; n > 0 {
		w.Row("Captures", fmt.Sprintf("%d under way", n))
	}
	for _, p := range s.Waiting {
		w.Line("  WAITING: %s", p)
	}
	if len(s.Refused) > 0 {
		what := "files"
		if r.Cluster != nil {
			what = "objects"
		}
		w.Line("  REFUSED: the newest %s, %s; what was in force stays", what, w.Ago(s.RefusedAt))
	}
	for _, p := range s.Refused {
		w.Line("    %s", p)
	}
	for _, p := range s.RefusedWarnings {
		if !slices.Contains(s.Warnings, p) { // or it is shown below
			w.Line("    warning: %s", p)
		}
	}
	for _, p := range s.Ignored {
		w.Line("  IGNORED: %s", p)
	}
	for _, p := range s.Warnings {
		w.Line("  warning: %s", p)
	}
}

// mode says where the objects come from, and who carries the traffic.
func (w statusWriter) mode(r report) {
	c := r.Cluster
	if c == nil {
		w.Row("Mode", "standalone, by the manifests in "+cmp.Or(r.Manifests, "a directory"))
		return
	}
	contact, objects := c.API.Text(w.Age)
	w.Row("Mode", "in a cluster; "+contact)
	if e := c.Election; e != nil {
		role := "standing by, the leader is " + cmp.Or(e.Holder, "not elected yet")
		if e.Leading {
			role = "leading"
		}
		if r.DataPlane.Tunnel.Unconfirmed {
			role = "UNCONFIRMED: neither the API server nor the peer says that it still leads; it sends pings only"
		}
		w.Row("Role", fmt.Sprintf("%s (%s, lease %s)", role, e.Identity, e.Lease))
	}
	w.Row("Objects", objects)
}

// shownServices is how many Services text output shows without -a.
const shownServices = 10

// services prints what is exchanged with the peer, if anything is.
func (w statusWriter) services(s *services.Status, all bool) {
	if s == nil {
		return
	}
	w.Title("SERVICES", s.Text())
	if s.Problem != "" {
		w.Line("  not heard: %s", s.Problem)
	}
	for _, reason := range services.Reasons {
		if n := s.Refused[reason]; n > 0 {
			w.Line("  REFUSED: %s, times: %d", reason, n)
		}
	}
	if n := s.Strangers; n > 0 {
		w.Line("  connections that were not of the peer's gateway: %d", n)
	}
	left, hidden := daemon.Shown(s.LeftOut, shownServices, all)
	for _, why := range left {
		w.Line("  not told: %s", why)
	}
	imported, more := daemon.Shown(s.Imported, shownServices, all)
	for _, of := range imported {
		w.Row(of.Name, fmt.Sprintf("%s, endpoints: %d", of.Type, of.Endpoints))
	}
	w.More(hidden + more)
}

func mtuText(r report) string {
	if p := r.Sync.Path; p.MTU != 0 {
		return fmt.Sprintf("%d to the peer (search %s), %d to the nodes", r.DataPlane.PathMTU, p.Phase, r.DataPlane.MTU)
	}
	if m := r.Sync.Peer.MTUMismatch; m != "" {
		return fmt.Sprintf("%d  WARNING: %s", r.DataPlane.MTU, m)
	}
	if r.Sync.Peer.MTU != 0 {
		return fmt.Sprintf("%d, the peer's is the same", r.DataPlane.MTU)
	}
	return fmt.Sprint(r.DataPlane.MTU)
}

func (w statusWriter) peer(r report) {
	s := r.DataPlane
	t := s.Tunnel
	w.Title("WIREGUARD")
	key := "not known yet"
	if !t.Peer.IsZero() {
		key = t.Peer.String()
	}
	w.Row("Peer key", key)
	w.Row("Endpoint", endpointText(t.Endpoint, r.Sync.Endpoint))
	w.Row("Last handshake", w.Ago(t.LastHandshake))
	if why := r.Sync.Peer.Silence.Message; why != "" {
		w.Row("No answer", why)
	}
	if several := r.Sync.Peer.Several; several != "" {
		w.Row("SEVERAL PEERS", several)
	}
	if out := r.Sync.Peer.LeftOut; out != "" {
		w.Row("TUNNELS LEFT OUT", out)
	}
	total := t.Total()
	w.Row("Received", daemon.Size(total.RxBytes)+", "+daemon.Count(total.RxPackets, "packet"))
	w.Row("Sent", daemon.Size(total.TxBytes)+", "+daemon.Count(total.TxPackets, "packet"))
	w.Row("Waiting", daemon.Count(uint64(total.Waiting), "packet")+" for a session")
	w.Row("Own addresses", join(append(slices.Clone(s.Internal), s.TunnelAddr)))
	if len(t.Further) > 0 {
		w.tunnels(append([]tunnel.Stats{t}, t.Further...))
	}
}

// tunnels shows each of several tunnels.
func (w statusWriter) tunnels(tunnels []tunnel.Stats) {
	w.Title("TUNNEL", "PORT", "ENDPOINT", "HANDSHAKE", "RECEIVED", "PACKETS", "SENT", "PACKETS", "STATE")
	for i, t := range tunnels {
		state := "carries packets"
		switch {
		case t.Problem != "":
			state = "left out: " + t.Problem
		case t.LeftOut:
			state = "left out"
		}
		w.Row(i+1, t.ListenPort, addrPort(t.Endpoint), w.Ago(t.LastHandshake),
			daemon.Size(t.RxBytes), t.RxPackets, daemon.Size(t.TxBytes), t.TxPackets, state)
	}
}

// endpointText is the peer's address in use, with what a client was configured
// with where that is something else.
func endpointText(used netip.AddrPort, configured string) string {
	switch {
	case configured == "" || configured == used.String():
		return addrPort(used)
	case !used.IsValid():
		return "none, configured is " + configured + " (a failed lookup is in the log)"
	}
	return used.String() + ", configured is " + configured
}

func (w statusWriter) nodes(nodes []dataplane.NodeStatus) {
	w.Title("NODE", "VNI", "UNDERLAY", "INTERNAL", "MAC", "SPEAKS", "SEEN", "FROM NODE", "PACKETS", "TO NODE", "PACKETS")
	for _, n := range nodes {
		speaks := n.Encapsulation.String()
		if n.LastSeen.IsZero() {
			speaks = ""
		}
		w.Row(n.Name, n.VNI, n.Underlay, join(n.Internal), n.MAC, speaks, w.Ago(n.LastSeen),
			daemon.Size(n.RxBytes), n.RxPackets, daemon.Size(n.TxBytes), n.TxPackets)
	}
}

func (w statusWriter) translations(s dataplane.Status) {
	w.Title("TRANSLATION", "HERE", "IN THE TUNNEL")
	for _, m := range s.Remote {
		what := "peer"
		if m.Inside == m.Outside {
			what = "peer, as it is"
		}
		w.Row(what, m.Inside, m.Outside)
	}
	for _, p := range s.LocalPods {
		w.Row("pods, as they are", p, p)
	}
	for i, p := range s.External {
		w.Row("external", p, p)
		if i == slices.IndexFunc(s.External, func(q netip.Prefix) bool { return q.Addr().Is4() == p.Addr().Is4() }) {
			w.Row("nodes and other local senders", "any", p.Addr())
		}
	}
	for _, a := range s.Addresses {
		w.Row("host", a.Inside, a.Outside)
	}
}

func (w statusWriter) routes(routes []dataplane.Route, all bool) {
	w.Title(fmt.Sprintf("ROUTE (%d)", len(routes)), "NODE")
	shown, hidden := daemon.Shown(routes, shownRoutes, all)
	for _, r := range shown {
		w.Row(r.Dst, r.Node)
	}
	w.More(hidden)
}

func (w statusWriter) traffic(s dataplane.Status) {
	w.Title("TRAFFIC", "PACKETS", "BYTES", "COMPLETED", "SEGMENTED", "FRAGMENTED", "WITHOUT ROUTE")
	for _, d := range directions(s) {
		w.Row(d.name, d.Packets, daemon.Size(d.Bytes), d.Repaired, d.Segmented, d.Fragmented, d.Fallback)
	}
	w.Title("FLOWS", fmt.Sprintf("%d of %d from the unknown source", s.Flows.Entries, s.Flows.Capacity),
		fmt.Sprintf("%d of %d to pods with IP objects", s.PodFlows.Entries, s.PodFlows.Capacity))
}

// direction is one direction with its name.
type direction struct {
	name string
	dataplane.DirectionStatus
}

func directions(s dataplane.Status) []direction {
	return []direction{{"egress", s.Egress}, {"ingress", s.Ingress}}
}

func (w statusWriter) drops(s dataplane.Status) {
	w.Title("DROPS", "REASON", "PACKETS")
	none := true
	for _, d := range directions(s) {
		for _, reason := range slices.Sorted(maps.Keys(d.Verdicts)) {
			if strings.HasPrefix(reason, "Drop") {
				w.Row(d.name, reason, d.Verdicts[reason])
				none = false
			}
		}
	}
	for _, d := range tunnelDrops(s.Tunnel) {
		if d.count > 0 {
			if s.Tunnel.Peer.IsZero() {
				d.reason += " (the peer's key is not known yet)"
			}
			w.Row(d.direction, d.reason, d.count)
			none = false
		}
	}
	if none {
		w.Row("none", " ", " ")
	}
}

func (w statusWriter) sockets(sockets map[string]dataplane.SocketStatus) {
	w.Title("SOCKET", "ADDRESS", "GRO", "GSO", "RECEIVED", "PER CALL", "SENT", "PER CALL", "ERRORS", "OVERRUNS", "BUFFER")
	for _, name := range slices.Sorted(maps.Keys(sockets)) {
		s := sockets[name]
		if s.Sockets > 1 {
			name = fmt.Sprintf("%s (%d)", name, s.Sockets)
		}
		w.Row(name, addrPort(s.LocalAddr), daemon.OnOff(s.GRO), daemon.OnOff(s.GSO),
			s.ReadDatagrams, daemon.Ratio(s.ReadDatagrams, s.Reads), s.WriteDatagrams, daemon.Ratio(s.WriteDatagrams, s.Writes),
			s.WriteErrors, s.Overruns, daemon.Size(uint64(s.ReadBuffer)))
	}
}

func (w statusWriter) memory(r report) {
	w.Title("MEMORY", fmt.Sprintf("resident %s, heap %s with buffers not touched yet (%s), %d goroutines",
		daemon.Size(r.Memory.Resident), daemon.Size(r.Memory.Heap), r.Memory.LimitText(), r.Memory.Goroutines))
}

func addrPort(a netip.AddrPort) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

func join(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		if a.IsValid() {
			texts = append(texts, a.String())
		}
	}
	return strings.Join(texts, ", ")
}
