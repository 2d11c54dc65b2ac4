package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/source"
	"github.com/sluice-net/sluice/test/uml"
)

// bootOn boots a kernel whose wire is a port of a bridge on host.
func bootOn(t *testing.T, l *lab.Lab, host *lab.Host, bridge string) *uml.Guest {
	t.Helper()
	kernel, err := source.Linux()
	if err != nil {
		source.Lacks(t, "%v", err)
	}
	host.IP("tuntap add dev tap0 mode tap")
	host.IP("link set tap0 master %s up", bridge)
	dir := filepath.Join(l.Dir, "guest")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g, err := uml.Boot(uml.Config{
		Kernel: kernel, Dir: dir, Tap: "tap0",
		Start: func(cmd *exec.Cmd) error { return host.Do(cmd.Start) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// scriptLimit is after how long a script counts as hung, and with it the guest, which
// takes no other one until it has answered. It takes seconds on an idle machine, and
// more than a minute on a slow one that has much else to do.
const scriptLimit = 5 * time.Minute

// inGuest runs a script in the guest and fails the test when it fails.
func inGuest(t *testing.T, g *uml.Guest, format string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), scriptLimit)
	defer cancel()
	out, err := g.Run(ctx, "set -e\n"+fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatalf("in the guest: %v\n%s", err, out)
	}
	return out
}

// iperfEnds is the guest's file of the exit statuses of its iperf3 servers.
const iperfEnds = "/tmp/iperf-ends"

// serveIperf returns the command that keeps an iperf3 server running in the guest:
// under user-mode Linux it sometimes ends in the middle of a measurement. Each end
// is noted with its exit status, so that nothing else passes for one.
func serveIperf(prefix string) string {
	return "setsid sh -c 'while :; do " + prefix + " iperf3 -s; echo $? >>" + iperfEnds + "; done' </dev/null >/dev/null 2>&1 &"
}

// impairments are applied to both directions of the guest's wire.
var impairments = []struct{ name, netem string }{
	{"none", ""},
	{"delay", "delay 20ms 5ms"},
	{"loss", "loss 0.5%"},
	{"reordering", "delay 2ms reorder 25% 50%"},
	{"duplication", "duplicate 5%"},
}

// impair sets netem on what the guest sends and, by way of an intermediate
// device, on what it receives.
func impair(t *testing.T, g *uml.Guest, netem string) {
	t.Helper()
	inGuest(t, g, `
tc qdisc del dev vec0 root 2>/dev/null || true
tc qdisc del dev vec0 ingress 2>/dev/null || true
ip link del ifb0 2>/dev/null || true
`)
	if netem == "" {
		return
	}
	inGuest(t, g, `
ip link add ifb0 type ifb
ip link set ifb0 up
tc qdisc add dev vec0 ingress
tc filter add dev vec0 ingress matchall action mirred egress redirect dev ifb0
tc qdisc add dev ifb0 root netem limit 10000 %[1]s
tc qdisc add dev vec0 root netem limit 10000 %[1]s
`, netem)
}

// wantTCPImpaired measures TCP both ways under each impairment. All that
// is asked is that connections neither break nor stall: what 0.5 % of loss leaves
// of TCP is TCP's affair.
func wantTCPImpaired(t *testing.T, g *uml.Guest, from *lab.Host, to netip.Addr) {
	for _, imp := range impairments {
		t.Run("TCP, "+imp.name, func(t *testing.T) {
			impair(t, g, imp.netem)
			for _, reverse := range []bool{false, true} {
				r, err := iperfAgain(t, g, from, lab.Iperf{To: to, Reverse: reverse, Amount: "2M"})
				t.Logf("reverse %-5v: %.0f Mbit/s, %d retransmits", reverse, r.BitsPerSecond/1e6, r.Retransmits)
				if err != nil || r.BitsPerSecond == 0 {
					t.Errorf("reverse %v: %.0f bit/s, %v", reverse, r.BitsPerSecond, err)
				}
			}
		})
	}
}

// iperfAgain repeats a measurement during which the guest's server ended, and no
// other: a connection that breaks while the server lives is a failure.
func iperfAgain(t *testing.T, g *uml.Guest, from *lab.Host, m lab.Iperf) (r lab.IperfResult, err error) {
	ends := func() string { return inGuest(t, g, "touch %[1]s; cat %[1]s", iperfEnds) }
	for range 3 {
		before := ends()
		if r, err = from.Iperf(m); err == nil {
			return r, nil
		}
		after := ends()
		if after == before {
			return r, err
		}
		t.Logf("not measured, the guest's iperf3 ended (exit statuses so far: %q): %v", after, err)
	}
	return r, err
}

// TestKernelPeer joins our gateway with the WireGuard of a Linux kernel. The
// kernel stands for the whole other cluster: its one pod is an address of its
// own.
func TestKernelPeer(t *testing.T) {
	l := lab.New(t, append(tools, "wg", "tc")...)
	topo := l.NewTopology([]lab.NodeSpec{{Encapsulation: lab.VXLAN}}, nil)
	a1 := topo.A.Nodes[0]
	wire := topo.B.Gateway
	wire.IP("addr flush dev wan0")
	wire.IP("link add br0 type bridge")
	wire.IP("link set br0 up")
	wire.IP("link set wan0 master br0")
	g := bootOn(t, l, wire, "br0")

	const pod = "10.243.7.7"
	inGuest(t, g, `
ip addr add %[1]s/24 dev vec0
ip link set vec0 up
echo %[2]s >/tmp/key
ip link add wg0 mtu %[3]d type wireguard
wg set wg0 listen-port %[4]d private-key /tmp/key peer %[5]s endpoint %[6]s:%[4]d allowed-ips %[7]s,%[8]s/32
ip addr add %[9]s/30 dev wg0
ip addr add %[10]s/32 dev wg0
ip link set wg0 up
ip route add %[7]s dev wg0 src %[10]s
%[11]s
`, topo.B.WAN, topo.B.Keys.Private(), lab.TunnelMTU, lab.WireGuardPort, topo.A.Keys.Public(), topo.A.WAN,
		lab.PodCIDR, topo.A.TunnelAddr(0), topo.B.TunnelAddr(0), pod, serveIperf(""))
	gateway := topo.A.StartGateway(lab.Build(t, lab.GatewayPackage), lab.GatewayOptions{})
	gateway.Ready(lab.Patience)

	to := topo.A.Remote(netip.MustParseAddr(pod))
	// The server has no endpoint until the peer speaks.
	inGuest(t, g, "ping -c3 -i0.2 -W5 -I %s %s", topo.B.TunnelAddr(0), topo.A.TunnelAddr(0))
	t.Run("ping", func(t *testing.T) {
		wantAnswers(t, a1.Pod, to, 3, "")
		wantAnswers(t, a1.Pod, to, 2, "-M do -s 1312")
	})
	wantTCPImpaired(t, g, a1.Pod, to)
}

// TestKernelNode joins our gateway with a node whose tunnel is the Geneve device
// of a Linux kernel.
func TestKernelNode(t *testing.T) {
	w := newWorld(t)
	guest := lab.NodeManifest{
		Name: "node3", VNI: 103,
		Underlay: netip.MustParseAddr("172.30.0.3"), Internal: netip.MustParseAddr("10.80.0.3"),
		Pods: []netip.Prefix{netip.MustParsePrefix("10.243.3.10/32")},
	}
	g := bootOn(t, w.Lab, w.A.LAN(), "br0")
	inGuest(t, g, `
ip addr add %[1]s/24 dev vec0
ip link set vec0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link add gnv0 mtu 1450 type geneve id %[2]d remote %[3]s dstport %[4]d
ip addr add %[5]s/32 dev gnv0
ip link set gnv0 up
ip route add %[6]s/32 dev gnv0 src %[5]s
ip route add %[7]s via %[6]s dev gnv0 onlink
ip netns add pod
ip link add pod0 type veth peer name eth0 netns pod
ip addr add 10.243.3.1/24 dev pod0
ip link set pod0 up
ip -n pod addr add 10.243.3.10/24 dev eth0
ip -n pod link set eth0 up
ip -n pod route add default via 10.243.3.1
%[8]s
`, guest.Underlay, guest.VNI, w.A.Underlay, lab.GatewayPort, guest.Internal, w.A.Internal, w.A.RemotePod, serveIperf("ip netns exec pod"))

	manifests := w.A.Manifests()
	manifests.Nodes = append(manifests.Nodes, guest)
	binary := lab.Build(t, lab.GatewayPackage)
	gatewayA := w.A.StartGateway(binary, lab.GatewayOptions{Manifests: manifests})
	gatewayB := w.B.StartGateway(binary, lab.GatewayOptions{})
	gatewayA.WaitConnected(lab.Patience)
	gatewayB.WaitConnected(lab.Patience)

	to := w.B.Remote(netip.MustParseAddr("10.243.3.10"))
	t.Run("ping", func(t *testing.T) {
		wantAnswers(t, w.B1.Pod, to, 3, "")
		inGuest(t, g, "ping -c3 -i0.1 -W5 %s", w.A.Internal)
		inGuest(t, g, "ip netns exec pod ping -c3 -i0.1 -W5 -M do -s 1312 %s", w.A.Remote(w.B1.PodAddr))
	})
	t.Run("path MTU", func(t *testing.T) {
		inGuest(t, g, `
to=%s
ip netns exec pod ping -c3 -i0.2 -W5 -M want -s 1400 $to || true
ip netns exec pod ip route get $to | grep -q 'mtu 1340'
ip netns exec pod ip route flush cache
`, w.A.Remote(w.B1.PodAddr))
	})
	wantTCPImpaired(t, g, w.B1.Pod, to)
}
