package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/cmd/internal/daemon"
	"github.com/sluice-net/sluice/node/fabric"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
)

const (
	// shownLines is how much of a list text output shows without -a: of routes, of
	// a set of addresses, of steps that are not done.
	shownLines = 10
	// shownTunnels is the same for tunnels, which are what people look for.
	shownTunnels = 50
	// shownMessage is how long the message of a condition may be: what is in it
	// stands above as well.
	shownMessage = 120
)

// writeStatus prints a report for a person. Times are relative to the report's.
func writeStatus(out io.Writer, r report, all bool) error {
	w := statusWriter{daemon.NewText(out, r.Time), all}
	if !r.Running {
		w.left(r)
		return w.Flush()
	}
	w.summary(r)
	w.problems(r)
	w.conditions(r.Conditions)
	w.tunnels(r.Tunnels)
	w.routes(r.Tunnels)
	w.rules(r.Rules)
	w.translation(r.Translation)
	w.userspace(r.Userspace)
	w.drift(r)
	w.Title("MEMORY", fmt.Sprintf("resident %s, heap %s (%s), %d goroutines",
		daemon.Size(r.Memory.Resident), daemon.Size(r.Memory.Heap), r.Memory.LimitText(), r.Memory.Goroutines))
	return w.Flush()
}

// left prints what the kernel holds where no agent answers.
func (w statusWriter) left(r report) {
	agent, what := "none runs here", "this is what the kernel holds"
	if r.Elsewhere {
		agent = "one runs here, but does not answer on this socket"
	}
	if r.empty() {
		what = "the kernel holds nothing of fabric"
	}
	w.Row("Agent", agent+"; "+what)
	if !r.empty() {
		w.tunnels(r.Tunnels)
		w.routes(r.Tunnels)
		w.rules(r.Rules)
	}
	if t := r.Translation; !t.Available && t.Reason != "" {
		why, _, _ := strings.Cut(t.Reason, ";") // what it costs is for those who have an agent
		w.Title("TRANSLATION", "not seen: "+why)
	} else if t.Exists {
		w.translation(t)
	}
}

// statusWriter prints the parts of a report.
type statusWriter struct {
	daemon.Text
	all bool
}

// lines prints a list, the first few of it without -a.
func (w statusWriter) lines(prefix string, list []string) {
	shown, hidden := daemon.Shown(list, shownLines, w.all)
	for _, line := range shown {
		w.Line("%s%s", prefix, line)
	}
	w.More(hidden)
}

func (w statusWriter) summary(r report) {
	w.Row("Node", fmt.Sprintf("%s, fabric %s, up %s", r.Node, r.Version, w.Age(r.Started)))
	w.mode(r)
	w.Row("Links", fmt.Sprintf("%s: %s", cmp.Or(string(r.Link.Kind), "none"), cmp.Or(r.Link.Reason, "not looked yet")))
	w.Row("Node IP", nodeIPText(r))
	configuration := "none in force yet"
	if r.Generation > 0 {
		configuration = fmt.Sprintf("generation %d, applied %s", r.Generation, w.Ago(r.AppliedAt))
	}
	w.Row("Configuration", configuration)
	w.Row("Changes", fmt.Sprintf("%d, the last one took %v; %d undid those of other programs, %d failed",
		r.Applies, r.LastApply.Round(time.Microsecond), r.Repairs, r.ApplyErrors))
}

// mode says where the objects come from.
func (w statusWriter) mode(r report) {
	if r.API == nil {
		w.Row("Mode", "standalone, by the manifests in "+cmp.Or(r.Manifests, "a directory"))
		return
	}
	contact, objects := r.API.Text(w.Age)
	w.Row("Mode", "in a cluster; "+contact)
	w.Row("Objects", objects)
}

