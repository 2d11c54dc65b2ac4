package e2e

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/lab"
)

// startLoad starts conversations between all pods and of what is no pod, of
// both families: every agent has some that it must not disturb.
func (w *fabricWorld) startLoad(t *testing.T) *load {
	t.Helper()
	for _, n := range w.nodes() {
		if !w.echoes[n] {
			serveEcho(w.testing, n.Pod)
			w.echoes[n] = true
		}
	}
	l := startLoad(t)
	echo := func(addr netip.Addr) netip.AddrPort { return netip.AddrPortFrom(addr, echoPort) }
	for _, p := range []struct{ from, to *lab.Node }{{w.A1, w.B1}, {w.A2, w.B2}, {w.B1, w.A2}, {w.B2, w.A1}} {
		c := w.clusterOf(p.from)
		l.add(t, "tcp", p.from.Pod, echo(c.Remote(p.to.PodAddr)))
		l.add(t, "tcp", p.from.Pod, echo(c.Remote(p.to.PodAddr6)))
		l.add(t, "udp", p.from.Pod, echo(c.Remote(p.to.PodAddr)))
		l.add(t, "tcp", p.from.Host, echo(c.Remote(p.to.PodAddr))) // a hostNetwork pod
	}
	return l
}

// testAgentRestart ends the agents, one after the other, in both ways, and
// starts them again. No connection may break; where the kernel has the tunnel,
// not one packet may be lost while there is no agent.
func testAgentRestart(t *testing.T, w *fabricWorld) {
	l := w.startLoad(t)
	begin := time.Now()
	before := overruns(w.world) // are nobody's fault
	for _, n := range w.nodes() {
		for _, signal := range []string{"SIGTERM", "SIGKILL"} {
			was := network(t, n, true)
			start := time.Now()
			if signal == "SIGTERM" {
				if took, err := w.agents[n].Stop(lab.Patience); err != nil {
					t.Errorf("%s: after %v: %v", n.Host.Name, took, err)
				}
			} else {
				_ = w.agents[n].Kill()
			}
			if w.kind != "tun" {
				time.Sleep(100 * time.Millisecond) // the time without an agent
			}
			ready := w.startAgent(n).Ready(lab.Patience)
			l.recovered(t)
			s := l.since(start, underWay)
			t.Logf("%s, %s: ready %v after the start; %v", n.Host.Name, signal, ready.Round(time.Millisecond), s)
			if len(s.broken) > 0 {
				t.Errorf("%s, %s: %v", n.Host.Name, signal, s.broken)
			}
			if diff := cmp.Diff(was, network(t, n, true)); diff != "" {
				t.Errorf("%s, %s: the restart changes (-before +after)\n%s", n.Host.Name, signal, diff)
			}
		}
	}
	limit := longest
	if w.kind == "tun" { // some are lost
		limit = underWay
	}
	s := l.since(begin, limit)
	t.Logf("all restarts: %v", s)
	if kernel := int(overruns(w.world) - before); w.kind != "tun" && s.lost > kernel {
		t.Errorf("%d datagrams lost (%d socket overruns at the gateways)", s.lost, kernel)
	}
}

// tampering is what somebody else may do to what the agent made. The other
// remote is the router: for one that does not answer ARP the kernel holds on to
// segments of its own TCP for three seconds, whatever happens to the tunnel.
var tampering = []struct {
	name    string
	kinds   []string // none: all
	command string
}{
	{"the link is deleted", nil, "ip link del " + tunnelLink},
	{"the link is set down", nil, "ip link set " + tunnelLink + " down"},
	{"another MTU", nil, "ip link set " + tunnelLink + " mtu 900"},
	{"another remote", []string{"vxlan", "geneve"}, "ip link set " + tunnelLink + " type KIND id VNI remote 172.30.0.250"},
	{"addresses flushed", nil, "ip addr flush dev " + tunnelLink},
	{"routes flushed", nil, "ip route flush table 6091"},
	{"IPv6 routes flushed", nil, "ip -6 route flush table 6091"},
	{"one route more", nil, "ip route add 203.0.113.0/24 dev " + tunnelLink + " table 6091 proto 92"},
	{"the rule is deleted", nil, "ip rule del priority 600"},
	{"the nftables table is flushed", nil, "nft flush table inet sluice-fabric"},
	{"the nftables table is deleted", nil, "nft delete table inet sluice-fabric"},
}

// testTampering destroys what the agent made, in all ways. It comes back, and
// no connection breaks.
func testTampering(t *testing.T, w *fabricWorld) {
	l := w.startLoad(t)
	n := w.A1
	want := network(t, n, false)
	for _, c := range tampering {
		if len(c.kinds) > 0 && !slices.Contains(c.kinds, w.kind) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			command := strings.NewReplacer("KIND", w.kind, "VNI", "101").Replace(c.command)
			start := time.Now()
			n.Host.Run(strings.Fields(command)...)
			var diff string
			deadline := start.Add(lab.Patience)
			for {
				if diff = cmp.Diff(want, network(t, n, false)); diff == "" || time.Now().After(deadline) {
					break
				}
			}
			repaired := time.Since(start)
			if diff != "" {
				t.Errorf("not repaired within %v (-want +got)\n%s", repaired.Round(time.Millisecond), diff)
			}
			l.recovered(t)
			s := l.since(start, underWay)
			t.Logf("seen as before after %v; %v", repaired.Round(time.Millisecond), s)
			if len(s.broken) > 0 {
				t.Errorf("connections broke: %v", s.broken)
			}
		})
	}
	// Everything flows again.
	start := time.Now()
	time.Sleep(200 * time.Millisecond)
	if s := l.since(start, longest); s.lost > 0 || len(s.broken) > 0 {
		t.Errorf("after all: %v", s)
	}
}

var queues = regexp.MustCompile(`"numqueues":[0-9]+,`)

// withoutCarrier is a network without what the end of a program does to its TUN
// device: the kernel says that there is no carrier.
func withoutCarrier(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		for _, state := range []string{`,"NO-CARRIER"`, `"NO-CARRIER",`, `"linkdown",`, `"linkdown"`, `,"LOWER_UP"`} {
			line = strings.ReplaceAll(line, state, "")
		}
		line = strings.ReplaceAll(line, `"operstate":"DOWN"`, `"operstate":"UNKNOWN"`)
		line = strings.ReplaceAll(line, `"operstate":"UP"`, `"operstate":"UNKNOWN"`)
		out[i] = queues.ReplaceAllString(line, "")
	}
	slices.Sort(out)
	return out
}
