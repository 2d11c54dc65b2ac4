package e2e

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
	"github.com/sluice-net/sluice/test/uml"
)

// kernelNode is a node of cluster a that is a kernel of its own, one with a
// geneve device, with the agent in it.
type kernelNode struct {
	*uml.Guest
	lab.NodeManifest
	// dir is a directory of the host; in the guest it is /mnt.
	dir string
}

// guestFunctions are for scripts in the guest. network shows what configures the
// network but for the numbers of devices, which say how often one was made.
const guestFunctions = `
network() {
	ip -d -o link show | sed 's/^[0-9]*: //; s/addrgenmode [a-z0-9]*//'
	ip -o addr show | sed 's/^[0-9]*: //' | grep -v 'scope link'
	ip -4 route show table all; ip -6 route show table all | grep -v fe80::
	ip -4 rule show; ip -6 rule show
	nft --stateless list ruleset
}
agent() {
	setsid setpriv --no-new-privs --inh-caps -all --ambient-caps -all --bounding-set -all,+net_admin \
		/mnt/fabric --manifests /tmp/manifests --node-name node3 --link ${1:-auto} --geneve-port 6091 --admin-socket /tmp/admin.sock $options >>/mnt/log 2>&1 </dev/null &
	echo $! >/tmp/pid
	for i in $(seq 200); do
		! curl -sf -o /tmp/ready http://127.0.0.1:8091/readyz || return 0
		sleep 0.05
	done
	cat /tmp/ready /mnt/log
	return 1
}
end() {
	kill -$1 $(cat /tmp/pid)
	while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.02; done
}
`

// script runs one in the guest, with the functions.
func (k *kernelNode) script(t *testing.T, format string, args ...any) string {
	t.Helper()
	return inGuest(t, k.Guest, "%s", guestFunctions+fmt.Sprintf(format, args...))
}

