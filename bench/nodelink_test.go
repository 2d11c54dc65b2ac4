package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/node/tunlink"
	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/packettest"
)

var compareLinks = flag.Bool("nodelink", false, "compare the node's TUN link with wireguard-go's packages; takes minutes")

// linkProgram is the environment variable that makes this binary one of the programs
// compared. Its value is the variant, what it needs is in linkConfig.
const (
	linkProgram = "SLUICE_BENCH_LINK"
	linkConfig  = "SLUICE_BENCH_LINK_CONFIG"
	linkDevice  = "liqo.bench"
	linkMTU     = 1380
	linkVNI     = 7
)

// What TestNodeLink measures. The processor time is that of one process, the one
// named, for what the receiver of the stream got.
var (
	linkFigures = []figure{
		{"tcp1", "Gbit/s"}, {"tcp1/cpu/out", "cpu-s/Gbit"}, {"tcp1/cpu/in", "cpu-s/Gbit"},
		{"tcp4", "Gbit/s"}, {"tcp4/cpu/out", "cpu-s/Gbit"}, {"tcp4/cpu/in", "cpu-s/Gbit"},
		{"udp1300", "Gbit/s"}, {"udp1300/cpu/out", "cpu-s/Gbit"}, {"udp1300/cpu/in", "cpu-s/Gbit"},
		{"latency/p50", "µs"}, {"memory/rss", "MiB"},
	}
	linkVariants = []string{"wireguard-go", "sluice"}
)

// linkPeer is what a link's program is told about both ends.
type linkPeer struct{ Underlay, RemoteUnderlay, Internal, RemoteInternal netip.Addr }

// linkNode is a node with a pod.
type linkNode struct {
	node, pod *lab.Host
	podAddr   netip.Addr
	peer      linkPeer
}

// TestNodeLink measures the TUN link of a node agent beside the program that one would
// write with wireguard-go's packages tun and conn: same namespaces, same binary,
// both ends of the same kind, taking turns.
//
//	pod - node (TUN) - UDP - node (TUN) - pod
func TestNodeLink(t *testing.T) {
	if !*compareLinks {
		t.Skip("SKIPPED: takes minutes and wants a quiet machine; -nodelink runs it")
	}
	nodes := linkTopology(t)
	server := nodes[1].pod.StartIperf()
	defer server.Stop(lab.Patience)
	var r report
	for round := range *rounds {
		for i := range linkVariants {
			v := linkVariants[(i+round)%len(linkVariants)] // nobody is always first
			measureLink(t, &r, v, nodes)
		}
		t.Logf("round %d of %d is done", round+1, *rounds)
	}
	keep(t, "-nodelink", fmt.Sprintf("each measurement: %v\n", duration())+r.text(linkVariants, linkFigures))
}

// linkTopology builds two nodes with a pod each.
func linkTopology(t *testing.T) [2]*linkNode {
	l := lab.New(t, "iperf3")
	addr := netip.MustParseAddr
	a := &linkNode{podAddr: addr("10.1.0.2"), peer: linkPeer{addr("192.0.2.1"), addr("192.0.2.2"), addr("10.80.0.1"), addr("10.80.0.2")}}
	b := &linkNode{podAddr: addr("10.2.0.2"), peer: linkPeer{addr("192.0.2.2"), addr("192.0.2.1"), addr("10.80.0.2"), addr("10.80.0.1")}}
	nodes := [2]*linkNode{a, b}
	for i, n := range nodes {
		n.node, n.pod = l.Host(fmt.Sprintf("node%d", i)), l.Host(fmt.Sprintf("pod%d", i))
	}
	l.Link(a.node, "underlay", b.node, "underlay")
	for _, n := range nodes {
		n.node.Forward()
		n.node.IP("addr add %s/30 dev underlay", n.peer.Underlay)
		n.node.IP("link set underlay up")
		l.Link(n.node, "pod", n.pod, "eth0")
		n.node.IP("addr add %s/24 dev pod", n.podAddr.Prev())
		n.node.IP("link set pod up")
		n.pod.IP("addr add %s/24 dev eth0", n.podAddr)
		n.pod.IP("link set eth0 up mtu %d", linkMTU)
		n.pod.IP("route add default via %s", n.podAddr.Prev())
	}
	return nodes
}

