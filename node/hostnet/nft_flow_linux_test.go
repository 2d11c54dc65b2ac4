package hostnet

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/source"
)

// testHost is a thread in a network namespace of its own.
type testHost struct {
	jobs chan func()
	tid  int
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	h := &testHost{jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		// Never unlocked: the thread ends with this goroutine, the namespace with the thread.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			// Addresses are usable at once.
			err = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
		}
		h.tid = unix.Gettid()
		ready <- err
		for f := range h.jobs {
			f()
		}
	}()
	if err := <-ready; err != nil {
		source.Lacks(t, "it needs the right to make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(h.jobs) })
	h.ip(t, "link set lo up")
	return h
}

// do runs f in the host.
func (h *testHost) do(f func()) {
	done := make(chan struct{})
	h.jobs <- func() { defer close(done); f() }
	<-done
}

// ip runs commands of ip(8), one a line.
func (h *testHost) ip(t *testing.T, commands string) { h.run(t, commands, "ip", "-batch", "-") }

func (h *testHost) nft(t *testing.T, commands string) { h.run(t, commands, "nft", "-f", "-") }

func (h *testHost) run(t *testing.T, input string, args ...string) {
	t.Helper()
	h.do(func() {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// tellSource serves TCP: whoever connects is told the address that it comes from.
func (h *testHost) tellSource(t *testing.T, port int) {
	t.Helper()
	h.do(func() {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, c.RemoteAddr().String())
				_ = c.Close()
			}
		}()
	})
}

// asked counts what asked.
var asked atomic.Uint32

// askPort is a port that no other host asks from, below those that a kernel picks by itself. Two hosts with one port
// become one source where both are masqueraded, and the second then gets another port.
func askPort() int { return 20000 + int(asked.Add(1)%10000) }

// ask connects, from an address if one is given, and returns the own address and
// the one that the server sees.
func (h *testHost) ask(t *testing.T, from netip.Addr, to netip.AddrPort) (own, seen netip.AddrPort) {
	t.Helper()
	h.do(func() {
		local := &net.TCPAddr{Port: askPort()}
		if from.IsValid() {
			local.IP = from.AsSlice()
		}
		d := net.Dialer{Timeout: patience, LocalAddr: local}
		c, err := d.Dial("tcp", to.String())
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		answer, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
			return
		}
		own = c.LocalAddr().(*net.TCPAddr).AddrPort()
		if seen, err = netip.ParseAddrPort(string(answer)); err != nil {
			t.Error(err)
		}
	})
	return own, netip.AddrPortFrom(seen.Addr().Unmap(), seen.Port())
}

// nodeNetwork is a node with a pod, a gateway with a peer behind it, and the
// world outside.
//
//	pod ──┐                  ┌── gateway (the peer's pods are its own addresses)
//	      ├── node ──────────┤
//	      │  (a CNI that     └── world: clients, hosts, other nodes, the gateways' underlay
//	      │   masquerades all, kube-proxy)
type nodeNetwork struct {
	node, pod, gateway, world *testHost
	table                     *nft
}

// plan of addresses, of one family.
type addressPlan struct {
	pod, podRouter, peer, worldNode, world, gatewayPod, other, unknown, external, service netip.Addr
	translation                                                                           Translation
}

var addressPlans = map[string]addressPlan{
	"IPv4": newAddressPlan("10.243.1.2", "10.243.1.1", "10.60.0.5", "192.0.2.1", "192.0.2.80", "10.243.1.7", "192.0.2.81", "10.70.0.0", "10.70.0.9", "10.96.0.10",
		"10.243.0.0/16", "10.60.0.0/16"),
	"IPv6": newAddressPlan("fd00:243:1::2", "fd00:243:1::1", "fd00:60::5", "2001:db8::1", "2001:db8::80", "fd00:243:1::7", "2001:db8::81", "fd00:70::", "fd00:70::9", "fd00:96::10",
		"fd00:243::/32", "fd00:60::/32"),
}

func newAddressPlan(pod, podRouter, peer, worldNode, world, gatewayPod, other, unknown, external, service, local, remote string) addressPlan {
	a := netip.MustParseAddr
	return addressPlan{
		pod: a(pod), podRouter: a(podRouter), peer: a(peer), worldNode: a(worldNode), world: a(world), gatewayPod: a(gatewayPod), other: a(other), unknown: a(unknown), external: a(external), service: a(service),
		translation: Translation{
			Local: prefixes(local), Remote: prefixes(remote), UnknownSource: addresses(unknown), Port: 6091,
			Hosts:    []HostMapping{{External: a(external), Host: a(world)}},
			Gateways: addresses(gatewayPod),
		},
	}
}

