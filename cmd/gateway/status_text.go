package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-net/sluice/controlplane/gatewaysync"
	"github.com/sluice-net/sluice/dataplane"
)

// shownRoutes is how many routes text output shows without -a.
const shownRoutes = 10

// writeStatus prints a report for a person. Times are relative to the report's.
func writeStatus(out io.Writer, r report, all bool) error {
	// One flush at the end: the error of any write shows there.
	buffered := bufio.NewWriter(out)
	w := statusWriter{tab: tabwriter.NewWriter(buffered, 0, 8, 2, ' ', 0), now: r.Time}
	w.summary(r)
	w.peer(r)
	w.nodes(r.DataPlane.Nodes)
	w.translations(r.DataPlane)
	w.routes(r.DataPlane.Routes, all)
	w.traffic(r.DataPlane)
	w.drops(r.DataPlane)
	w.sockets(r.DataPlane.Sockets)
	w.memory(r)
	return cmp.Or(w.tab.Flush(), buffered.Flush())
}

// statusWriter prints tables: cells end with a tab, tables with an empty line.
type statusWriter struct {
	tab *tabwriter.Writer
	now time.Time
}

func (w statusWriter) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if texts[i] = fmt.Sprint(c); texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(w.tab, strings.Join(texts, "\t"))
}

// title starts a table; the columns of one table do not widen those of another.
func (w statusWriter) title(cells ...any) {
	fmt.Fprintln(w.tab)
	w.tab.Flush()
	w.row(cells...)
}

func (w statusWriter) summary(r report) {
	s := r.Sync
	name := s.Gateway.Name
	if s.Gateway.Namespace != "" {
		name = s.Gateway.Namespace + "/" + name
	}
	w.row("Gateway", fmt.Sprintf("%s %s, %s, up %s", s.Gateway.Kind, name, r.Version, age(r.Started, r.Time)))
	w.row("Peer", s.Gateway.ClusterID)
	w.mode(r)
	connection := fmt.Sprintf("%s, latency %s", s.Peer.Value, s.Peer.LatencyText)
	if !s.Peer.Timestamp.IsZero() {
		connection += ", measured " + w.ago(s.Peer.Timestamp)
	}
	if s.Role == gatewaysync.RoleStandBy {
		connection = "the active replica's"
	}
	w.row("Connection", connection)
	w.row("MTU", mtuText(r))
	w.row("Configuration", fmt.Sprintf("generation %d, applied %s", s.Generation, w.ago(s.AppliedAt)))
	for _, p := range s.Waiting {
		fmt.Fprintln(w.tab, "  WAITING: "+p.String())
	}
	if len(s.Refused) > 0 {
		what := "files"
		if r.Cluster != nil {
			what = "objects"
		}
		fmt.Fprintf(w.tab, "  REFUSED: the newest %s, %s; what was in force stays\n", what, w.ago(s.RefusedAt))
	}
	for _, p := range s.Refused {
		fmt.Fprintln(w.tab, "    "+p.String())
	}
	for _, p := range s.RefusedWarnings {
		if !slices.Contains(s.Warnings, p) { // or it is shown below
			fmt.Fprintln(w.tab, "    warning: "+p.String())
		}
	}
	for _, p := range s.Ignored {
		fmt.Fprintln(w.tab, "  IGNORED: "+p.String())
	}
	for _, p := range s.Warnings {
		fmt.Fprintln(w.tab, "  warning: "+p.String())
	}
}

// mode says where the objects come from, and who carries the traffic.
func (w statusWriter) mode(r report) {
	c := r.Cluster
	if c == nil {
		w.row("Mode", "standalone, by the manifests in "+cmp.Or(r.Manifests, "a directory"))
		return
	}
	api := "in contact with the API server"
	switch {
	case !c.API.Away.IsZero():
		api = "no contact with the API server for " + age(c.API.Away, w.now) + ": " + c.API.Error
	case !c.API.Connected:
		api = "reading the objects of the cluster"
	}
	w.row("Mode", "in a cluster; "+api)
	if e := c.Election; e != nil {
		role := "standing by, the leader is " + cmp.Or(e.Holder, "not elected yet")
		if e.Leading {
			role = "leading"
		}
		w.row("Role", fmt.Sprintf("%s (%s, lease %s)", role, e.Identity, e.Lease))
	}
	var objects []string
	for _, watch := range c.API.Watches {
		count := fmt.Sprintf("%d %s", watch.Objects, watch.Name)
		if !watch.Synced {
			count = watch.Name + " not read yet"
		}
		objects = append(objects, count)
	}
	w.row("Objects", strings.Join(objects, ", "))
}