// measureLink takes one round of one variant.
func measureLink(t *testing.T, r *report, variant string, nodes [2]*linkNode) {
	t.Helper()
	var ps [2]*lab.Process
	for i, n := range nodes {
		ps[i] = n.startLink(t, variant, nodes[1-i].podAddr)
	}
	defer func() {
		for i, p := range ps {
			if _, err := p.Stop(lab.Patience); err != nil {
				t.Errorf("%s: %v", variant, err)
			}
			_, _ = nodes[i].node.Try("ip", "link", "del", linkDevice) // wireguard-go's goes by itself
		}
	}()
	pod, to := nodes[0].pod, nodes[1].podAddr
	pod.IP("tcp_metrics flush all")
	lab.Eventually(t, lab.Patience, "the first ping", func() error {
		if p := pod.Ping(to, "-c1 -W1"); p.Received == 0 {
			return fmt.Errorf("no answer:\n%s", p.Output)
		}
		return nil
	})
	for _, m := range []struct {
		name string
		lab.Iperf
	}{
		{"tcp1", lab.Iperf{Streams: 1}},
		{"tcp4", lab.Iperf{Streams: 4}},
		// A rate that both carry: what is lost on the way costs time and is not counted.
		{"udp1300", lab.Iperf{UDPLength: 1300, Bitrate: "300M"}},
	} {
		for _, back := range []bool{false, true} {
			m.To, m.Duration, m.Reverse = to, duration(), back
			var before [2]time.Duration
			var result lab.IperfResult
			lab.Eventually(t, lab.Patience, "iperf3", func() (err error) { // it is busy until the last measurement is done
				before = [2]time.Duration{processCPU(t, ps[0]), processCPU(t, ps[1])}
				result, err = pod.Iperf(m.Iperf)
				return err
			})
			gbit := result.BitsPerSecond * duration().Seconds() / 1e9
			out, in := 0, 1
			if back {
				out, in = 1, 0
			}
			r.add(variant, figure{m.name, "Gbit/s"}, result.BitsPerSecond/1e9)
			r.add(variant, figure{m.name + "/cpu/out", "cpu-s/Gbit"}, (processCPU(t, ps[out])-before[out]).Seconds()/gbit)
			r.add(variant, figure{m.name + "/cpu/in", "cpu-s/Gbit"}, (processCPU(t, ps[in])-before[in]).Seconds()/gbit)
		}
	}
	if rtts := pod.Ping(to, "-i0.002 -c500 -W2").RTTs; len(rtts) > 0 {
		slices.Sort(rtts)
		r.add(variant, figure{"latency/p50", "µs"}, microseconds(rtts[len(rtts)/2]))
	}
	for _, p := range ps {
		rss, err := p.RSS()
		if err != nil {
			t.Fatal(err)
		}
		r.add(variant, figure{"memory/rss", "MiB"}, float64(rss)/(1<<20))
	}
}

// startLink makes the device, starts a variant on the node and routes to the other pod.
func (n *linkNode) startLink(t *testing.T, variant string, remotePod netip.Addr) *lab.Process {
	t.Helper()
	config, err := json.Marshal(n.peer)
	if err != nil {
		t.Fatal(err)
	}
	if variant == "sluice" { // wireguard-go makes its device itself, without further queues
		n.node.IP("tuntap add dev %s mode tun vnet_hdr multi_queue", linkDevice)
		n.node.IP("link set %s up mtu %d", linkDevice, linkMTU)
	}
	p := n.node.Start(lab.Program{
		Name: variant, Args: []string{linkBinary(t)},
		Env: []string{linkProgram + "=" + variant, linkConfig + "=" + string(config)},
	})
	lab.Eventually(t, lab.Patience, "the device", func() error {
		_, err := n.node.Try("ip", "link", "set", linkDevice, "up", "mtu", fmt.Sprint(linkMTU))
		return err
	})
	n.node.IP("addr add %s/32 dev %s", n.peer.Internal, linkDevice)
	n.node.IP("route add %s/24 dev %s", remotePod.Prev().Prev(), linkDevice)
	return p
}

