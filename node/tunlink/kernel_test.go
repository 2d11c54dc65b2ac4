package tunlink_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/underlay"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

const (
	device = "liqo.test"
	vni    = 7
	mtu    = 1350
)

// side is a node with a pod behind it, and what its Endpoint needs to know.
type side struct {
	node, pod          *lab.Host
	underlay, internal netip.Addr
	pod4, pod6         netip.Addr
	endpoint           *tunlink.Endpoint
	stop               func()
}

// network is two nodes that are each other's gateway:
//
//	pod a - node a - underlay - node b - pod b
type network struct {
	*testing.T
	lab  *lab.Lab
	a, b *side
}

// newNetwork builds the hosts and the devices, without Endpoints.
func newNetwork(t *testing.T, underlayMTU int) *network {
	t.Helper()
	n := &network{T: t, lab: lab.New(t, "iperf3")}
	addr := netip.MustParseAddr
	n.a = &side{underlay: addr("192.0.2.1"), internal: addr("10.80.0.1"), pod4: addr("10.1.0.2"), pod6: addr("fd01::2")}
	n.b = &side{underlay: addr("192.0.2.2"), internal: addr("10.80.0.2"), pod4: addr("10.2.0.2"), pod6: addr("fd02::2")}
	for name, s := range map[string]*side{"a": n.a, "b": n.b} {
		s.node, s.pod = n.lab.Host("node-"+name), n.lab.Host("pod-"+name)
	}
	n.lab.Link(n.a.node, "underlay", n.b.node, "underlay")
	for _, s := range []*side{n.a, n.b} {
		other := n.other(s)
		s.node.Forward()
		s.node.IP("addr add %s/30 dev underlay", s.underlay)
		s.node.IP("link set underlay up mtu %d", underlayMTU)
		n.lab.Link(s.node, "pod", s.pod, "eth0")
		for _, p := range []netip.Addr{s.pod4, s.pod6} {
			gateway, bits := p.Prev(), p.BitLen()-8
			s.node.IP("addr add %s/%d dev pod", gateway, bits)
			s.pod.IP("addr add %s/%d dev eth0", p, bits)
		}
		s.node.IP("link set pod up")
		s.pod.IP("link set eth0 up mtu %d", mtu)
		for _, p := range []netip.Addr{s.pod4, s.pod6} {
			s.pod.IP("route add default via %s", p.Prev())
		}
		s.addDevice(device, other)
	}
	return n
}

func (n *network) other(s *side) *side {
	if s == n.a {
		return n.b
	}
	return n.a
}

// addDevice makes the TUN device and routes the other side's pods through it, as
// node/hostnet does.
func (s *side) addDevice(name string, other *side) {
	s.node.IP("tuntap add dev %s mode tun vnet_hdr multi_queue", name)
	s.node.IP("addr add %s/32 dev %s", s.internal, name)
	s.node.IP("link set %s up mtu %d", name, mtu)
	s.node.IP("route add %s/32 dev %s", other.internal, name)
	s.node.IP("route add %s/24 dev %s", other.pod4.Prev().Prev(), name)
	s.node.IP("route add %s/120 dev %s", other.pod6.Prev().Prev(), name)
}

// tunnel is what an Endpoint on s is told.
func (n *network) tunnel(s *side) tunlink.Tunnel {
	o := n.other(s)
	return tunlink.Tunnel{
		Device: device, VNI: vni, Gateway: o.underlay, Internal: s.internal, GatewayInternal: o.internal, MTU: mtu,
	}
}