func newNodeNetwork(t *testing.T) *nodeNetwork {
	t.Helper()
	source.NeedRoot(t, "ip", "nft")
	n := &nodeNetwork{node: newHost(t), pod: newHost(t), gateway: newHost(t), world: newHost(t)}
	// Onlink: a link that came up just now may still lack the route to its own network, by which the kernel would judge
	// the next hops.
	n.node.ip(t, fmt.Sprintf(`
link add pod type veth peer name eth0 netns %d
link add tunnel type veth peer name eth0 netns %d
link add world type veth peer name eth0 netns %d
address add 10.243.1.1/24 dev pod
address add fd00:243:1::1/64 dev pod nodad
address add 10.80.0.5/24 dev tunnel
address add fd00:80::5/64 dev tunnel nodad
address add 192.0.2.1/24 dev world
address add 2001:db8::1/64 dev world nodad
link set pod up
link set tunnel up
link set world up
route add default via 192.0.2.254 dev world onlink
route add default via 2001:db8::fe dev world onlink
route add 10.60.0.0/16 via 10.80.0.1 dev tunnel onlink
route add fd00:60::/32 via fd00:80::1 dev tunnel onlink`, n.pod.tid, n.gateway.tid, n.world.tid))
	n.pod.ip(t, `
address add 10.243.1.2/24 dev eth0
address add 10.243.1.7/24 dev eth0
address add fd00:243:1::2/64 dev eth0 nodad
address add fd00:243:1::7/64 dev eth0 nodad
link set eth0 up
route add default via 10.243.1.1 dev eth0 onlink
route add default via fd00:243:1::1 dev eth0 onlink`)
	n.gateway.ip(t, `
address add 10.80.0.1/24 dev eth0
address add fd00:80::1/64 dev eth0 nodad
address add 10.60.0.5/32 dev lo
address add fd00:60::5/128 dev lo
link set eth0 up
route add default via 10.80.0.5 dev eth0 onlink
route add default via fd00:80::5 dev eth0 onlink`)
	n.world.ip(t, `
address add 192.0.2.80/24 dev eth0
address add 192.0.2.81/24 dev eth0
address add 2001:db8::80/64 dev eth0 nodad
address add 2001:db8::81/64 dev eth0 nodad
link set eth0 up
route add 10.243.0.0/16 via 192.0.2.1 dev eth0 onlink
route add fd00:243::/32 via 2001:db8::1 dev eth0 onlink`)
	n.node.run(t, "", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	n.kubernetes(t)
	n.node.do(func() { n.table = openNFT() })
	t.Cleanup(func() { _ = n.table.close() })
	n.gateway.tellSource(t, 8080)
	n.world.tellSource(t, 8080)
	n.pod.tellSource(t, 8080)
	// A new link drops packets until the kernel has noticed that it is up.
	for _, p := range addressPlans {
		n.pod.reach(t, p.world)
		n.gateway.reach(t, p.world)
		n.world.reach(t, p.pod)
	}
	return n
}

// reach connects until that succeeds.
func (h *testHost) reach(t *testing.T, to netip.Addr) {
	t.Helper()
	h.do(func() {
		deadline := time.Now().Add(patience)
		for {
			c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, 8080).String(), 500*time.Millisecond)
			if err == nil {
				_ = c.Close()
				return
			}
			if time.Now().After(deadline) {
				t.Error(err)
				return
			}
		}
	})
}

// kubernetes is what a CNI and kube-proxy add to the node.
func (n *nodeNetwork) kubernetes(t *testing.T) {
	t.Helper()
	n.node.nft(t, `
table inet cni {
	chain postrouting {
		type nat hook postrouting priority 100
		masquerade fully-random
	}
}
table inet kube-proxy {
	chain services {
		ip daddr 192.0.2.1 tcp dport 30080 meta mark set mark or 0x4000 dnat ip to 10.60.0.5:8080
		ip6 daddr 2001:db8::1 tcp dport 30080 meta mark set mark or 0x4000 dnat ip6 to [fd00:60::5]:8080
		ip daddr 10.96.0.10 tcp dport 80 dnat ip to 10.60.0.5:8080
		ip6 daddr fd00:96::10 tcp dport 80 dnat ip6 to [fd00:60::5]:8080
	}
	chain prerouting {
		type nat hook prerouting priority -100
		jump services
	}
	chain output {
		type nat hook output priority -100
		jump services
	}
}`)
}