func nodeIPText(r report) string {
	ip := r.NodeIP
	switch {
	case !r.Planned && ip == networkingv1beta1.NodeIP{}:
		return "not known yet: the objects have not been read"
	case ip.Remote == "" && ip.Local == "":
		return "not known: no gateway can be reached"
	case ip.Local == "":
		return string(ip.Remote)
	case ip.Remote == "":
		return fmt.Sprintf("%s, to gateways on this node", ip.Local)
	case ip.Remote == ip.Local:
		return string(ip.Remote)
	}
	return fmt.Sprintf("%s, to gateways on this node %s", ip.Remote, ip.Local)
}

// problems are everything that a person should mend.
func (w statusWriter) problems(r report) {
	for _, s := range r.Link.Supported {
		if !s.OK && !strings.Contains(r.Link.Reason, s.Reason) {
			w.Line("  no links of kind %s: %s", s.Kind, s.Reason)
		}
	}
	for _, p := range r.Waiting {
		w.Line("  WAITING: %s", p)
	}
	if len(r.Refused) > 0 {
		w.Line("  REFUSED: the newest files, %s; what was in force stays", w.Ago(r.RefusedAt))
	}
	for _, p := range r.Refused {
		w.Line("    %s", p)
	}
	for _, p := range r.Ignored {
		w.Line("  IGNORED: %s; what was in force of it stays", p)
	}
	for _, p := range slices.Concat(r.Diverted, r.Unreachable, r.Untranslated) {
		w.Line("  PROBLEM: %s", p)
	}
	w.lines("  FAILED: ", r.Failures)
	if r.ReportError != "" {
		w.Line("  UNREPORTED: the status of the InternalNode cannot be written: %s", r.ReportError)
	}
	if r.Contested != "" {
		w.Line("  CONTESTED: another program keeps changing what is ours: %s", r.Contested)
	}
	w.liqo(r.Liqo)
	for _, p := range r.Warnings {
		w.Line("  warning: %s", p)
	}
}

// liqo says what is left of Liqo's node agent.
func (w statusWriter) liqo(s *fabric.LiqoState) {
	if s == nil {
		return
	}
	why := ""
	if s.Waits != "" {
		why = " (" + s.Waits + ")"
	}
	switch {
	case s.Left != "":
		w.Line("  LIQO: of its node agent is left, for a while: %s%s", s.Left, why)
	case why != "":
		w.Line("  LIQO: what is left of its node agent is not known%s", why)
	}
	w.lines("  LIQO: left alone, as it is somebody else's: ", s.Others)
	if s.Contested {
		w.Line("  CONTESTED: Liqo's node agent runs beside this one: it makes again what is removed; remove its pod from this node")
	}
}

func (w statusWriter) conditions(cs []metav1.Condition) {
	if len(cs) == 0 {
		return
	}
	w.Title("CONDITION", "STATUS", "REASON", "MESSAGE")
	for _, c := range cs {
		message := c.Message
		if !w.all {
			message = text.Cut(message, shownMessage)
		}
		w.Row(c.Type, c.Status, c.Reason, message)
	}
}

func (w statusWriter) tunnels(ts []fabric.TunnelState) {
	w.Title(fmt.Sprintf("TUNNEL (%d)", len(ts)), "OF", "KIND", "VNI", "GATEWAY", "FROM", "INTERNAL", "GATEWAY'S", "MTU", "STATUS", "SEEN",
		"TO GATEWAY", "PACKETS", "FROM GATEWAY", "PACKETS", "DROPPED")
	shown, hidden := daemon.Shown(ts, shownTunnels, w.all)
	for _, t := range shown {
		from := ""
		if t.Path != nil {
			from = t.Path.Source.String()
		}
		w.Row(t.Name, owner(t), t.Kind, t.VNI, netip.AddrPortFrom(t.Gateway, t.Port), from, addr(t.Address), addr(t.GatewayAddress), t.MTU, t.Status, w.Ago(t.LastSeen),
			daemon.Size(t.TxBytes), t.TxPackets, daemon.Size(t.RxBytes), t.RxPackets, t.TxDropped+t.RxDropped)
	}
	w.More(hidden)
	var problems []string
	for _, t := range ts { // hidden or not
		if t.Problem != "" {
			problems = append(problems, t.Name+": "+t.Problem)
		}
	}
	w.lines("  ", problems)
}

