package hostnet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

func TestApplyMakesWholeTunnelsAndRemovesThem(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		c := reopen(t)
		before := everything(t)
		a := settle(t, c, desired(tunnel(kind, 1), tunnel(kind, 2)))
		if len(a.Links) != 2 || len(a.Rules) != 2 || len(a.Routes) != 6 {
			t.Errorf("%d links, %d rules, %d routes, want 2, 2, 6", len(a.Links), len(a.Rules), len(a.Routes))
		}
		for i, l := range a.Links {
			want := tunnel(kind, i+1)
			if l.Owner() != want.Owner || l.VNI != want.VNI || l.Gateway != want.Gateway || l.Port != want.Port {
				t.Errorf("%+v became %+v", want, l)
			}
			if !l.Up || l.MTU != 1340 || l.Owner() == l.Alias {
				t.Errorf("link %+v", l)
			}
		}
		routes := ip(t, "route show table 6091")
		gateway, remote := "10.80.1.1 dev liqo.tunnel1 proto 92 scope link src 10.80.0.5", "10.1.0.0/16 via 10.80.1.1 dev liqo.tunnel1 proto 92 onlink"
		if kind == KindTUN {
			remote = "10.1.0.0/16 dev liqo.tunnel1 proto 92 scope link"
		}
		for _, want := range []string{gateway, remote} {
			if !strings.Contains(routes, want) {
				t.Errorf("no route %q in\n%s", want, routes)
			}
		}
		// Whoever asks for the way is sent into the tunnel.
		if out := ip(t, "route get 10.1.2.3"); !strings.Contains(out, "dev liqo.tunnel1 table 6091 src 10.80.0.5") {
			t.Errorf("way to 10.1.2.3: %s", out)
		}
		settle(t, c, Desired{})
		if d := cmp.Diff(before, everything(t)); d != "" {
			t.Errorf("namespace before and after (-before +after):\n%s", d)
		}
	})
}

// Changes in place keep the device and take no route away, not for a moment.
func TestApplyChangesInPlace(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*Link)
		removed int // routes
	}{
		{"remote", func(l *Link) { l.Gateway = addr("192.0.2.77") }, 0},
		{"MTU", func(l *Link) { l.MTU = 1400 }, 0},
		{"owner", func(l *Link) { l.Owner = "other" }, 0},
		{"address", func(l *Link) { l.Address = addr("10.80.0.6") }, 0},
		{"routes", func(l *Link) {
			l.Routes = []netip.Prefix{prefix("10.99.0.0/16"), l.Routes[0], prefix("fd99::/64"), l.Routes[1]}
		}, 0},
		{"fewer routes", func(l *Link) { l.Routes = l.Routes[:1] }, 1},
		{"gateway address", func(l *Link) { l.GatewayAddress = addr("10.80.1.77") }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind Kind) {
				c := reopen(t)
				l := tunnel(kind, 1)
				before := settle(t, c, desired(l))
				removed := removedRoutes(t)
				tt.change(&l)
				after := settle(t, c, desired(l))
				if b, a := indexOf(t, before, l.Name), indexOf(t, after, l.Name); a != b {
					t.Errorf("the link was made anew: index %d, then %d", b, a)
				}
				if n := removed(); n != tt.removed {
					t.Errorf("%d routes were removed, want %d", n, tt.removed)
				}
			})
		})
	}
}

// Another gateway pod has the MAC address of the one before: whoever knows it need
// not ask, and wait a second if the question is lost.
func TestAnotherGatewayKeepsTheNeighbor(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		if kind == KindTUN {
			return // it has no neighbors in the kernel
		}
		c := reopen(t)
		l := tunnel(kind, 1)
		settle(t, c, desired(l))
		ip(t, "neigh replace "+l.GatewayAddress.String()+" dev "+l.Name+" lladdr 02:00:00:00:00:09 nud reachable")
		l.Gateway = addr("192.0.2.77")
		if n := settle(t, c, desired(l)).Links[0].Neighbor; n.MAC != (MAC{2, 0, 0, 0, 0, 9}) {
			t.Errorf("neighbor %+v", n)
		}
	})
}

