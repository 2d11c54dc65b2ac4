package trace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/pcapng"
	"github.com/sluice-net/sluice/test/golden"
)

// seen is a packet as a gateway captures it.
type seen struct {
	point    string
	outbound bool
	src, dst netip.Addr
	protocol byte
	reason   string
}

// gatewayOf stands for a gateway's pod: it sends the file of a capture with some packets
// every 600 ms, until it is to end.
func gatewayOf(packets ...seen) capturing {
	return func(ctx context.Context, argv []string, to io.Writer) error {
		names := []string{"node", "translated", "tunnel", "dropped", "node:rome-1"}
		b := pcapng.AppendSection(nil, "test", "")
		for i, name := range names {
			link := pcapng.RawIP
			if i%4 == 0 {
				link = pcapng.Ethernet
			}
			b = pcapng.AppendInterface(b, pcapng.Interface{Name: name, Link: link})
		}
		if _, err := to.Write(b); err != nil {
			return err
		}
		for {
			select {
			case <-ctx.Done():
				_, err := to.Write(pcapng.AppendStatistics(nil, pcapng.Statistics{Stop: 1, Comment: "interrupted"}))
				return err
			case <-time.After(600 * time.Millisecond):
			}
			for _, p := range packets {
				data := make([]byte, 40)
				data[0], data[9] = 0x45, p.protocol
				copy(data[12:], p.src.AsSlice())
				copy(data[16:], p.dst.AsSlice())
				number := slices.Index(names, p.point)
				if p.point == "node" {
					number = 4
					data = append(binary.BigEndian.AppendUint16(make([]byte, 12), 0x0800), data...)
				}
				q := pcapng.Packet{Interface: uint32(number), Data: data, Length: 1000, Direction: pcapng.Inbound, Comment: p.reason}
				if p.outbound {
					q.Direction = pcapng.Outbound
				}
				if _, err := to.Write(pcapng.AppendPacket(nil, &q)); err != nil {
					return err
				}
			}
		}
	}
}

// nodeOf stands for an agent: it tells every 250 ms what has passed, 20 packets in all. Of each letter of
// seen such packets pass: P and p between pod and node, L and l between node and link; the
// capital ones come from the pod.
func nodeOf(seen string, protocol byte) *node {
	return &node{link: "liqo.x", capture: func(ctx context.Context, argv []string, to io.Writer) error {
		for n := 0; ; n = min(n+2, 20) {
			var all []string
			for _, c := range seen {
				udp := 0
				if protocol == 17 {
					udp = n
				}
				point := map[bool]string{true: "pod", false: "link"}[strings.ContainsRune("Pp", c)]
				all = append(all, fmt.Sprintf(`{"point":%q,"outbound":%t,"packets":%d,"udp":%d}`, point, strings.ContainsRune("PL", c), n, udp))
			}
			all = append(all, `{"point":"tunnel","outbound":true,"packets":1000}`, `{"point":"nowhere"}`) // nobody has asked for these
			if _, err := fmt.Fprintf(to, "{\"passed\":[%s]}\n", strings.Join(all, ",")); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(250 * time.Millisecond):
			}
		}
	}}
}

const tcp = 6

// passing are the packets of world at all points: those of the local gateway and those of
// the remote one, and likewise of the answer.
func passing(protocol byte) (local, remote []seen) {
	client, web := addr("10.243.1.5"), addr("10.243.2.20")
	webHere, clientThere := addr("10.71.2.20"), addr("10.81.1.5")
	local = []seen{
		{"node", true, client, webHere, protocol, ""}, {"translated", true, client, web, protocol, ""}, {"tunnel", true, client, web, protocol, ""},
		{"tunnel", false, web, client, protocol, ""}, {"translated", false, webHere, client, protocol, ""}, {"node", false, webHere, client, protocol, ""},
	}
	remote = []seen{
		{"tunnel", false, client, web, protocol, ""}, {"translated", false, clientThere, web, protocol, ""}, {"node", false, clientThere, web, protocol, ""},
		{"node", true, web, clientThere, protocol, ""}, {"translated", true, web, client, protocol, ""}, {"tunnel", true, web, client, protocol, ""},
	}
	return local, remote
}

func failing(text string) *node {
	return &node{link: "liqo.x", capture: func(context.Context, []string, io.Writer) error { return errors.New(text) }}
}