func addr(a netip.Addr) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

func (w statusWriter) routes(ts []fabric.TunnelState) {
	var routes []string
	for _, t := range ts {
		routes = append(routes, t.Routes...)
	}
	w.Title(fmt.Sprintf("ROUTE (%d)", len(routes)))
	w.lines("", routes)
}

func (w statusWriter) rules(rules []string) {
	if len(rules) > 0 {
		w.Title("RULE")
		w.lines("", rules)
	}
}

func (w statusWriter) translation(s hostnet.TranslationState) {
	switch {
	case !s.Available && s.Reason == "": // nobody has looked yet
		return
	case !s.Available:
		w.Title("TRANSLATION", "cannot be had: "+s.Reason)
		return
	case !s.Exists:
		w.Title("TRANSLATION", "none")
		return
	}
	w.Title("TRANSLATION", "ELEMENTS")
	for _, set := range s.Sets {
		if len(set.Elements) == 0 {
			continue
		}
		shown, hidden := daemon.Shown(set.Elements, shownLines, w.all)
		texts := make([]string, len(shown))
		for i, e := range shown {
			texts[i] = e.String()
		}
		if hidden > 0 {
			texts = append(texts, fmt.Sprintf("... %d more, shown by -a", hidden))
		}
		w.Row(set.Name, strings.Join(texts, ", "))
	}
	w.Title("TRANSLATED", "IP", "CONNECTIONS", "BYTES")
	none := true
	for _, c := range s.Counters() {
		if c.Packets > 0 {
			none = false
			w.Row(c.Name, strings.TrimPrefix(c.Family, "ip"), c.Packets, daemon.Size(c.Bytes))
		}
	}
	if none {
		w.Row("none", " ", " ", " ")
	}
}

func (w statusWriter) userspace(s *tunlink.Status) {
	if s == nil {
		return
	}
	w.Title("SOCKET", "ADDRESS", "GRO", "GSO", "RECEIVED", "PER CALL", "SENT", "PER CALL", "ERRORS", "OVERRUNS", "BUFFER")
	for _, k := range s.Sockets {
		w.Row("geneve", k.Local, daemon.OnOff(k.GRO), daemon.OnOff(k.GSO), k.ReadDatagrams, daemon.Ratio(k.ReadDatagrams, k.Reads),
			k.WriteDatagrams, daemon.Ratio(k.WriteDatagrams, k.Writes), k.WriteErrors, k.Overruns, daemon.Size(uint64(k.ReadBuffer)))
	}
	w.Title("TUN DEVICE", "QUEUES", "OFFLOADS", "MAC", "GATEWAY'S", "SUPER-SEGMENTS OUT", "IN")
	shown, hidden := daemon.Shown(s.Tunnels, shownTunnels, w.all)
	for _, t := range shown {
		w.Row(t.Device, t.Queues, strings.Join(t.Offloads, ","), t.MAC, t.GatewayMAC, t.TxSupers, t.RxSupers)
		if t.Broken != "" {
			w.Line("  BROKEN: %s", t.Broken)
		}
	}
	w.More(hidden)
	w.Title("DROPS", "REASON", "PACKETS")
	none := true
	drops := func(of string, m map[string]uint64) {
		for _, reason := range slices.Sorted(maps.Keys(m)) {
			none = false
			w.Row(of, reason, m[reason])
		}
	}
	drops("no tunnel", s.Drops)
	for _, t := range s.Tunnels {
		drops(t.Device, t.Drops)
	}
	if none {
		w.Row("none", " ", " ")
	}
}

// drift shows what would have to be done for everything to be as it should be.
func (w statusWriter) drift(r report) {
	if len(r.Drift) > 0 {
		w.Title("DIFFERS FROM WHAT IS DESIRED")
		w.lines("", r.Drift)
	}
}