func mtuText(r report) string {
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
	w.title("WIREGUARD")
	key := "not known yet"
	if !t.Peer.IsZero() {
		key = t.Peer.String()
	}
	w.row("Peer key", key)
	w.row("Endpoint", endpointText(t.Endpoint, r.Sync.Endpoint))
	w.row("Last handshake", w.ago(t.LastHandshake))
	w.row("Received", fmt.Sprintf("%s, %d packets", size(t.RxBytes), t.RxPackets))
	w.row("Sent", fmt.Sprintf("%s, %d packets", size(t.TxBytes), t.TxPackets))
	w.row("In flight", fmt.Sprintf("%d egress, %d ingress, of %d each", t.InFlightEgress, t.InFlightIngress, t.MaxInFlight))
	w.row("Own addresses", join(append(slices.Clone(s.Internal), s.TunnelAddr)))
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
	w.title("NODE", "VNI", "UNDERLAY", "INTERNAL", "MAC", "SPEAKS", "SEEN", "FROM NODE", "PACKETS", "TO NODE", "PACKETS")
	for _, n := range nodes {
		speaks := n.Encapsulation.String()
		if n.LastSeen.IsZero() {
			speaks = ""
		}
		w.row(n.Name, n.VNI, n.Underlay, join(n.Internal), n.MAC, speaks, w.ago(n.LastSeen),
			size(n.RxBytes), n.RxPackets, size(n.TxBytes), n.TxPackets)
	}
}

func (w statusWriter) translations(s dataplane.Status) {
	w.title("TRANSLATION", "HERE", "IN THE TUNNEL")
	for _, m := range s.Remote {
		what := "peer"
		if m.Inside == m.Outside {
			what = "peer, as it is"
		}
		w.row(what, m.Inside, m.Outside)
	}
	for _, p := range s.LocalPods {
		w.row("pods, as they are", p, p)
	}
	for i, p := range s.External {
		w.row("external", p, p)
		if i == slices.IndexFunc(s.External, func(q netip.Prefix) bool { return q.Addr().Is4() == p.Addr().Is4() }) {
			w.row("nodes and other local senders", "any", p.Addr())
		}
	}
	for _, a := range s.Addresses {
		w.row("host", a.Inside, a.Outside)
	}
}

func (w statusWriter) routes(routes []dataplane.Route, all bool) {
	w.title(fmt.Sprintf("ROUTE (%d)", len(routes)), "NODE")
	shown := routes
	if !all && len(shown) > shownRoutes {
		shown = shown[:shownRoutes]
	}
	for _, r := range shown {
		w.row(r.Dst, r.Node)
	}
	if hidden := len(routes) - len(shown); hidden > 0 {
		fmt.Fprintf(w.tab, "... %d more, shown by -a\n", hidden)
	}
}

func (w statusWriter) traffic(s dataplane.Status) {
	w.title("TRAFFIC", "PACKETS", "BYTES", "COMPLETED", "SEGMENTED", "FRAGMENTED", "WITHOUT ROUTE")
	for _, d := range directions(s) {
		w.row(d.name, d.Packets, size(d.Bytes), d.Repaired, d.Segmented, d.Fragmented, d.Fallback)
	}
	w.title("FLOWS", fmt.Sprintf("%d of %d", s.Flows.Entries, s.Flows.Capacity))
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
	w.title("DROPS", "REASON", "PACKETS")
	none := true
	for _, d := range directions(s) {
		for _, reason := range slices.Sorted(maps.Keys(d.Verdicts)) {
			if strings.HasPrefix(reason, "Drop") {
				w.row(d.name, reason, d.Verdicts[reason])
				none = false
			}
		}
	}
	for _, d := range tunnelDrops(s.Tunnel) {
		if d.count > 0 {
			if s.Tunnel.Peer.IsZero() {
				d.reason += " (the peer's key is not known yet)"
			}
			w.row(d.direction, d.reason, d.count)
			none = false
		}
	}
	if none {
		w.row("none", " ", " ")
	}
}

func (w statusWriter) sockets(sockets map[string]dataplane.SocketStatus) {
	w.title("SOCKET", "ADDRESS", "GRO", "GSO", "RECEIVED", "PER CALL", "SENT", "PER CALL", "ERRORS", "OVERRUNS", "BUFFER")
	for _, name := range slices.Sorted(maps.Keys(sockets)) {
		s := sockets[name]
		w.row(name, addrPort(s.LocalAddr), onOff(s.GRO), onOff(s.GSO),
			s.ReadDatagrams, ratio(s.ReadDatagrams, s.Reads), s.WriteDatagrams, ratio(s.WriteDatagrams, s.Writes),
			s.WriteErrors, s.Overruns, size(uint64(s.ReadBuffer)))
	}
}

func (w statusWriter) memory(r report) {
	limit := "no limit"
	if r.Memory.Limit > 0 {
		limit = "limit " + size(uint64(r.Memory.Limit))
	}
	// 64 KiB each is what wireguard-go holds for a packet.
	inFlight := size(2 * uint64(r.DataPlane.Tunnel.MaxInFlight) * 64 << 10)
	w.title("MEMORY", fmt.Sprintf("resident %s, heap %s with buffers not touched yet (%s), packets in flight at most %s, %d goroutines",
		size(r.Memory.Resident), size(r.Memory.Heap), limit, inFlight, r.Memory.Goroutines))
}

// ago says how long before the report t was.
func (w statusWriter) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(t, w.now) + " ago"
}

func age(from, to time.Time) string {
	d := max(0, to.Sub(from))
	switch {
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// size prints bytes with three digits or so.
func size(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, "KMGTPE"
	for value >= unit {
		value, prefix = value/unit, prefix[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, prefix[0])
}

func ratio(a, b uint64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
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