// start runs an Endpoint on s.
func (n *network) start(s *side, o tunlink.Options) {
	n.Helper()
	e, err := tunlink.New(o)
	if err != nil {
		n.Fatal(err)
	}
	if err := s.node.Do(func() error { return e.Apply([]tunlink.Tunnel{n.tunnel(s)}) }); err != nil {
		n.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	s.endpoint = e
	s.stop = func() {
		n.Helper()
		cancel()
		if err := <-done; err != nil {
			n.Error(err)
		}
		s.stop = func() {}
	}
	n.Cleanup(func() { s.stop() })
}

func (n *network) startBoth(o tunlink.Options) {
	n.Helper()
	// Registered first, so checked last.
	before := goleak.IgnoreCurrent()
	hosts := goleak.IgnoreTopFunction("github.com/sluice-net/sluice/test/lab.(*thread).run")
	n.Cleanup(func() { goleak.VerifyNone(n, before, hosts) })
	n.start(n.a, o)
	n.start(n.b, o)
	lab.Eventually(n, lab.Patience, "the first ping", func() error {
		if p := n.a.pod.Ping(n.b.pod4, "-c1 -W1"); p.Received == 0 {
			return fmt.Errorf("no answer:\n%s\n%+v", p.Output, n.a.endpoint.Status())
		}
		return nil
	})
}

// status is that of the one tunnel of s.
func (s *side) status() tunlink.TunnelStatus { return s.endpoint.Status().Tunnels[0] }

// fast are the options of an agent.
var fast = tunlink.Options{GSO: true, GRO: true}

// pods are the addresses of b's pod, as subtests.
func (n *network) pods(test func(t *testing.T, to netip.Addr)) {
	for name, to := range map[string]netip.Addr{"ipv4": n.b.pod4, "ipv6": n.b.pod6} {
		n.Run(name, func(t *testing.T) { test(t, to) })
	}
}

// TestPing: whole packets of the size of the MTU, and larger ones in fragments.
func TestPing(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(fast)
	n.pods(func(t *testing.T, to netip.Addr) {
		headers := 28
		if to.Is6() {
			headers = 48
		}
		for _, args := range []string{"", fmt.Sprintf("-M do -s %d", mtu-headers), "-s 5000", "-s 60000"} {
			// With -w, ping does not give up two round trips after the last packet: too
			// soon on a machine that does other things. It may send one more instead.
			if p := n.a.pod.Ping(to, "-c5 -i0.05 -w60 "+args); p.Received < 5 {
				t.Errorf("ping %s: %d of 5 answers\n%s", args, p.Received, p.Output)
			}
		}
	})
	for _, s := range []*side{n.a, n.b} {
		st := s.status()
		delete(st.Drops, "DropMulticast") // what a kernel announces by itself
		if len(st.Drops) > 0 || st.LastSeen.IsZero() || st.MAC == "" || st.GatewayMAC != n.other(s).status().MAC {
			t.Errorf("status %+v", st)
		}
	}
}

// iperf measures from a's pod. Until the server is done with the measurement before, it is busy.
func (n *network) iperf(t *testing.T, m lab.Iperf) (r lab.IperfResult) {
	t.Helper()
	lab.Eventually(t, lab.Patience, "iperf3", func() (err error) {
		r, err = n.a.pod.Iperf(m)
		return err
	})
	return r
}

// TestTCP: streams pass both ways, and the kernels give and get super-segments.
func TestTCP(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(fast)
	server := n.b.pod.StartIperf()
	defer server.Stop(lab.Patience)
	n.pods(func(t *testing.T, to netip.Addr) {
		for _, back := range []bool{false, true} {
			from, into := n.a, n.b
			if back {
				from, into = n.b, n.a
			}
			tx, rx := from.status(), into.status()
			n.iperf(t, lab.Iperf{To: to, Reverse: back, Streams: 2, Amount: "64M"})
			after := from.status()
			supers, packets := after.TxSupers-tx.TxSupers, after.TxPackets-tx.TxPackets
			if supers == 0 || packets/supers < 5 {
				t.Errorf("back %v: %d super-segments of %d packets were taken from the kernel", back, supers, packets)
			}
			after = into.status()
			supers, packets = after.RxSupers-rx.RxSupers, after.RxPackets-rx.RxPackets
			if supers == 0 || packets/supers < 5 {
				t.Errorf("back %v: %d packets were given to the kernel as %d super-segments", back, packets, supers)
			}
		}
	})
	for _, s := range []*side{n.a, n.b} {
		sockets := s.endpoint.Status().Sockets
		if len(sockets) != 1 || sockets[0].WriteRuns == 0 || sockets[0].ReadRuns == 0 || sockets[0].WriteErrors != 0 {
			t.Errorf("sockets %+v", sockets)
		}
	}
}

// TestTCPWithoutOffloads: the same, one by one.
func TestTCPWithoutOffloads(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(tunlink.Options{Queues: 1})
	server := n.b.pod.StartIperf()
	defer server.Stop(lab.Patience)
	n.pods(func(t *testing.T, to netip.Addr) {
		if r := n.iperf(t, lab.Iperf{To: to, Amount: "16M"}); r.BitsPerSecond == 0 {
			t.Errorf("%+v", r)
		}
	})
	if st := n.a.status(); st.TxSupers+n.b.status().RxSupers != 0 || len(st.Offloads) != 0 || st.Queues != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestUDPRuns: datagrams that were sent with UDP_SEGMENT arrive, each of them, and pass as
// super-segments.
func TestUDPRuns(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(fast)
	n.pods(func(t *testing.T, to netip.Addr) {
		tx, rx := n.a.status().TxSupers, n.b.status().RxSupers
		testRuns(t, n.a.pod, n.b.pod, to)
		if tx == n.a.status().TxSupers || rx == n.b.status().RxSupers {
			t.Errorf("no super-segment: %+v, %+v", n.a.status(), n.b.status())
		}
	})
}

// testRuns sends runs of datagrams and expects all of them in order.
func testRuns(t *testing.T, from, into *lab.Host, to netip.Addr) {
	t.Helper()
	listen := func(h *lab.Host, a netip.Addr) (c *underlay.Conn) {
		if err := h.Do(func() (err error) {
			c, err = underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(a, 0), GSO: true})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	unspecified := netip.IPv4Unspecified()
	if to.Is6() {
		unspecified = netip.IPv6Unspecified()
	}
	sender, receiver := listen(from, unspecified), listen(into, to)
	time.AfterFunc(lab.Patience, func() { receiver.Close() }) // what was lost is not waited for
	const runs, length, size = 50, 20, 1000
	next := byte(0)
	for range runs {
		ds := make([]underlay.Datagram, length)
		for i := range ds {
			body := make([]byte, size)
			if i == length-1 {
				body = body[:1+int(next)%size]
			}
			body[0] = next
			next++
			ds[i] = underlay.Datagram{Addr: receiver.LocalAddr(), Body: body}
		}
		if sent, err := sender.WriteBatch(ds); sent != length || err != nil {
			t.Fatalf("sent %d of %d: %v", sent, length, err)
		}
	}
	bufs, sizes, origins := make([][]byte, 64), make([]int, 64), make([]underlay.Origin, 64)
	for i := range bufs {
		bufs[i] = make([]byte, 2000)
	}
	next = 0
	for got := 0; got < runs*length; {
		k, err := receiver.ReadBatch(bufs, sizes, origins)
		if err != nil {
			t.Fatalf("got %d of %d datagrams: %v", got, runs*length, err)
		}
		for i := range k {
			if want := size; bufs[i][0] != next || got%length != length-1 && sizes[i] != want {
				t.Fatalf("datagram %d has %d bytes and number %d, want number %d", got, sizes[i], bufs[i][0], next)
			}
			next++
			got++
		}
	}
}

// TestFromKernelVXLAN: a gateway whose kernel speaks VXLAN, on this very machine, leaves
// checksums and segmentation to a network card that never comes.
func TestFromKernelVXLAN(t *testing.T) {
	n := newNetwork(t, 1500)
	n.start(n.a, fast)
	b := n.b.node
	b.IP("link del %s", device)
	b.IP("link add vx type vxlan id %d remote %s local %s dstport 6091 noudpcsum", vni, n.a.underlay, n.b.underlay)
	b.IP("link set vx up mtu %d", mtu)
	b.IP("addr add %s/32 dev vx", n.b.internal)
	b.IP("neigh add %s lladdr %s dev vx", n.a.internal, n.a.status().MAC)
	b.IP("route add %s/32 dev vx", n.a.internal)
	b.IP("route add %s/24 via %s dev vx", n.a.pod4.Prev().Prev(), n.a.internal)
	testRuns(t, n.b.pod, n.a.pod, n.a.pod4)
	if st := n.a.status(); st.Encapsulation != geneve.VXLAN {
		t.Errorf("heard %v", st.Encapsulation)
	}
}

// TestRestart: a TCP connection survives the Endpoint, because the device stays and the next one
// attaches to it.
func TestRestart(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(fast)
	var listener net.Listener
	if err := n.b.pod.Do(func() (err error) {
		listener, err = net.Listen("tcp", "0.0.0.0:7")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c)
		c.Close()
	}()
	var c net.Conn
	if err := n.a.pod.Do(func() (err error) {
		c, err = net.Dial("tcp", netip.AddrPortFrom(n.b.pod4, 7).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func(what string) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(lab.Patience))
		in := make([]byte, len(what))
		if _, err := c.Write([]byte(what)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := io.ReadFull(c, in); err != nil || string(in) != what {
			t.Fatalf("%s: %q, %v", what, in, err)
		}
	}
	echo("before")
	for range 3 {
		before := n.a.status().MAC
		n.a.stop()
		n.start(n.a, fast)
		echo("after a restart")
		if got := n.a.status().MAC; got != before {
			t.Errorf("link-layer address %s, before %s", got, before)
		}
	}
}

// TestApply: tunnels come and go, each by itself, and the socket with them.
func TestApply(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(fast)
	a := n.a
	apply := func(ts ...tunlink.Tunnel) error { return a.node.Do(func() error { return a.endpoint.Apply(ts) }) }
	pinged := func() bool { return a.pod.Ping(n.b.pod4, "-c2 -i0.2 -W1").Received > 0 }
	good := n.tunnel(a)
	missing, foreign := good, good
	missing.Device, missing.VNI = "liqo.missing", 8
	foreign.Device, foreign.VNI = "lo", 9

	err := apply(missing, good, foreign)
	var tunnelError *tunlink.TunnelError
	if !errors.Is(err, tunlink.ErrNoDevice) || !errors.As(err, &tunnelError) || tunnelError.Device != "liqo.missing" && tunnelError.Device != "lo" {
		t.Errorf("a missing device: %v", err)
	}
	if got := a.endpoint.Status().Tunnels; len(got) != 1 || !pinged() {
		t.Errorf("one bad tunnel stopped another: %+v", got)
	}
	if err := apply(); err != nil {
		t.Error(err)
	}
	if s := a.endpoint.Status(); len(s.Sockets) != 0 || len(s.Tunnels) != 0 || pinged() {
		t.Errorf("without tunnels: %+v", s)
	}
	if err := apply(good); err != nil || !pinged() {
		t.Errorf("again: %v, %+v", err, a.endpoint.Status())
	}
	packets := a.status().RxPackets
	smaller := good
	smaller.MTU = 1300
	if err := apply(smaller); err != nil || !pinged() || a.status().RxPackets <= packets {
		t.Errorf("with another MTU: %v, %+v", err, a.status())
	}
	other := good
	other.VNI = 99
	if err := apply(other); err != nil || pinged() {
		t.Errorf("with another VNI: %v, %+v", err, a.status())
	}
	if n.b.endpoint.Status().Drops["DropUnknownTunnel"] == 0 {
		t.Errorf("the other end: %+v", n.b.endpoint.Status())
	}
	if err := apply(good); err != nil || !pinged() {
		t.Errorf("back again: %v, %+v", err, a.status())
	}
}

// TestDeletedDevice: somebody deletes the device and makes it again.
func TestDeletedDevice(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(fast)
	n.a.node.IP("link del %s", device)
	lab.Eventually(t, lab.Patience, "the end of the device", func() error {
		if st := n.a.status(); st.Broken == "" {
			return fmt.Errorf("status %+v", st)
		}
		return nil
	})
	n.a.addDevice(device, n.b)
	if err := n.a.node.Do(func() error { return n.a.endpoint.Apply([]tunlink.Tunnel{n.tunnel(n.a)}) }); err != nil {
		t.Fatal(err)
	}
	if p := n.a.pod.Ping(n.b.pod4, "-c3 -i0.2 -W1"); p.Received == 0 || n.a.status().Broken != "" {
		t.Errorf("nothing arrives:\n%s\n%+v", p.Output, n.a.status())
	}
}

// TestPortInUse: the port is said to be somebody else's, and is ours when it is free.
func TestPortInUse(t *testing.T) {
	n := newNetwork(t, 1500)
	n.a.node.IP("link add vx type vxlan id 1 remote %s dstport 6091", n.b.underlay)
	n.a.node.IP("link set vx up")
	e, err := tunlink.New(fast)
	if err != nil {
		t.Fatal(err)
	}
	apply := func() error { return e.Apply([]tunlink.Tunnel{n.tunnel(n.a)}) }
	if err := n.a.node.Do(apply); !errors.Is(err, tunlink.ErrPortInUse) {
		t.Errorf("the port is in use: %v", err)
	}
	n.a.node.IP("link del vx")
	if err := n.a.node.Do(apply); err != nil {
		t.Errorf("the port is free: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Run(ctx); err != nil {
		t.Error(err)
	}
}