// translate puts a translation in force.
func (n *nodeNetwork) translate(t *testing.T, want Translation) {
	t.Helper()
	translate(t, n.table, want)
}

// TestTranslation sends real connections through a real kernel, next to a CNI
// that masquerades whatever it sees.
func TestTranslation(t *testing.T) {
	for family, p := range addressPlans {
		t.Run(family, func(t *testing.T) {
			n := newNodeNetwork(t)
			anyAddress := netip.Addr{}
			for _, test := range []struct {
				name     string
				from     *testHost
				source   netip.Addr
				to       netip.AddrPort
				want     netip.Addr
				keepPort bool
				counter  string
			}{
				{"pod to remote pod", n.pod, p.pod, netip.AddrPortFrom(p.peer, 8080), p.pod, true, "pods_kept"},
				{"pod to service of remote pods", n.pod, p.pod, netip.AddrPortFrom(p.service, 80), p.pod, true, "pods_kept"},
				{"node to remote pod", n.node, anyAddress, netip.AddrPortFrom(p.peer, 8080), p.unknown, true, "others_unknown"},
				{"node to service of remote pods", n.node, anyAddress, netip.AddrPortFrom(p.service, 80), p.unknown, true, "others_unknown"},
				{"world to NodePort of remote pods", n.world, p.world, netip.AddrPortFrom(p.worldNode, 30080), p.unknown, true, "others_unknown"},
				{"pod to NodePort of remote pods", n.pod, p.pod, netip.AddrPortFrom(p.worldNode, 30080), p.unknown, true, "others_unknown"},
				{"peer to mapped host", n.gateway, p.peer, netip.AddrPortFrom(p.world, 8080), p.worldNode, true, "peers_masqueraded"},
				{"peer to external address", n.gateway, p.peer, netip.AddrPortFrom(p.external, 8080), p.worldNode, true, "external_prerouting"},
				{"pod to external address", n.pod, p.pod, netip.AddrPortFrom(p.external, 8080), p.worldNode, true, "mapped_masqueraded"},
				{"node to external address", n.node, anyAddress, netip.AddrPortFrom(p.external, 8080), p.worldNode, true, "external_output"},
				{"pod to world", n.pod, p.pod, netip.AddrPortFrom(p.other, 8080), p.worldNode, false, ""},
			} {
				t.Run(test.name, func(t *testing.T) {
					n.translate(t, p.translation)
					before := n.count(t, test.counter)
					own, seen := test.from.ask(t, test.source, test.to)
					if seen.Addr() != test.want || test.keepPort && seen.Port() != own.Port() {
						t.Errorf("from %v, seen as %v, want address %v", own, seen, test.want)
					}
					if test.counter != "" && n.count(t, test.counter) != before+1 {
						t.Errorf("counter %s: %d, then %d", test.counter, before, n.count(t, test.counter))
					}
				})
			}
			t.Run("all hidden", func(t *testing.T) {
				hidden := p.translation
				hidden.HideAll = true
				n.translate(t, hidden)
				if _, seen := n.pod.ask(t, p.pod, netip.AddrPortFrom(p.peer, 8080)); seen.Addr() != p.unknown {
					t.Errorf("pod is seen as %v, want %v", seen, p.unknown)
				}
			})
			t.Run("without unknown source", func(t *testing.T) {
				without := p.translation
				without.UnknownSource = nil
				n.translate(t, without)
				// The reply must come back to the node: kube-proxy and the CNI see to that.
				for _, from := range []*testHost{n.world, n.pod} {
					if _, seen := from.ask(t, netip.Addr{}, netip.AddrPortFrom(p.worldNode, 30080)); seen.Addr() == p.pod || seen.Addr() == p.world {
						t.Errorf("is seen as %v", seen)
					}
				}
			})
			t.Run("removed", func(t *testing.T) {
				n.translate(t, Translation{})
				if _, seen := n.pod.ask(t, p.pod, netip.AddrPortFrom(p.peer, 8080)); seen.Addr() == p.pod {
					t.Errorf("pod is seen as %v: the CNI of this test hides nothing", seen)
				}
			})
		})
	}
}

