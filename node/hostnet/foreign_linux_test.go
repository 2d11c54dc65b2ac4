package hostnet

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// A link that was made and not marked any more is ours by its MAC address.
func TestUnmarkedLinkOfOurs(t *testing.T) {
	c := openHere(t)
	l := tunnel(KindVXLAN, 1)
	if err := c.request(addLinkMessage(l)); err != nil {
		t.Fatal(err)
	}
	a := settle(t, c, desired(l))
	if a.Links[0].Alias != l.alias() {
		t.Errorf("alias %q, want %q", a.Links[0].Alias, l.alias())
	}
	settle(t, c, Desired{})
}

func TestApplyTakenVNI(t *testing.T) {
	c := openHere(t)
	ip(t, "link add theirs type vxlan id 101 dstport 6091 remote 192.0.2.9 nolearning")
	errs := LinkErrors(c.Apply(Diff(desired(tunnel(KindVXLAN, 1)), read(t, c))))
	if err := errs["liqo.tunnel1"]; err == nil || !strings.Contains(err.Error(), "another vxlan link has VNI 101") {
		t.Errorf("errors %v", errs)
	}
}

// A link of a kind that is not ours is not read, but met.
func TestForeignLinkOfAnotherKind(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		c := reopen(t)
		ip(t, "link add liqo.tunnel1 type veth peer name peer")
		before := everything(t)
		errs := LinkErrors(c.Apply(Diff(desired(tunnel(kind, 1)), read(t, c))))
		if err := errs["liqo.tunnel1"]; !errors.Is(err, ErrInTheWay) || !strings.Contains(err.Error(), "veth") {
			t.Errorf("errors %v", errs)
		}
		settle(t, c, Desired{})
		if d := cmp.Diff(before, everything(t)); d != "" {
			t.Errorf("namespace (-before +after):\n%s", d)
		}
	})
}

// A link whose object wants another name stays until there is one of that name.
func TestRenamedToForeignName(t *testing.T) {
	for _, other := range []string{"type veth peer name peer", "type vxlan id 9 dstport 7000 remote 192.0.2.9"} {
		kinds(t, func(t *testing.T, kind Kind) {
			c := reopen(t)
			ip(t, "link add liqo.theirs "+other)
			l := tunnel(kind, 1)
			before := settle(t, c, desired(l))
			l.Name = "liqo.theirs"
			plan := Diff(desired(l), read(t, c))
			if err := c.Apply(plan); !errors.Is(err, ErrInTheWay) {
				t.Errorf("error: %v", err)
			}
			if d := cmp.Diff(before.Routes, read(t, c).Routes, cmp.AllowUnexported(Route{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
				t.Errorf("%q (-before +after):\n%s", plan.Lines(), d)
			}
			ip(t, "link delete liqo.theirs")
			if a := settle(t, c, desired(l)); len(a.Links) != 1 || a.Links[0].Name != l.Name {
				t.Errorf("%+v", a.Links)
			}
		})
	}
}

// A rule like ours that is not ours neither is taken for it nor goes with it.
func TestForeignRuleLikeOurs(t *testing.T) {
	c := openHere(t)
	ip(t, "rule add pref 600 lookup 6091")
	before := everything(t)
	settle(t, c, desired(tunnel(KindTUN, 1)))
	settle(t, c, Desired{})
	if d := cmp.Diff(before, everything(t)); d != "" {
		t.Errorf("namespace (-before +after):\n%s", d)
	}
}

// What belongs to others is never touched, whatever of it there is and whatever
// is wanted.
func TestForeignObjectsStay(t *testing.T) {
	enterNamespace(t)
	all, err := supports()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s KindSupport) bool { return !s.OK })
	for seed := range uint64(8) {
		// A fresh one each time; the thread is not used for anything else.
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Fatal(err)
		}
		ip(t, "link set lo up")
		random := rand.New(rand.NewPCG(seed, 0))
		for _, command := range foreignObjects {
			if random.IntN(2) == 0 {
				// What builds on something that is not there fails.
				_ = exec.Command("ip", strings.Fields(command)...).Run()
			}
		}
		c, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		before := everything(t)
		for range 3 {
			var want Desired
			for n := range 4 {
				if l := tunnel(all[random.IntN(len(all))].Kind, n); random.IntN(2) == 0 {
					want.Links = append(want.Links, l)
				}
			}
			// Some of it cannot be had. That is not what this test is about.
			_ = c.Apply(Diff(want, read(t, c)))
			_ = c.Apply(Diff(want, read(t, c)))
		}
		if err := c.Apply(Diff(Desired{}, read(t, c))); err != nil {
			t.Errorf("cleanup: %v", err)
		}
		if d := cmp.Diff(before, everything(t)); d != "" {
			t.Errorf("seed %d: namespace (-before +after):\n%s", seed, d)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// foreignObjects are those that look most like ours.
var foreignObjects = []string{
	"link add eth0 type veth peer name eth1",
	"link set eth1 up",
	"link set eth0 up",
	"addr add 10.80.0.5/24 dev eth0",
	"link set eth0 alias sluice:_almost",
	"link add liqo.tunnel1 type vxlan id 5 dstport 6091 remote 192.0.2.1 nolearning",
	"link add theirs type vxlan id 102 dstport 6091 remote 192.0.2.2 nolearning",
	"link add liqo.tunnel3 type veth peer name liqo.tunnel0",
	"tuntap add liqo.tunnel2 mode tun multi_queue vnet_hdr",
	"route add 10.1.0.0/16 dev lo table 6091",
	"route add 10.80.1.2 dev lo table 6091 proto 4",
	"route add 10.3.0.0/16 dev lo table 6091 metric 5",
	"route add 10.1.0.0/16 dev lo table 6092 proto 92",
	"route add 10.2.0.0/16 dev lo",
	"-6 route add fd00:0:0:2::/64 dev lo table 6091",
	"rule add pref 600 lookup 6091",
	"rule add pref 601 lookup 6091 proto 4",
	"rule add pref 600 lookup 6092 proto 92",
	"-6 rule add pref 600 lookup 6091",
}
