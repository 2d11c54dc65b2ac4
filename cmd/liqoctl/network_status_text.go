package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// statusTable is what `network status -o json` prints.
type statusTable struct {
	Time     time.Time       `json:"time"`
	Peerings []survey.Status `json:"peerings"`
	// Unread are the clusters of which nothing is shown.
	Unread []unreadCluster `json:"unread,omitempty"`
	// Problems are those of the clusters' installations, rather than of a peering.
	Problems []clusterProblem `json:"problems,omitempty"`

	both    bool     // there are two clusters
	none    string   // what is shown where there are no peerings
	missing []string // what is not shown
}

// unreadCluster is a cluster that could not be read.
type unreadCluster struct {
	Cluster string `json:"cluster"` // local, remote
	Server  string `json:"server"`
	Error   string `json:"error"`
}

// clusterProblem is something that is not well in a cluster.
type clusterProblem struct {
	Cluster string `json:"cluster,omitempty"` // local, remote, where there are two
	Self    string `json:"self"`              // its ID
	survey.StatusAlert
}

// addProblems adds those of the installation in a cluster.
func (t *statusTable) addProblems(c *survey.Cluster) {
	for _, a := range c.ComponentAlerts() {
		t.Problems = append(t.Problems, clusterProblem{c.Name, c.Installation.ClusterID, a.Status()})
	}
}

// statusLook says how a statusTable is drawn.
type statusLook struct {
	wide  bool
	rates bool
	// columns is the width to fit into; 0: any.
	columns int
}

// statusColumn is one column: its cell for a row, and how dear it is. In a narrow
// window the columns of the highest cost go first; those of cost 0 stay.
type statusColumn struct {
	header string
	cost   int
	cell   func(s *survey.Status) string
	// tone colours a cell; nil: as it is.
	tone func(s *survey.Status, text string) string
}

// columns are those that a look asks for, before any is left out.
func (t statusTable) columns(l statusLook) []statusColumn {
	var all []statusColumn
	if t.both {
		all = append(all, statusColumn{header: "CLUSTER", cell: func(s *survey.Status) string { return orUnknown(s.Self) }})
	}
	all = append(all,
		statusColumn{header: "PEER", cell: func(s *survey.Status) string { return orUnknown(s.Peer) }},
		statusColumn{header: "STATE", cell: stateCell, tone: stateTone},
		statusColumn{header: "LATENCY", cost: 2, cell: func(s *survey.Status) string { return orUnknown(strings.TrimSuffix(s.Latency, "N/A")) }},
	)
	if l.rates {
		all = append(all,
			statusColumn{header: "OUT", cost: 1, cell: rateCell(func(t *survey.Traffic) *survey.Rate { return t.Egress.Rate })},
			statusColumn{header: "IN", cost: 1, cell: rateCell(func(t *survey.Traffic) *survey.Rate { return t.Ingress.Rate })})
	}
	all = append(all,
		statusColumn{header: "DROPS", cost: 3, cell: func(s *survey.Status) string { return dropsCell(s, l.wide) }},
		statusColumn{header: "MTU", cost: 6, cell: mtuCell},
		statusColumn{header: "KEY", cost: 7, cell: t.keyCell(func(k *survey.KeyState) time.Time { return k.Since })},
		statusColumn{header: "HANDSHAKE", cost: 8, cell: t.keyCell(func(k *survey.KeyState) time.Time { return k.Handshake })},
		statusColumn{header: "PODS", cost: 5, cell: podsCell(func(g *survey.GatewayState) string { return fmt.Sprintf("%d/%d", g.Ready, g.Replicas) })},
		statusColumn{header: "NODES", cost: 4, cell: nodesCell},
	)
	for _, m := range modules {
		if slices.ContainsFunc(t.Peerings, func(s survey.Status) bool { return m.of(&s) != nil }) {
			all = append(all, statusColumn{header: strings.ToUpper(m.name), cost: 4, cell: m.cell, tone: m.tone})
		}
	}
	if slices.ContainsFunc(t.Peerings, func(s survey.Status) bool { return s.Services != nil }) {
		all = append(all, statusColumn{header: "SERVICES", cost: 5, cell: servicesCell})
	}
	if l.wide {
		all = append(all, t.wideColumns()...)
	}
	return all
}