// count returns what a counter has counted, of both families.
func (n *nodeNetwork) count(t *testing.T, name string) (packets uint64) {
	t.Helper()
	for _, c := range readTable(t, n.table).Counters() {
		if c.Name == name {
			packets += c.Packets
		}
	}
	return packets
}

// TestTunnelDatagrams sends datagrams as tunnels do.
func TestTunnelDatagrams(t *testing.T) {
	for family, p := range addressPlans {
		t.Run(family, func(t *testing.T) {
			n := newNodeNetwork(t)
			n.translate(t, p.translation)
			listen := func(h *testHost, at netip.Addr) (c *net.UDPConn) {
				h.do(func() {
					var err error
					if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 6091))); err != nil {
						t.Fatal(err)
					}
				})
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			// receive returns where the next datagram comes from.
			receive := func(c *net.UDPConn, limit time.Duration) netip.AddrPort {
				_ = c.SetReadDeadline(time.Now().Add(limit))
				_, from, err := c.ReadFromUDPAddrPort(make([]byte, 100))
				if err != nil {
					return netip.AddrPort{}
				}
				return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			}
			send := func(from *net.UDPConn, to netip.Addr) {
				if _, err := from.WriteToUDPAddrPort([]byte("datagram"), netip.AddrPortFrom(to, 6091)); err != nil {
					t.Error(err)
				}
			}
			node, gateway, world, other := listen(n.node, p.worldNode), listen(n.pod, p.gatewayPod), listen(n.world, p.world), listen(n.pod, p.pod)

			send(gateway, p.worldNode)
			if from := receive(node, patience); from.Addr() != p.gatewayPod {
				t.Errorf("gateway to its node: from %v", from)
			}
			send(gateway, p.world)
			if from := receive(world, patience); from != netip.AddrPortFrom(p.gatewayPod, 6091) {
				t.Errorf("gateway to another node: from %v, want %v", from, p.gatewayPod)
			}
			send(node, p.gatewayPod)
			if from := receive(gateway, patience); from != netip.AddrPortFrom(p.worldNode, 6091) {
				t.Errorf("node to gateway: from %v", from)
			}
			for _, stranger := range []*net.UDPConn{other, world} {
				send(stranger, p.worldNode)
				if from := receive(node, 100*time.Millisecond); from.IsValid() {
					t.Errorf("the node accepts a datagram from %v", from)
				}
			}
			if dropped := n.count(t, "strangers_dropped"); dropped != 2 {
				t.Errorf("%d dropped, want 2", dropped)
			}
		})
	}
}

// TestConnectionsSurvive changes and replaces the table under a connection.
func TestConnectionsSurvive(t *testing.T) {
	n := newNodeNetwork(t)
	p := addressPlans["IPv4"]
	n.translate(t, p.translation)
	var client net.Conn
	sees := make(chan netip.AddrPort, 1)
	n.gateway.do(func() {
		l, err := net.Listen("tcp", ":9090")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			if c, err := l.Accept(); err == nil {
				sees <- c.RemoteAddr().(*net.TCPAddr).AddrPort()
				_, _ = io.Copy(c, c)
			}
		}()
	})
	n.pod.do(func() {
		var err error
		if client, err = net.Dial("tcp", netip.AddrPortFrom(p.peer, 9090).String()); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = client.Close() })
	echo := func(when string) {
		t.Helper()
		_ = client.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(client, when); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if _, err := io.ReadFull(client, make([]byte, len(when))); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	echo("connected")
	changed := p.translation
	changed.Remote = append(prefixes("10.7.0.0/16"), changed.Remote...)
	n.translate(t, changed)
	echo("elements changed")
	changed.UnknownSource = addresses("10.70.0.1")
	n.translate(t, changed)
	echo("table replaced")
	n.node.nft(t, "delete table inet sluice-fabric")
	echo("table deleted by somebody")
	n.translate(t, changed)
	echo("table repaired")
	if from := <-sees; from.Addr().Unmap() != p.pod {
		t.Errorf("the peer sees %v, want %v", from, p.pod)
	}
}
