package nodelink_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/dataplane/nodelink"
	"github.com/sluice-net/sluice/deploy/e2e/lab"
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
	endpoint           *nodelink.Endpoint
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
// controlplane/hostnet does.
func (s *side) addDevice(name string, other *side) {
	s.node.IP("tuntap add dev %s mode tun vnet_hdr multi_queue", name)
	s.node.IP("addr add %s/32 dev %s", s.internal, name)
	s.node.IP("link set %s up mtu %d", name, mtu)
	s.node.IP("route add %s/32 dev %s", other.internal, name)
	s.node.IP("route add %s/24 dev %s", other.pod4.Prev().Prev(), name)
	s.node.IP("route add %s/120 dev %s", other.pod6.Prev().Prev(), name)
}

// tunnel is what an Endpoint on s is told.
func (n *network) tunnel(s *side) nodelink.Tunnel {
	o := n.other(s)
	return nodelink.Tunnel{
		Device: device, VNI: vni, Gateway: o.underlay, Internal: s.internal, GatewayInternal: o.internal, MTU: mtu,
	}
}

// start runs an Endpoint on s.
func (n *network) start(s *side, o nodelink.Options) {
	n.Helper()
	e, err := nodelink.New(o)
	if err != nil {
		n.Fatal(err)
	}
	if err := s.node.Do(func() error { return e.Apply([]nodelink.Tunnel{n.tunnel(s)}) }); err != nil {
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

func (n *network) startBoth(o nodelink.Options) {
	n.Helper()
	goleak.VerifyNone(n, goleak.IgnoreCurrent()) // before, to begin with nothing
	n.start(n.a, o)
	n.start(n.b, o)
	lab.Eventually(n, 5*time.Second, "the first ping", func() error {
		if p := n.a.pod.Ping(n.b.pod4, "-c1 -W1"); p.Received == 0 {
			return fmt.Errorf("no answer:\n%s\n%+v", p.Output, n.a.endpoint.Status())
		}
		return nil
	})
}

// status is that of the one tunnel of s.
func (s *side) status() nodelink.TunnelStatus { return s.endpoint.Status().Tunnels[0] }

func TestKernel(t *testing.T) {
	n := newNetwork(t, 1500)
	n.startBoth(nodelink.Options{GSO: true, GRO: true})
	server := n.b.pod.StartIperf()
	defer server.Stop(2 * time.Second)
	for _, to := range []netip.Addr{n.b.pod4, n.b.pod6} {
		for _, back := range []bool{false, true} {
			before := [2]nodelink.TunnelStatus{n.a.status(), n.b.status()}
			r, err := n.a.pod.Iperf(lab.Iperf{To: to, Reverse: back})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s back=%v %.2f Gbit/s\n%+v\n%+v", to, back, r.BitsPerSecond/1e9, n.a.status(), n.b.status())
			_ = before
		}
	}
	t.Logf("%+v\n%+v", n.a.endpoint.Status().Sockets, n.b.endpoint.Status().Sockets)
}
