package hostnet

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestCount counts real packets in a real kernel, at both sides of the node.
func TestCount(t *testing.T) {
	for family, p := range addressPlans {
		t.Run(family, func(t *testing.T) {
			n := newNodeNetwork(t)
			n.translate(t, p.translation)
			begin := func(f Flow) *Counter {
				t.Helper()
				var c *Counter
				n.node.do(func() {
					var err error
					if c, err = count(f); err != nil {
						t.Error(err)
					}
				})
				if c == nil {
					t.FailNow()
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			// seen are the packets at pod outbound, link outbound, link inbound, pod inbound.
			seen := func(c *Counter, udp bool) (out [4]uint64) {
				t.Helper()
				all, err := c.Read()
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range all {
					i := map[bool]map[string]int{true: {"pod": 0, "link": 1}, false: {"link": 2, "pod": 3}}[s.Outbound][s.Point]
					if out[i] = s.Packets - s.UDP; udp {
						out[i] = s.UDP
					}
				}
				return out
			}
			// A packet may still be on its way when the one who has sent it goes on.
			until := func(what string, c *Counter, udp bool, done func([4]uint64) bool) (got [4]uint64) {
				t.Helper()
				for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
					if got = seen(c, udp); done(got) {
						return got
					}
					if time.Now().After(deadline) {
						t.Fatalf("%s: %v", what, got)
					}
				}
			}
			whole := func(what string, c *Counter, least uint64) [4]uint64 {
				t.Helper()
				return until(what, c, false, func(got [4]uint64) bool {
					return got[0] >= least && got[0] == got[1] && got[2] >= least && got[2] == got[3]
				})
			}
			datagrams := func(what string, want [4]uint64, c *Counter) {
				t.Helper()
				until(what, c, true, func(got [4]uint64) bool { return got == want })
			}
			const link = "tunnel"
			byPort, all, other := begin(Flow{link, p.pod, p.peer, 8080}), begin(Flow{link, p.pod, p.peer, 0}), begin(Flow{link, p.pod, p.peer, 443})
			elsewhere := begin(Flow{"world", p.pod, p.peer, 8080})
			if got := seen(byPort, false); got != [4]uint64{} {
				t.Errorf("before anything: %v", got)
			}
			n.pod.ask(t, p.pod, netip.AddrPortFrom(p.peer, 8080))
			const handshake = 3 // at least, in each direction, with the answer and the end
			first := whole("a remote pod", byPort, handshake)
			n.pod.ask(t, p.pod, netip.AddrPortFrom(p.service, 80))
			second := whole("a Service of remote pods", byPort, first[0]+handshake)
			n.gateway.ask(t, p.peer, netip.AddrPortFrom(p.pod, 8080))
			third := whole("the remote pod asks", byPort, second[0]+handshake)
			whole("all ports", all, third[0])
			if got := seen(other, false); got != [4]uint64{} {
				t.Errorf("another port: %v", got)
			}
			if got := seen(elsewhere, false); got[0] < third[0] || got[1] != 0 || got[2] != 0 || got[3] < third[3] {
				t.Errorf("a link that they do not take: %v, by their own %v", got, third)
			}

			send := func() {
				n.pod.do(func() {
					d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.pod, 0))}
					c, err := d.Dial("udp", netip.AddrPortFrom(p.peer, 8080).String())
					if err == nil {
						_, err = c.Write([]byte("x"))
						_ = c.Close()
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			send()
			datagrams("a datagram", [4]uint64{1, 1, 0, 0}, byPort)
			n.node.nft(t, "table inet firewall {\n chain forward {\n type filter hook forward priority 0\n udp dport 8080 drop\n }\n}")
			send()
			datagrams("a datagram that the node drops", [4]uint64{2, 1, 0, 0}, byPort)

			// Who makes all tables anew leaves those alone that have an owner.
			n.node.nft(t, "flush ruleset")
			send()
			datagrams("after a flush of all tables", [4]uint64{3, 2, 0, 0}, byPort)
			for _, c := range []*Counter{byPort, all, other, elsewhere} {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			n.node.do(func() {
				out, err := exec.Command("nft", "list", "tables").CombinedOutput()
				if err != nil || strings.Contains(string(out), CountTable) {
					t.Errorf("left behind: %v\n%s", err, out)
				}
			})
			if _, err := byPort.Read(); err == nil {
				t.Error("a closed Counter can be read")
			}
		})
	}
}

// TestCountWithoutPrivilege: it says what it lacks.
func TestCountWithoutPrivilege(t *testing.T) {
	c := openHere(t)
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	hdr, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_NET_ADMIN // of this thread, which ends with the test
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
	_, err := c.Count(Flow{"liqo.milan", netip.MustParseAddr("10.243.1.5"), netip.MustParseAddr("10.71.2.20"), 443})
	if diff := cmp.Diff(errPermission, err, cmp.Comparer(func(x, y error) bool { return x == y })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
