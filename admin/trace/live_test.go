package trace

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/pcapng"
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
		want          string // the hop that it stops at, and why
		unknown       string
	}{
		{name: "all pass", protocol: tcp, local: all, remote: all},
		{name: "nobody sends", protocol: tcp, local: none, remote: none, unknown: "no such packet came here within 5s"},
		{name: "lost between gateways", protocol: tcp, local: first(3), remote: none, want: "remote translation: within 5s 6 such packets were seen at tunnel of the local gateway and none here"},
		{name: "not forwarded", protocol: tcp, local: first(2), remote: none, want: "local tunnel: within 5s 6 such packets were seen at translated of the local gateway and none here"},
		{name: "no answer", protocol: tcp, local: first(3), remote: first(3), want: "remote gateway: within 5s 6 such packets were seen at node of the remote gateway and no answer here"},
		{name: "UDP that nobody answers", protocol: 17, local: first(3), remote: first(3)},
		{name: "the answer is lost", protocol: tcp, local: first(3), remote: all, want: "local translation: within 5s 6 such packets were seen at tunnel of the remote gateway and none here"},
		{name: "dropped", protocol: tcp, local: first(1), remote: none, more: []seen{{"dropped", true, addr("10.243.1.5"), addr("10.71.2.20"), tcp, "DropFilter"}},
			want: "local gateway: the gateway has dropped 8 such packets within 5s: DropFilter"},
		{name: "dropped, and the gateway makes the reason up", protocol: tcp, local: first(1), remote: none, more: []seen{{"dropped", true, addr("10.243.1.5"), addr("10.71.2.20"), tcp, "\x1b[31mowned"}},
			want: "local gateway: the gateway has dropped 8 such packets within 5s: for a reason that this version does not know"},
		{name: "the remote gateway refuses", protocol: tcp, local: all, remote: none, failed: errors.New("three captures\nrun already"), unknown: "packets cannot be watched here: three captures run already"},
		{name: "one side, no answer", protocol: tcp, local: first(3), alone: true, remote: none, want: "local translation: within 5s 6 such packets were seen at tunnel of the local gateway and no answer here"},
		{name: "packets of others", protocol: tcp, local: none, remote: none, more: []seen{{"node", true, addr("10.243.1.6"), addr("10.71.2.20"), tcp, ""}}, unknown: "no such packet came here"},
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
				w.run(t.Context(), 5*time.Second)
				w.judge(way)
				got, unknown := "", ""
				if stop := way.Stop(); stop != nil {
					got = stop.Cluster + " " + stop.Kind + ": " + stop.Problem.Message
				}
				for _, h := range slices.Concat(way.There, way.Back) {
					if h.Unknown != "" && (h.Cluster == "local" || !tt.alone) {
						unknown += h.Unknown
					}
				}
				if got != tt.want || !strings.Contains(unknown, tt.unknown) || tt.unknown == "" && unknown != "" {
					t.Errorf("%q, unknown %q\nwant %q, %q", got, unknown, tt.want, tt.unknown)
				}
				if tt.name == "all pass" {
					var out bytes.Buffer
					if err := way.Write(&out); err != nil {
						t.Fatal(err)
					}
					compare(t, "testdata/live.txt", out.String())
				}
			})
		})
	}
}

// TestLiveStreams: a gateway that says nothing, and one that sends no capture.
func TestLiveStreams(t *testing.T) {
	for want, capture := range map[string]capturing{
		"it said nothing within 15s": func(ctx context.Context, _ []string, _ io.Writer) error { <-ctx.Done(); return nil },
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

// TestLiveFilter: what a gateway is asked for.
func TestLiveFilter(t *testing.T) {
	w := newWatch(Trace(world()), 443)
	want := "((src host 10.243.1.5 and dst host 10.71.2.20) or (src host 10.243.1.5 and dst host 10.243.2.20) or " +
		"(src host 10.243.2.20 and dst host 10.243.1.5) or (src host 10.71.2.20 and dst host 10.243.1.5)) and port 443"
	if diff := cmp.Diff(want, w.filter("local")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
