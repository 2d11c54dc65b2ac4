package dataplane_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/capture"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

// startCapture captures whole packets at points until the test ends.
func startCapture(tb testing.TB, f *dataplane.Forwarder, ring int, points ...capture.Point) (c *capture.Capture, stop func()) {
	tb.Helper()
	c, err := capture.New(capture.Config{Points: capture.PointSet(points...), Ring: ring})
	if err != nil {
		tb.Fatal(err)
	}
	stop, err = f.Capture(c)
	if err != nil {
		tb.Fatal(err)
	}
	return c, stop
}

// captured is a packet that was captured, for comparing.
type captured struct {
	Point  capture.Point
	Egress bool
	Link   capture.Link
	Node   string
	VNI    uint32
	Reason string
	Data   string // in hexadecimal
}

// drain returns what was captured, without the markers of harness.egress.
func drain(c *capture.Capture) (out []captured) {
	for r, ok := c.Next(); ok; r, ok = c.Next() {
		if strings.Contains(string(r.Data), marker) {
			continue
		}
		out = append(out, captured{r.Point, r.Egress, r.Link, string(r.Node), r.VNI, string(r.Reason), hex.EncodeToString(r.Data)})
	}
	return out
}

// marker are the ports of harness.egress's last packet.
const marker = "\x10\x92\x10\x92"

var allPoints = []capture.Point{capture.Node, capture.Translated, capture.Tunnel, capture.Wire, capture.Dropped}