// TestLive: packets are seen from point to point; where they stop the trace does.
func TestLive(t *testing.T) {
	none := func([]seen) []seen { return nil }
	all := func(s []seen) []seen { return s }
	first := func(n int) func([]seen) []seen { return func(s []seen) []seen { return s[:n] } }
	for _, tt := range []struct {
		name          string
		protocol      byte
		local, remote func([]seen) []seen
		more          []seen // of the local gateway
		failed        error  // of the remote capture
		alone         bool   // nobody looks into the remote cluster
		nodes         [2]*node
		nobody        string // why the first node that was not counted was not
		want          string // the hop that it stops at, and why
		unknown       string
	}{
		{name: "all pass", protocol: tcp, local: all, remote: all},
		{name: "nobody sends", protocol: tcp, local: none, remote: none, unknown: "no matching packet arrived here within 5s"},
		{name: "lost between gateways", protocol: tcp, local: first(3), remote: none, want: "remote translation: within 5s, 6 matching packets were seen at point tunnel of the local gateway but none here"},
		{name: "not forwarded", protocol: tcp, local: first(2), remote: none, want: "local tunnel: within 5s, 6 matching packets were seen at point translated of the local gateway but none here"},
		{name: "no answer", protocol: tcp, local: first(3), remote: first(3), want: "remote gateway: within 5s, 6 matching packets were seen at point node of the remote gateway but no answer here"},
		{name: "UDP that nobody answers", protocol: 17, local: first(3), remote: first(3)},
		{name: "the answer is lost", protocol: tcp, local: first(3), remote: all, want: "local translation: within 5s, 6 matching packets were seen at point tunnel of the remote gateway but none here"},
		{name: "dropped", protocol: tcp, local: first(1), remote: none, more: []seen{{"dropped", true, addr("10.243.1.5"), addr("10.71.2.20"), tcp, "DropFilter"}},
			want: "local gateway: the gateway dropped 8 matching packets within 5s: DropFilter"},
		{name: "dropped, and the gateway makes the reason up", protocol: tcp, local: first(1), remote: none, more: []seen{{"dropped", true, addr("10.243.1.5"), addr("10.71.2.20"), tcp, "\x1b[31mowned"}},
			want: "local gateway: the gateway dropped 8 matching packets within 5s: a reason that this version does not know"},
		{name: "the remote gateway refuses", protocol: tcp, local: all, remote: none, failed: errors.New("three captures\nrun already"), unknown: "packets cannot be watched here: three captures run already"},
		{name: "one side, no answer", protocol: tcp, local: first(3), alone: true, remote: none, want: "local translation: within 5s, 6 matching packets were seen at point tunnel of the local gateway but no answer here"},
		{name: "nodes: all pass", protocol: tcp, local: all, remote: all, nodes: [2]*node{nodeOf("PLlp", tcp), nodeOf("lpPL", tcp)}},
		{name: "nodes: nobody sends", protocol: tcp, local: none, remote: none, nodes: [2]*node{nodeOf("", tcp), nodeOf("", tcp)}, unknown: "no matching packet arrived here within 5s"},
		{name: "nodes: not into the link", protocol: tcp, local: none, remote: none, nodes: [2]*node{nodeOf("P", tcp), nodeOf("", tcp)},
			want: "local node: within 5s, N matching packets were seen at point pod of the local node but none here"},
		{name: "nodes: lost before the gateway", protocol: tcp, local: none, remote: none, nodes: [2]*node{nodeOf("PL", tcp), nodeOf("", tcp)},
			want: "local gateway: within 5s, N matching packets were seen at point link of the local node but none here"},
		{name: "nodes: lost behind the gateway", protocol: tcp, local: first(3), remote: first(3), nodes: [2]*node{nodeOf("PL", tcp), nodeOf("", tcp)},
			want: "remote node: within 5s, 6 matching packets were seen at point node of the remote gateway but none here"},
		{name: "nodes: not to the pod", protocol: tcp, local: first(3), remote: first(3), nodes: [2]*node{nodeOf("PL", tcp), nodeOf("l", tcp)},
			want: "remote node: within 5s, N matching packets were seen at point link of the remote node but none here"},
		{name: "nodes: the pod does not answer", protocol: tcp, local: first(3), remote: first(3), nodes: [2]*node{nodeOf("PL", tcp), nodeOf("lp", tcp)},
			want: "remote node: within 5s, N matching packets were seen at point pod of the remote node but no answer here"},
		{name: "nodes: UDP that nobody answers", protocol: 17, local: first(3), remote: first(3), nodes: [2]*node{nodeOf("PL", 17), nodeOf("lp", 17)}},
		{name: "nodes: the answer is lost before the gateway", protocol: tcp, local: first(3), remote: first(3), nodes: [2]*node{nodeOf("PL", tcp), nodeOf("lpPL", tcp)},
			want: "remote gateway: within 5s, N matching packets were seen at point link of the remote node but none here"},
		{name: "nodes: the answer is lost at the first node", protocol: tcp, local: all, remote: all, nodes: [2]*node{nodeOf("PLl", tcp), nodeOf("lpPL", tcp)},
			want: "local node: within 5s, N matching packets were seen at point link of the local node but none here"},
		{name: "nodes: eBPF passes packets on", protocol: tcp, local: all, remote: all, nodes: [2]*node{nodeOf("llp", tcp), nodeOf("lPL", tcp)}, nobody: "packets take a path through the node that its kernel does not count, such as eBPF programs of the CNI"},
		{name: "nodes: an old agent", protocol: tcp, local: first(3), remote: none, nodes: [2]*node{failing(`fabric: unknown command "count"; the commands are: status, cleanup`), nodeOf("", tcp)},
			want: "remote translation: within 5s, 6 matching packets were seen at point tunnel of the local gateway but none here", nobody: "the version of its agent cannot count packets"},
		{name: "nodes: one that gives up", protocol: tcp, local: all, remote: all, nodes: [2]*node{{link: "liqo.x", capture: func(_ context.Context, _ []string, to io.Writer) error {
			_, err := io.WriteString(to, `{"passed":[{"point":"pod","outbound":true,"packets":9}]}`+"\n")
			return err
		}}, nodeOf("lpPL", tcp)}, nobody: errShort.Error()},
		{name: "nodes: one that talks nonsense", protocol: tcp, local: all, remote: all, nodes: [2]*node{{link: "liqo.x", capture: func(_ context.Context, _ []string, to io.Writer) error {
			_, err := to.Write(bytes.Repeat([]byte("x"), maxLine+1))
			return err
		}}, nodeOf("lpPL", tcp)}, nobody: errNoNumbers.Error()},
		{name: "nodes: one that says nothing", protocol: tcp, local: all, remote: all, nodes: [2]*node{{link: "liqo.x", capture: func(ctx context.Context, _ []string, _ io.Writer) error {
			<-ctx.Done()
			return nil
		}}, nodeOf("lpPL", tcp)}, nobody: "its agent did not answer within 10s"},
		{name: "nodes: one that cannot be asked", protocol: tcp, local: first(1), remote: none, nodes: [2]*node{{failed: "the pod uses the node's own address"}, nodeOf("", tcp)},
			want: "local translation: within 5s, 6 matching packets were seen at point node of the local gateway but none here", nobody: "the pod uses the node's own address"},
		{name: "packets of others", protocol: tcp, local: none, remote: none, more: []seen{{"node", true, addr("10.243.1.6"), addr("10.71.2.20"), tcp, ""}}, unknown: "no matching packet arrived here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := world()
				if tt.alone {
					f.Remote = nil
				}
				way := Trace(f)
				w := newWatch(way, 443)
				local, remote := passing(tt.protocol)
				w.gateways["local"] = gatewayOf(append(tt.local(local), tt.more...)...)
				if !tt.alone {
					w.gateways["remote"] = gatewayOf(tt.remote(remote)...)
				}
				if tt.failed != nil {
					w.gateways["remote"] = func(context.Context, []string, io.Writer) error { return tt.failed }
				}
				if tt.nodes[0] != nil {
					w.nodes["local"], w.nodes["remote"] = tt.nodes[0], tt.nodes[1]
				}
				w.run(t.Context(), 5*time.Second)
				w.judge(way)
				got, unknown, nobody := "", "", ""
				if stop := way.Stop(); stop != nil {
					got = stop.Cluster + " " + stop.Kind + ": " + stop.Problem.Message
				}
				for _, h := range slices.Concat(way.There, way.Back) {
					if tt.nodes[0] != nil {
						nobody = cmp.Or(nobody, h.NotCounted)
					}
					if h.Unknown != "" && (h.Cluster == "local" || !tt.alone) {
						unknown += h.Unknown
					}
				}
				if tt.nodes[0] != nil { // how many of them could be seen everywhere depends on who begins first
					got = regexp.MustCompile(`within 5s, (?:1\d|20) matching packets were seen at point (pod|link)`).ReplaceAllString(got, "within 5s, N matching packets were seen at point $1")
				}
				if got != tt.want || !strings.Contains(unknown, tt.unknown) || tt.unknown == "" && unknown != "" {
					t.Errorf("%q, unknown %q\nwant %q, %q", got, unknown, tt.want, tt.unknown)
				}
				if nobody != tt.nobody {
					t.Errorf("not counted: %q, want %q", nobody, tt.nobody)
				}
				if file := map[string]string{"nodes: all pass": "live.txt", "nodes: an old agent": "live-old.txt"}[tt.name]; file != "" {
					var out bytes.Buffer
					if err := way.Write(&out); err != nil {
						t.Fatal(err)
					}
					golden.Compare(t, "testdata/"+file, out.String())
				}
			})
		})
	}
}