// wideColumns are those of -o wide only.
func (t statusTable) wideColumns() []statusColumn {
	return []statusColumn{
		{header: "PEER KEY", cost: 9, cell: t.keyCell(func(k *survey.KeyState) time.Time { return k.PeerSince })},
		{header: "ROLE", cost: 10, cell: gatewayCell(func(g *survey.GatewayState) string { return string(g.Role) })},
		{header: "SERVER", cost: 11, cell: gatewayCell(func(g *survey.GatewayState) string { return g.Endpoint })},
		{header: "ACTIVE POD", cost: 12, cell: gatewayCell(func(g *survey.GatewayState) string { return g.ActivePod })},
		{header: "NODE", cost: 13, cell: gatewayCell(func(g *survey.GatewayState) string { return g.ActiveNode })},
		{header: "RESTARTS", cost: 14, cell: podsCell(func(g *survey.GatewayState) string { return fmt.Sprint(g.Restarts) })},
		{header: "VERSION", cost: 15, cell: gatewayCell(func(g *survey.GatewayState) string { return g.Version })},
	}
}

// gatewayCell is a cell about the gateway, if there is one.
func gatewayCell(of func(*survey.GatewayState) string) func(*survey.Status) string {
	return func(s *survey.Status) string {
		if s.Gateway == nil {
			return "-"
		}
		return orUnknown(of(s.Gateway))
	}
}

// podsCell is a cell about the pods of the gateway, if they could be read.
func podsCell(of func(*survey.GatewayState) string) func(*survey.Status) string {
	return gatewayCell(func(g *survey.GatewayState) string {
		if g.PodsUnread {
			return ""
		}
		return of(g)
	})
}

// keyCell is the age of something about keys, where it is known.
func (t statusTable) keyCell(of func(*survey.KeyState) time.Time) func(*survey.Status) string {
	return func(s *survey.Status) string {
		if s.Keys == nil {
			return "-"
		}
		return ageCell(t.Time, of(s.Keys))
	}
}

func nodesCell(s *survey.Status) string {
	if s.Nodes == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", s.Nodes.Joined, s.Nodes.Known)
}

// servicesCell is how many Services the peer may use, and how many of it are known here.
func servicesCell(s *survey.Status) string {
	if s.Services == nil {
		return "-"
	}
	return fmt.Sprintf("%d out, %d in", s.Services.Exported, s.Services.Imported)
}

// draw puts the table and what is wrong on a page.
func (t statusTable) draw(p *console.Page, l statusLook) {
	if len(t.Peerings) == 0 {
		p.Line(t.none)
		t.drawProblems(p)
		return
	}
	columns := t.fitting(l)
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = c.header
	}
	rows := make([][]string, len(t.Peerings))
	for n := range t.Peerings {
		for _, c := range columns {
			text := c.cell(&t.Peerings[n])
			if c.tone != nil {
				text = c.tone(&t.Peerings[n], text)
			}
			rows[n] = append(rows[n], text)
		}
	}
	p.Table(header, rows)
	t.drawAlerts(p)
	t.drawProblems(p)
}

// drawProblems says what is wrong with the installations.
func (t statusTable) drawProblems(p *console.Page) {
	if len(t.Problems) > 0 {
		p.Line("")
	}
	for _, o := range t.Problems {
		p.Line(console.Caution(fmt.Sprintf("cluster %s: %s: %s", orUnknown(o.Self), o.Object, o.Message)))
	}
}

// columnGap is between two columns of a console's table.
const columnGap = 3

// fitting leaves out columns until the rest fits. Of a wide table nothing is left
// out: who asks for all wants all.
func (t statusTable) fitting(l statusLook) []statusColumn {
	columns := t.columns(l)
	if l.columns == 0 || l.wide {
		return columns
	}
	widths := make(map[string]int, len(columns))
	for _, c := range columns {
		widths[c.header] = len(c.header)
		for i := range t.Peerings {
			widths[c.header] = max(widths[c.header], utf8.RuneCountInString(c.cell(&t.Peerings[i])))
		}
	}
	for {
		total, dearest := -columnGap, 0
		for i, c := range columns {
			total += widths[c.header] + columnGap
			if c.cost >= columns[dearest].cost {
				dearest = i
			}
		}
		if total <= l.columns || columns[dearest].cost == 0 {
			return columns
		}
		columns = slices.Delete(columns, dearest, dearest+1)
	}
}

// drawAlerts says below the table what is wrong, and what is to be done although traffic flows.
func (t statusTable) drawAlerts(p *console.Page) {
	first := true
	line := func(s *survey.Status, about, message string, tone func(string) string) {
		if first {
			p.Line("")
			first = false
		}
		p.Line(tone(fmt.Sprintf("%s: %s: %s", t.name(s), about, message)))
	}
	for i := range t.Peerings {
		s := &t.Peerings[i]
		for _, a := range s.Alerts {
			tone := console.Caution
			if a.Severity == "error" {
				tone = console.Bad
			}
			line(s, a.Object, a.Message, tone)
		}
		for _, m := range modules {
			state := m.of(s)
			if state == nil {
				continue
			}
			tone := console.Bad
			if state.Health == survey.Healthy {
				tone = console.Caution
			}
			for _, message := range state.Alerts {
				line(s, m.name, message, tone)
			}
		}
	}
}