// What cannot be changed in place is made anew, with the same MAC address where
// it is the same tunnel.
func TestApplyMakesAnew(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		if kind == KindTUN {
			t.Skip("a TUN device has nothing of the sort")
		}
		c := reopen(t)
		l := tunnel(kind, 1)
		before := settle(t, c, desired(l))
		l.Port = 7000
		after := settle(t, c, desired(l))
		if before.Links[0].Index == after.Links[0].Index || before.Links[0].MAC != after.Links[0].MAC {
			t.Errorf("before %+v\nafter  %+v", before.Links[0], after.Links[0])
		}
		l.Gateway = addr("2001:db8::1")
		settle(t, c, desired(l))
		l.VNI++
		settle(t, c, desired(l))
		l.Kind = KindTUN
		settle(t, c, desired(l))
		l.Kind = kind
		settle(t, c, desired(l))
	})
}

func TestApplyIPv6(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		c := reopen(t)
		l := tunnel(kind, 1)
		l.Gateway, l.Address, l.GatewayAddress = addr("2001:db8::1"), addr("fd80::5"), addr("fd80::1")
		l.Routes = l.Routes[1:]
		settle(t, c, desired(l))
		if out := ip(t, "-6 route get fd00:0:0:1::9"); !strings.Contains(out, "dev liqo.tunnel1") || !strings.Contains(out, "table 6091") {
			t.Errorf("way to fd00:0:0:1::9: %s", out)
		}
		if out := ip(t, "-6 route show table main"); strings.Contains(out, "fd80") {
			t.Errorf("a route outside of our table:\n%s", out)
		}
		l.Address = addr("fd80::6")
		settle(t, c, desired(l))
	})
}

// Without IPv6 on the host, what needs none works.
func TestApplyWithoutIPv6(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		for _, which := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0); err != nil {
				t.Skipf("SKIPPED: %v", err)
			}
		}
		c := reopen(t)
		l := tunnel(kind, 1)
		errs := LinkErrors(c.Apply(Diff(desired(l), read(t, c))))
		if err := errs[l.Name]; len(errs) != 1 || err == nil || !strings.Contains(err.Error(), "IPv6 is disabled here") {
			t.Errorf("errors %v", errs)
		}
		l.Routes = l.Routes[:1]
		settle(t, c, desired(l))
	})
}

// A link that cannot be set up leaves nothing behind, and does not stop others.
func TestNothingIsLeftHalfDone(t *testing.T) {
	c := openHere(t)
	pc, err := net.ListenPacket("udp", ":6091")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	refused, fine := tunnel(KindVXLAN, 1), tunnel(KindVXLAN, 2)
	fine.Port = 7000
	want := desired(refused, fine)

	errs := LinkErrors(c.Apply(Diff(want, read(t, c))))
	if len(errs) != 1 || !errors.Is(errs[refused.Name], unix.EADDRINUSE) || !errors.Is(errs[refused.Name], ErrInTheWay) || !strings.Contains(errs[refused.Name].Error(), "stop it or choose another port") {
		t.Errorf("errors %v", errs)
	}
	if out := everything(t); strings.Contains(out, refused.Name) {
		t.Errorf("left behind:\n%s", out)
	}
	if d := cmp.Diff([]string(nil), Diff(desired(fine), read(t, c)).Lines(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("the other link (-want +got):\n%s", d)
	}
	_ = pc.Close()
	settle(t, c, want)
}

// The gateway hears of a node as soon as there is a tunnel.
func TestAnnouncement(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		if kind == KindTUN {
			t.Skip("the agent is the neighbor")
		}
		c := reopen(t)
		ip(t, "link add under type veth peer name under2")
		ip(t, "link set under2 up")
		ip(t, "link set under up")
		ip(t, "addr add 192.0.2.200/24 dev under")
		settle(t, c, desired(tunnel(kind, 1)))
		if n := read(t, c).Links[0].Neighbor; n.State != "incomplete" || n.Addr != tunnel(kind, 1).GatewayAddress {
			t.Errorf("neighbor %+v, want that the kernel asks for it", n)
		}
		ip(t, "neigh replace 10.80.1.1 dev liqo.tunnel1 lladdr 02:00:00:00:00:09 nud reachable")
		n := read(t, c).Links[0].Neighbor
		if n.State != "reachable" || n.MAC != (MAC{2, 0, 0, 0, 0, 9}) || time.Since(n.Confirmed) > time.Minute {
			t.Errorf("neighbor %+v", n)
		}
	})
}

func TestCounters(t *testing.T) {
	c := openHere(t)
	settle(t, c, desired(tunnel(KindVXLAN, 1)))
	l := read(t, c).Links[0]
	// Without a way to the gateway each packet, the announcement first, is an error.
	if l.Counters == (Counters{}) {
		t.Errorf("counters %+v", l.Counters)
	}
}