// runLink is the program of one end.
func runLink(variant string) {
	var p linkPeer
	if err := json.Unmarshal([]byte(os.Getenv(linkConfig)), &p); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := runNodeLink
	if variant == "wireguard-go" {
		run = runWireGuardGo
	}
	if err := run(ctx, p); err != nil {
		log.Fatal(err)
	}
}

func runNodeLink(ctx context.Context, p linkPeer) error {
	e, err := tunlink.New(tunlink.Options{GSO: true, GRO: true})
	if err != nil {
		return err
	}
	if err := e.Apply([]tunlink.Tunnel{{
		Device: linkDevice, VNI: linkVNI, Gateway: p.RemoteUnderlay, Internal: p.Internal, GatewayInternal: p.RemoteInternal, MTU: linkMTU,
	}}); err != nil {
		return err
	}
	return e.Run(ctx)
}

// runWireGuardGo carries packets between wireguard-go's TUN device and its socket, in the
// same encapsulation, with its batches, GSO and GRO: its device without the cryptography.
func runWireGuardGo(ctx context.Context, p linkPeer) error {
	device, err := tun.CreateTUN(linkDevice, linkMTU)
	if err != nil {
		return err
	}
	bind := conn.NewStdNetBind()
	receivers, _, err := bind.Open(geneve.DefaultPort)
	if err != nil {
		return err
	}
	remote, err := bind.ParseEndpoint(netip.AddrPortFrom(p.RemoteUnderlay, geneve.DefaultPort).String())
	if err != nil {
		return err
	}
	for _, receive := range receivers {
		go func() { logEnd(wireGuardIn(device, bind.BatchSize(), receive)) }()
	}
	go func() { logEnd(wireGuardOut(device, bind, remote)) }()
	<-ctx.Done()
	return errors.Join(bind.Close(), device.Close())
}

func logEnd(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		log.Print(err)
	}
}

const linkHeadLen = geneve.HeaderLen + neighbor.EthernetHeaderLen

func linkBuffers(n int) ([][]byte, []int) {
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i] = make([]byte, 65535)
	}
	return bufs, make([]int, n)
}

// wireGuardOut carries packets from the device to the socket.
func wireGuardOut(device tun.Device, bind conn.Bind, remote conn.Endpoint) error {
	bufs, sizes := linkBuffers(device.BatchSize())
	datagrams := make([][]byte, 0, len(bufs))
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	head := packettest.Geneve(linkVNI, packettest.TransparentEthernet, packettest.Ethernet(mac, mac, 0x0800, nil))
	for {
		n, err := device.Read(bufs, sizes, linkHeadLen)
		if err != nil && !errors.Is(err, tun.ErrTooManySegments) {
			return err
		}
		datagrams = datagrams[:0]
		for i := range n {
			b := bufs[i][:linkHeadLen+sizes[i]]
			copy(b, head)
			datagrams = append(datagrams, b)
		}
		if err := bind.Send(datagrams, remote); err != nil {
			return err
		}
	}
}

// wireGuardIn carries packets from the socket to the device.
func wireGuardIn(device tun.Device, batch int, receive conn.ReceiveFunc) error {
	bufs, sizes := linkBuffers(batch)
	endpoints := make([]conn.Endpoint, batch)
	header := packettest.Geneve(linkVNI, packettest.TransparentEthernet, nil)
	packets := make([][]byte, 0, batch)
	for {
		n, err := receive(bufs, sizes, endpoints)
		if err != nil {
			return err
		}
		packets = packets[:0]
		for i := range n {
			if b := bufs[i][:sizes[i]]; len(b) > linkHeadLen && bytes.HasPrefix(b, header) {
				packets = append(packets, b)
			}
		}
		if _, err := device.Write(packets, linkHeadLen); err != nil && !errors.Is(err, syscall.EIO) {
			return err
		}
	}
}

// linkBinary is this test's own binary.
func linkBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