// name is the peer of a row, or, where both ends are shown, the direction.
func (t statusTable) name(s *survey.Status) string {
	if t.both {
		return orUnknown(s.Self) + " to " + orUnknown(s.Peer)
	}
	return orUnknown(s.Peer)
}

// unwell are the peers whose network, authentication or offloading is not healthy, or whose health
// cannot be told. Where nobody asked for a network, none is missed.
func (t statusTable) unwell() (ids []string) {
	for i := range t.Peerings {
		s := &t.Peerings[i]
		bad := func(m module) bool { return m.of(s) != nil && m.of(s).Health != survey.Healthy }
		if s.Health != survey.Healthy && s.Health != survey.Disabled || slices.ContainsFunc(modules, bad) {
			ids = append(ids, t.name(s))
		}
	}
	return ids
}

func stateCell(s *survey.Status) string {
	switch {
	case s.Health == survey.Disabled:
		return "Disconnected"
	case s.State == "":
		return string(survey.Unknown)
	case s.State == string(networkingv1beta1.Connected) && survey.Idle(s.Alerts):
		return "No traffic (!)" // the gateways know each other, and nobody uses them
	case s.State == string(networkingv1beta1.Connected) && (s.Health == survey.Unhealthy || len(s.Alerts) > 0):
		return s.State + " (!)"
	}
	return s.State
}

func stateTone(s *survey.Status, text string) string {
	switch {
	case s.Health == survey.Healthy && len(s.Alerts) == 0:
		return console.Good(text)
	case s.Health == survey.Disabled:
		return console.Faint(text)
	case s.State == string(networkingv1beta1.ConnectionError):
		return console.Bad(text)
	}
	return console.Caution(text)
}

// module is a part of peerings beside the network.
type module struct {
	name string
	of   func(*survey.Status) *survey.ModuleState
}

var modules = []module{
	{"authentication", func(s *survey.Status) *survey.ModuleState { return s.Authentication }},
	{"offloading", func(s *survey.Status) *survey.ModuleState { return s.Offloading }},
}

func (m module) cell(s *survey.Status) string {
	if m.of(s) == nil {
		return "-"
	}
	return string(m.of(s).Health)
}

func (m module) tone(s *survey.Status, text string) string {
	switch {
	case m.of(s) == nil:
		return console.Faint(text)
	case m.of(s).Health == survey.Healthy:
		return console.Good(text)
	}
	return console.Bad(text)
}

func rateCell(of func(*survey.Traffic) *survey.Rate) func(*survey.Status) string {
	return func(s *survey.Status) string {
		if s.Traffic == nil || of(s.Traffic) == nil {
			return "-"
		}
		return bitRate(of(s.Traffic).Bytes)
	}
}

// bitRate is a rate in the unit in which networks are sold.
func bitRate(bytesPerSecond float64) string {
	bits := 8 * bytesPerSecond
	for _, unit := range []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s"} {
		if bits < 999.5 || unit == "Gbit/s" {
			return significant(bits) + " " + unit
		}
		bits /= 1000
	}
	return "" // not reached
}

// significant shows two digits or more: 0, 4.2, 42, 420.
func significant(x float64) string {
	if x < 9.95 && x != math.Trunc(x) {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// dropsCell is how many packets were dropped, and how many are being dropped. In
// a wide table it is why.
func dropsCell(s *survey.Status, wide bool) string {
	t := s.Traffic
	if t == nil {
		return "-"
	}
	text := fmt.Sprint(t.Egress.Dropped + t.Ingress.Dropped)
	if t.Egress.Rate != nil && t.Ingress.Rate != nil {
		if now := t.Egress.Rate.Drops + t.Ingress.Rate.Drops; now > 0 {
			text += fmt.Sprintf(" (+%s/s)", significant(math.Max(now, 0.1)))
		}
	}
	if wide {
		for _, d := range t.Drops {
			text += fmt.Sprintf("\n%s %s %d", d.Direction, d.Reason, d.Count)
		}
	}
	return text
}

// mtuCell shows the MTU, and those of the path and of the peer where they are other ones.
func mtuCell(s *survey.Status) string {
	g := s.Gateway
	if g == nil || g.MTU == 0 {
		return "-"
	}
	cell := fmt.Sprint(g.MTU)
	if g.PathMTU != 0 {
		cell += fmt.Sprintf(", path %d", g.PathMTU)
	}
	if g.PeerMTU != 0 && g.PeerMTU != g.MTU {
		cell += fmt.Sprintf(", peer %d", g.PeerMTU)
	}
	return cell
}

// ageCell is how long ago something was, as kubectl shows ages.
func ageCell(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}