// TestCaptureEgress: what a node sends is seen as it came, as it leaves the translation,
// or with the reason for which it does not.
func TestCaptureEgress(t *testing.T) {
	node0 := captured{Point: capture.Node, Egress: true, Link: capture.Ethernet, Node: "node-0", VNI: 7}
	translated := captured{Point: capture.Translated, Egress: true}
	for name, tt := range map[string]struct {
		ip     []byte
		reason string // empty: forwarded
	}{
		"udp":           {ip: udp(localPod, 1, remoteInside, 2, "hello")},
		"ipv6":          {ip: udp(localPod6, 1, remoteInside6, 2, "hello")},
		"super-segment": {ip: superSegment(20000)},
		"fragmented":    {ip: udpOf(localPod, remoteInside, 4000)},
		"no mapping":    {ip: udp(localPod, 1, netip.MustParseAddr("8.8.8.8"), 2, ""), reason: "DropNoMapping"},
		"spoofed":       {ip: udp(netip.MustParseAddr("8.8.8.8"), 1, remoteInside, 2, ""), reason: "DropSpoofedSource"},
		"malformed":     {ip: []byte{0x45, 0, 0}, reason: "DropMalformed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			c, stop := startCapture(t, h.forwarder, 1<<20, allPoints...)
			defer stop()
			h.ipFromNode(0, tt.ip)
			et := neighbor.EtherTypeIPv4
			if tt.ip[0]>>4 == 6 {
				et = neighbor.EtherTypeIPv6
			}
			sent := hex.EncodeToString(frame(h.nodeMACs[0], h.nodeMACs[0], et, tt.ip))
			out := h.egress()
			first, second := node0, translated
			first.Data = sent
			if tt.reason != "" {
				second = first
				second.Point, second.Reason, second.Data = capture.Dropped, tt.reason, sent
			}
			got := drain(c)
			if len(got) != 2 {
				t.Fatalf("captured %+v", got)
			}
			if len(out) == 1 {
				second.Data = hex.EncodeToString(out[0])
			} else if tt.reason == "" { // compared by length: it was cut
				second.Data = got[1].Data
				if len(second.Data) != 2*len(tt.ip) || len(out) < 2 {
					t.Errorf("translated has %d bytes, came with %d, left as %d packets", len(second.Data)/2, len(tt.ip), len(out))
				}
			}
			if diff := cmp.Diff([]captured{first, second}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestCaptureIngress: what comes from the peer is seen as it leaves the translation
// and as the node gets it.
func TestCaptureIngress(t *testing.T) {
	h := newHarness(t, nil)
	c, stop := startCapture(t, h.forwarder, 1<<20, allPoints...)
	defer stop()
	h.ingress(udp(remoteOutside, 1, localPod, 2, "hello"), udp(remoteOutside6, 1, localPod6, 2, "hello"))
	stranger := udp(netip.MustParseAddr("8.8.8.8"), 1, localPod, 2, "")
	h.ingress(stranger)
	var want []captured
	for _, e := range h.atNode(0) {
		want = append(want, captured{Point: capture.Translated, Data: hex.EncodeToString(e.ip())})
	}
	for _, e := range slices.Clone(want) {
		et := neighbor.EtherTypeIPv4
		if e.Data[0] == '6' {
			et = neighbor.EtherTypeIPv6
		}
		want = append(want, captured{Point: capture.Node, Link: capture.Ethernet, Node: "node-0", VNI: 7,
			Data: hex.EncodeToString(frame(h.nodeMACs[0], h.gatewayID, et, nil)) + e.Data})
	}
	want = append(want, captured{Point: capture.Dropped, Reason: "DropSpoofedSource", Data: hex.EncodeToString(stranger)})
	if diff := cmp.Diff(want, drain(c)); diff != "" || len(want) != 5 {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCaptureStranger: a datagram that belongs to no node is seen with its outer
// addresses, and only among what is dropped.
func TestCaptureStranger(t *testing.T) {
	h := newHarness(t, nil)
	c, stop := startCapture(t, h.forwarder, 1<<20, capture.Node, capture.Dropped)
	defer stop()
	b := inGeneve(7, frame(h.nodeMACs[0], h.nodeMACs[0], neighbor.EtherTypeIPv4, udp(localPod, 1, remoteInside, 2, "")))
	h.datagram(h.network.Listen(strangerUDP), b)
	h.datagram(h.nodes[0], []byte("no header"))
	h.egress()
	got := drain(c)
	if len(got) != 2 || got[0].Reason != "DropUnknownNode" || got[1].Reason != "DropEncapsulation" {
		t.Fatalf("captured %+v", got)
	}
	for i, src := range []netip.AddrPort{strangerUDP, nodeAddrs[0]} {
		data, _ := hex.DecodeString(got[i].Data)
		p, ok := packet.Parse(data)
		if !ok {
			t.Fatalf("no packet: %x", data)
		}
		sport, dport := p.Ports()
		if p.Src() != src.Addr() || sport != src.Port() || netip.AddrPortFrom(p.Dst(), dport) != gatewayAddr {
			t.Errorf("outer header %s", describe(data))
		}
	}
}

// TestCaptureEncapsulations: what nodes without Ethernet send are IP packets; ARP is
// seen in both directions.
func TestCaptureEncapsulations(t *testing.T) {
	h := newHarness(t, nil)
	c, stop := startCapture(t, h.forwarder, 1<<20, capture.Node)
	defer stop()
	h.resolve(0)
	ip := udp(localPod, 1, remoteInside, 2, "hello")
	h.datagram(h.nodes[0], packettest.Geneve(7, neighbor.EtherTypeIPv4, ip))
	h.egress()
	got := drain(c)
	if len(got) != 3 || got[0].Link != capture.Ethernet || !got[0].Egress || got[1].Link != capture.Ethernet || got[1].Egress ||
		got[0].Data[24:28] != "0806" || got[1].Data[24:28] != "0806" {
		t.Fatalf("ARP: %+v", got)
	}
	want := captured{Point: capture.Node, Egress: true, Link: capture.IP, Node: "node-0", VNI: 7, Data: hex.EncodeToString(ip)}
	if diff := cmp.Diff(want, got[2]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCaptureStops: nobody is shown anything afterwards, and there is no third.
func TestCaptureStops(t *testing.T) {
	h := newHarness(t, nil)
	c, stop := startCapture(t, h.forwarder, 1<<20, capture.Node)
	_, stopOther := startCapture(t, h.forwarder, 1<<20, capture.Wire)
	third, err := capture.New(capture.Config{Points: 1, Ring: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.forwarder.Capture(third); err != capture.ErrTooMany {
		t.Errorf("the third: %v", err)
	}
	stop()
	stopOther()
	h.ipFromNode(0, udp(localPod, 1, remoteInside, 2, "hello"))
	h.egress()
	if got := drain(c); len(got) > 0 {
		t.Errorf("captured %+v", got)
	}
	if got := h.forwarder.Status().Captures; got != (capture.Status{Started: 2}) {
		t.Errorf("status %+v", got)
	}
}

func TestCaptureAllocatesNothing(t *testing.T) {
	r := newReplay(t, nil)
	r.load(superSegment(20000), udpOf(localPod, remoteInside, 64), udpOf(localPod6, remoteInside6, 64), udpOf(netip.MustParseAddr("8.8.8.8"), remoteInside, 64))
	write := r.ingressBatch(udpOf(remoteOutside, localPod, 64), udpOf(remoteOutside6, localPod6, 1300), udpOf(remoteOutside, netip.MustParseAddr("8.8.8.8"), 64))
	c, stop := startCapture(t, r.forwarder, 1<<20, allPoints...)
	defer stop()
	n := 0
	checkAllocations(t, testing.AllocsPerRun(200, func() {
		r.egress()
		write()
		for _, ok := c.Next(); ok; _, ok = c.Next() {
			n++
		}
	}))
	if n < 200*13 {
		t.Errorf("only %d packets were captured", n)
	}
}

// passed counts what was seen somewhere, by what it looked like.
type passed map[string]int

func (p passed) add(direction string, b []byte) {
	sum := sha256.Sum256(b)
	p[fmt.Sprintf("%s %d bytes %x", direction, len(b), sum[:8])]++
}

// TestCapturedIsWhatPassed lets pods talk and captures at every point of both
// gateways. What was captured is what went over the network, in the tunnel each
// sees what the other does, and nothing is missing.
func TestCapturedIsWhatPassed(t *testing.T) {
	f, a0, a1, b0 := newFabric(t)
	wan := [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	gateways := [2]*dataplanetest.Cluster{f.A, f.B}

	const ring = 64 << 20
	var captures [2]*capture.Capture
	var mu sync.Mutex
	network := [2]map[capture.Point]passed{}
	for i, c := range gateways {
		captures[i], _ = startCapture(t, c.Gateway, ring, allPoints...)
		network[i] = map[capture.Point]passed{capture.Node: {}, capture.Wire: {}}
	}
	f.Network.Impair(func(src, dst netip.AddrPort, b []byte) dataplanetest.Fate {
		mu.Lock()
		defer mu.Unlock()
		for i, c := range gateways {
			switch {
			case src.Addr() == wan[i]:
				network[i][capture.Wire].add("out", b)
			case dst.Addr() == wan[i]:
				network[i][capture.Wire].add("in", b)
			case src == c.GatewayAddr:
				_, inner, _ := geneve.Decode(b)
				network[i][capture.Node].add("in", inner)
			case dst == c.GatewayAddr:
				_, inner, _ := geneve.Decode(b)
				network[i][capture.Node].add("out", inner)
			}
		}
		return dataplanetest.Fate{}
	})
	server := dataplanetest.Through(dataplanetest.RemappedB, dataplanetest.PodAddr(0, 0))
	for i, pod := range []*netstack.Stack{a0, a1} {
		from := dataplanetest.Through(dataplanetest.RemappedA, dataplanetest.PodAddr(i, 0))
		port := uint16(8000 + i)
		transfer(t, pod, b0, netip.AddrPortFrom(server, port), netip.AddrPortFrom(dataplanetest.PodAddr(0, 0), port), from, 1<<20)
	}
	settle(t, func() (n uint64) {
		mu.Lock()
		defer mu.Unlock()
		for _, points := range network {
			for _, p := range points {
				for _, times := range p {
					n += uint64(times)
				}
			}
		}
		return n
	}, func() (n uint64) {
		for _, c := range captures {
			for _, p := range []capture.Point{capture.Node, capture.Wire} {
				k := c.Counts(p)
				n += k.Matched - k.Lost
			}
		}
		return n
	})

	seen := [2]map[capture.Point]passed{}
	for i, c := range captures {
		seen[i] = map[capture.Point]passed{}
		for _, p := range allPoints {
			seen[i][p] = passed{}
			if n := c.Counts(p); n.Lost > 0 {
				t.Errorf("%d packets are lost at %s", n.Lost, p)
			}
		}
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			data, direction := r.Data, "in"
			if r.Egress {
				direction = "out"
			}
			if r.Point == capture.Wire { // without the headers that are ours
				data = data[packet.IPv4HeaderLen+packet.UDPHeaderLen:]
			}
			seen[i][r.Point].add(direction, data)
		}
		for _, p := range []capture.Point{capture.Node, capture.Wire} {
			if diff := cmp.Diff(network[i][p], seen[i][p]); diff != "" {
				t.Errorf("gateway %d, %s: -network +captured:\n%s", i, p, diff)
			}
		}
		if len(seen[i][capture.Translated]) < 100 || len(seen[i][capture.Dropped]) > 0 {
			t.Errorf("gateway %d: %d packets are translated, dropped are %v", i, len(seen[i][capture.Translated]), seen[i][capture.Dropped])
		}
	}
	if diff := cmp.Diff(turned(seen[0][capture.Tunnel]), seen[1][capture.Tunnel]); diff != "" {
		t.Errorf("in the tunnel: -a, turned around +b:\n%s", diff)
	}
}

// turned is what the other end sees.
func turned(p passed) passed {
	out := passed{}
	for k, n := range p {
		if rest, ok := strings.CutPrefix(k, "out"); ok {
			out["in"+rest] = n
		} else {
			out["out"+strings.TrimPrefix(k, "in")] = n
		}
	}
	return out
}

// settle waits until nothing is under way: what has passed the network was captured, and
// nothing follows.
func settle(t *testing.T, passed func() uint64, captured func() uint64) {
	t.Helper()
	ctx := testContext(t, patience)
	last := uint64(0)
	for quiet := 0; quiet < 3; {
		now := captured()
		if quiet++; now != last || passed() != now {
			quiet, last = 0, now
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it does not settle: %d have passed, %d are captured", passed(), now)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestCaptureComesAndGoes starts and stops captures under traffic.
func TestCaptureComesAndGoes(t *testing.T) {
	f, a0, _, b0 := newFabric(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	counts := make([]int, 2)
	for i := range counts {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, stop := startCapture(t, f.A.Gateway, capture.MinRing, allPoints...)
				for range 20 {
					for _, ok := c.Next(); ok; _, ok = c.Next() {
						counts[i]++
					}
					time.Sleep(100 * time.Microsecond)
				}
				stop()
			}
		})
	}
	server := dataplanetest.Through(dataplanetest.RemappedB, dataplanetest.PodAddr(0, 0))
	transfer(t, a0, b0, netip.AddrPortFrom(server, 8000), netip.AddrPortFrom(dataplanetest.PodAddr(0, 0), 8000),
		dataplanetest.Through(dataplanetest.RemappedA, dataplanetest.PodAddr(0, 0)), 8<<20)
	cancel()
	wg.Wait()
	if slices.Contains(counts, 0) {
		t.Errorf("captured %v packets", counts)
	}
	if got := f.A.Gateway.Status().Captures; got.Running != 0 || got.Started < 2 {
		t.Errorf("%+v", got)
	}
	t.Logf("captured %v packets in %d captures", counts, f.A.Gateway.Status().Captures.Started)
}

// BenchmarkCapture measures what a capture adds to a packet; "off" is the same without
// one.
func BenchmarkCapture(b *testing.B) {
	for _, bb := range []struct {
		name    string
		snaplen int
		points  []capture.Point
	}{
		{"off", 0, nil},
		{"node/snaplen=256", 256, []capture.Point{capture.Node}},
		{"node/whole", 0, []capture.Point{capture.Node}},
		{"all/snaplen=256", 256, allPoints},
	} {
		b.Run("egress/"+bb.name, func(b *testing.B) {
			r := newReplay(b, oneNode)
			r.load(repeat(udpOf(localPod, remoteInside, 1300), 32)...)
			drain := benchCapture(b, r.forwarder, bb.snaplen, bb.points)
			packets := 0
			b.ReportAllocs()
			for b.Loop() {
				packets += r.egress()
				drain()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
		})
		b.Run("ingress/"+bb.name, func(b *testing.B) {
			r := newReplay(b, oneNode)
			write := r.ingressBatch(repeat(udpOf(remoteOutside, localPod, 1300), 32)...)
			drain := benchCapture(b, r.forwarder, bb.snaplen, bb.points)
			rounds := 0
			b.ReportAllocs()
			for b.Loop() {
				write()
				drain()
				rounds++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rounds*32), "ns/packet")
		})
	}
}

// benchCapture captures, and returns what reads it.
func benchCapture(b *testing.B, f *dataplane.Forwarder, snaplen int, points []capture.Point) (drain func()) {
	if points == nil {
		return func() {}
	}
	c, err := capture.New(capture.Config{Points: capture.PointSet(points...), Snaplen: snaplen, Ring: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}
	stop, err := f.Capture(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(stop)
	return func() {
		for _, ok := c.Next(); ok; _, ok = c.Next() {
		}
	}
}