// TestLiveStreams: a gateway that says nothing, and one that sends no capture.
func TestLiveStreams(t *testing.T) {
	for want, capture := range map[string]capturing{
		"it did not answer within 15s": func(ctx context.Context, _ []string, _ io.Writer) error { <-ctx.Done(); return nil },
		pcapng.ErrNoCapture.Error(): func(_ context.Context, _ []string, to io.Writer) error {
			_, err := to.Write(make([]byte, 100))
			return err
		},
		"pods/exec is forbidden here": func(context.Context, []string, io.Writer) error { return errors.New("pods/exec is forbidden here") },
	} {
		synctest.Test(t, func(t *testing.T) {
			way := Trace(world())
			w := newWatch(way, 0)
			w.gateways["local"] = capture
			w.run(t.Context(), 5*time.Second)
			w.judge(way)
			if got := way.There[2].Unknown; !strings.Contains(got, want) || way.Stop() != nil {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestLiveNode: what an agent is asked for, at both ends.
func TestLiveNode(t *testing.T) {
	f := world()
	way := Trace(f)
	for cluster, want := range map[string]string{
		"local":  "fabric count --until-eof --link=liqo.milan --pod=10.243.1.5 --peer=10.71.2.20 --port=443 --duration=5s",
		"remote": "fabric count --until-eof --link=liqo.rome --pod=10.243.2.20 --peer=10.81.1.5 --port=443 --duration=5s",
	} {
		side, end := &f.Local, &f.From
		if cluster == "remote" {
			side, end = f.Remote, f.Remote.Target
		}
		link, _, why := side.counting(end)
		n := &node{link: link}
		if ok := n.aim(newWatch(way, 443).stages, cluster); why != "" || !ok || strings.Join(n.argv(443, 5*time.Second), " ") != want {
			t.Errorf("%s, %t: %q, want %q", why, ok, n.argv(443, 5*time.Second), want)
		}
	}
	for want, change := range map[string]func(*Side, *Pod){
		"the pod uses the node's own address": func(_ *Side, p *Pod) { p.HostNetwork = true },
		"the node's agent cannot be queried":  func(s *Side, _ *Pod) { s.Agents = nil },
		"the node has no link to the gateway": func(s *Side, _ *Pod) { s.Agents["rome-1"].Report.Tunnels = nil },
		"the pod's node is not known":         func(_ *Side, p *Pod) { p.Node = "" },
	} {
		f := world()
		change(&f.Local, &f.From)
		if _, _, why := f.Local.counting(&f.From); why != want {
			t.Errorf("%q, want %q", why, want)
		}
	}
}

// FuzzNumbers: an agent may say anything, in pieces of any size.
func FuzzNumbers(f *testing.F) {
	f.Add([]byte(`{"passed":[{"point":"pod","outbound":true,"packets":9,"udp":4}]}`+"\n"+`{"passed":[{"point":"pod","outbound":true,"packets":3,"udp":7}]}`+"\n"), uint8(7))
	f.Add([]byte(`{"passed":[{"point":"link","packets":18446744073709551615},{"point":"tunnel","outbound":true,"packets":1}]}`+"\n{}\n"), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		w := newWatch(Trace(world()), 0)
		n := &node{link: "liqo.x"}
		n.aim(w.stages, "local")
		w.nodes["local"], w.counting, w.waiting = n, true, 1
		to := &numbers{watch: w, cluster: "local", node: n}
		for piece := range slices.Chunk(text, int(size)+1) {
			if _, err := to.Write(piece); err != nil {
				break
			}
		}
		if len(to.partial) > maxLine+1+int(size) {
			t.Errorf("%d bytes are kept", len(to.partial))
		}
		for at, tally := range w.tallies {
			if tally.due > tally.packets || tally.asking > tally.due || tally.packets > 0 && (!at.watcher().node || at.cluster != "local") {
				t.Errorf("%+v: %+v", at, tally)
			}
		}
	})
}

// TestLiveFilter: what a gateway is asked for.
func TestLiveFilter(t *testing.T) {
	w := newWatch(Trace(world()), 443)
	want := "((src host 10.243.1.5 and dst host 10.71.2.20) or (src host 10.243.1.5 and dst host 10.243.2.20) or " +
		"(src host 10.243.2.20 and dst host 10.243.1.5) or (src host 10.71.2.20 and dst host 10.243.1.5)) and port 443"
	if diff := gocmp.Diff(want, w.filter("local")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