// newKernelNode boots a kernel as the third node of cluster a. It does there
// what a CNI does.
func newKernelNode(t *testing.T, w *world, fabric string) *kernelNode {
	t.Helper()
	k := &kernelNode{
		NodeManifest: lab.NodeManifest{
			Name: "node3", VNI: 103,
			Underlay: netip.MustParseAddr("172.30.0.3"), Internal: netip.MustParseAddr("10.80.0.3"),
			Pods: []netip.Prefix{netip.MustParsePrefix("10.243.3.10/32"), netip.MustParsePrefix("fd00:10:243:3::10/128")},
		},
		dir: filepath.Join(w.Lab.Dir, "guest"),
	}
	k.Guest = bootOn(t, w.Lab, w.A.LAN(), "br0")
	copyFile(t, fabric, filepath.Join(k.dir, "fabric"))
	k.script(t, `
ip addr add %[1]s/24 dev vec0
ip link set vec0 up
ip route add default via 172.30.0.250
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter
ip netns add pod
ip link add pod0 type veth peer name eth0 netns pod
ip addr add 10.243.3.1/24 dev pod0
ip addr add fd00:10:243:3::1/64 dev pod0 nodad
ip link set pod0 up
ip -n pod addr add 10.243.3.10/24 dev eth0
ip -n pod addr add fd00:10:243:3::10/64 dev eth0 nodad
ip -n pod link set eth0 up
ip -n pod route add default via 10.243.3.1
ip -n pod route add default via fd00:10:243:3::1
nft -f - <<-'END'
	table inet cni {
		chain post {
			type nat hook postrouting priority 100
			ip saddr 10.243.0.0/16 ip daddr != 10.243.0.0/16 masquerade
			ip6 saddr fd00:10:243::/48 ip6 daddr != { fd00:10:243::/48, fe80::/10, ff00::/8 } masquerade
		}
	}
END
sleep 1 # until the link-local addresses are there
network >/tmp/before
%[2]s
`, k.Underlay, serveIperf("ip netns exec pod"))
	return k
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// write gives the agent in the guest its manifests.
func (k *kernelNode) write(t *testing.T, m *lab.Manifests) {
	t.Helper()
	dir := filepath.Join(k.dir, "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range m.Files() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k.script(t, "mkdir -p /tmp/manifests; cp /mnt/manifests/* /tmp/manifests/")
}

// report logs what the agent said when t has failed.
func (k *kernelNode) report(t *testing.T) {
	t.Helper()
	if log, err := os.ReadFile(filepath.Join(k.dir, "log")); err == nil && t.Failed() {
		t.Logf("the agent in the guest said:\n%s", log)
	}
}

// TestKernelFabric runs the agent where the kernel has geneve, beside nodes that
// have vxlan: gateways answer each in kind.
func TestKernelFabric(t *testing.T) {
	w := newFabricWorld(t, "vxlan")
	k := newKernelNode(t, w.world, w.fabric)
	w.extra = []lab.NodeManifest{k.NodeManifest}
	w.start(t)
	k.write(t, w.manifests(w.A))
	start := time.Now()
	k.script(t, "agent")
	t.Logf("ready in the guest after %v", time.Since(start).Round(time.Millisecond))
	defer w.report(t)
	defer k.report(t)
	to, to6 := w.B.Remote(k.Pods[0].Addr()), w.B.Remote(k.Pods[1].Addr())

	t.Run("as configured", func(t *testing.T) {
		link := k.script(t, "ip -d link show %s", tunnelLink)
		for _, want := range []string{"geneve id 103", "remote 172.30.0.254", "dstport 6091", "mtu 1340", "sluice: "} {
			if !strings.Contains(link, want) {
				t.Errorf("the link does not say %q:\n%s", want, link)
			}
		}
		status := k.script(t, "/mnt/fabric status --admin-socket /tmp/admin.sock")
		if !strings.Contains(status, "geneve") {
			t.Errorf("the status does not speak of geneve")
		}
		t.Logf("the status is\n%s", status)
	})
	t.Run("traffic", func(t *testing.T) {
		k.script(t, "ping -c2 -i0.1 -W5 %[1]s; ip netns exec pod ping -c3 -i0.1 -W5 -M do -s 1312 %[2]s", w.A.Internal, w.fromA(w.B1.PodAddr))
		wantAnswers(t, w.B1.Pod, to, 3, "")
		wantAnswers(t, w.B1.Pod, to6, 3, "")
		for _, ask := range []struct {
			from string
			to   netip.Addr
			want answer
		}{
			{"ip netns exec pod", w.fromA(w.B1.PodAddr), answer{w.B1.Pod.Name, to}},
			{"ip netns exec pod", w.fromA(w.B1.PodAddr6), answer{w.B1.Pod.Name, to6}},
			{"", w.fromA(w.B2.PodAddr), answer{w.B2.Pod.Name, unknownSource(w.B, to)}},
			{"ip netns exec pod", internetIP, answer{w.internetA.Name, k.Underlay}},
		} {
			port := uint16(httpPort)
			if ask.to == internetIP {
				port = tlsPort
			}
			if got := k.script(t, "%s curl -gsS --max-time 30 http://%s/", ask.from, netip.AddrPortFrom(ask.to, port)); strings.TrimSpace(got) != ask.want.server+" "+ask.want.client.String() {
				t.Errorf("%q to %s: %q, want %v", ask.from, ask.to, got, ask.want)
			}
		}
		for _, reverse := range []bool{false, true} {
			r, err := iperfAgain(t, k.Guest, w.B1.Pod, lab.Iperf{To: to, Reverse: reverse, Amount: "2M"})
			t.Logf("TCP, reverse %-5v: %.0f Mbit/s, %d retransmits", reverse, r.BitsPerSecond/1e6, r.Retransmits)
			if err != nil || r.BitsPerSecond == 0 {
				t.Errorf("TCP, reverse %v: %.0f bit/s, %v", reverse, r.BitsPerSecond, err)
			}
		}
	})
	t.Run("restart", func(t *testing.T) {
		for _, signal := range []string{"TERM", "KILL"} {
			pings := make(chan lab.PingResult, 1)
			go func() { pings <- w.B1.Pod.Ping(to, "-i0.02 -c150 -W5") }()
			k.script(t, "network >/tmp/was; end %s; sleep 0.3; agent; network >/tmp/is; diff /tmp/was /tmp/is", signal)
			r := <-pings
			t.Logf("SIG%s: %d of %d pings answered, %d lost", signal, r.Received, r.Sent, r.Lost)
			if r.Lost > 0 || r.Received < r.Sent/2 {
				t.Errorf("SIG%s: %d of %d pings answered, %d lost\n%s", signal, r.Received, r.Sent, r.Lost, r.Output)
			}
		}
	})
	t.Run("tampering", func(t *testing.T) {
		k.script(t, "network >/tmp/was")
		for _, c := range tampering {
			if c.name == "another remote" {
				c.command = "ip link set " + tunnelLink + " type geneve id 103 remote 172.30.0.250"
			}
			out := k.script(t, `
%s
start=$(date +%%s%%N)
for i in $(seq 30); do
	network >/tmp/is
	if diff /tmp/was /tmp/is >/tmp/diff; then
		echo $((($(date +%%s%%N) - start) / 1000000)) ms
		exit 0
	fi
done
cat /tmp/diff`, c.command)
			if t.Logf("%s: seen as before after %s", c.name, strings.TrimSpace(out)); !strings.HasSuffix(out, " ms\n") {
				t.Errorf("%s: not repaired\n%s", c.name, out)
			}
		}
		wantAnswers(t, w.B1.Pod, to, 3, "")
	})
	t.Run("kinds", func(t *testing.T) {
		// The agent keeps the kind of the links that are there, unless it is told.
		for _, kind := range []string{"tun", "vxlan", "geneve", "auto"} {
			pings := make(chan lab.PingResult, 1)
			start := time.Now()
			go func() { pings <- w.B1.Pod.Ping(to, "-i0.02 -c100 -W5") }()
			k.script(t, "end TERM; agent %s", kind)
			took := time.Since(start)
			r := <-pings
			if kind == "auto" {
				kind = "geneve"
			}
			link := k.script(t, "ip -d link show %s", tunnelLink)
			// A busy machine takes longer for both, so one is judged by the other.
			silent := time.Since(start) * time.Duration(r.Sent-r.Received) / time.Duration(r.Sent)
			t.Logf("%s: %d of %d pings answered, the agent was ready after %v", kind, r.Received, r.Sent, took.Round(time.Millisecond))
			if !strings.Contains(link, "    "+kind+" ") || silent > took {
				t.Errorf("%s: silent for %v, while the agent took %v; the link is\n%s%s", kind, silent, took, link, r.Output)
			}
			wantAnswers(t, w.B1.Pod, to, 3, "")
			wantAnswers(t, w.B1.Pod, to6, 3, "")
		}
	})
	t.Run("cleanup", func(t *testing.T) {
		got := k.script(t, "end TERM; /mnt/fabric cleanup >/tmp/said 2>&1; network >/tmp/is; diff /tmp/before /tmp/is || true; echo; cat /tmp/said")
		t.Logf("cleanup says\n%s", got)
		if !strings.HasPrefix(got, "\n") {
			t.Errorf("left after the cleanup:\n%s", got)
		}
	})
}
