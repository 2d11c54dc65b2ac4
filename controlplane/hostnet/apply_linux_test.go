package hostnet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// everything is all of the namespace that a step could touch, as ip(8) sees it.
func everything(t *testing.T) string {
	t.Helper()
	return ip(t, "-d link show") + ip(t, "addr show") + everythingButLinks(t)
}

// everythingButLinks leaves out what changes by itself: the state of a carrier.
func everythingButLinks(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, what := range []string{"route show table all", "-6 route show table all", "rule", "-6 rule"} {
		all.WriteString(ip(t, what))
	}
	return all.String()
}

func TestApplyMakesWholeTunnelsAndRemovesThem(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		c := reopen(t)
		before := everything(t)
		a := settle(t, c, desired(tunnel(kind, 1), tunnel(kind, 2)))
		if len(a.Links) != 2 || len(a.Rules) != 2 || len(a.Routes) != 6 {
			t.Errorf("%d links, %d rules, %d routes, want 2, 2, 6", len(a.Links), len(a.Rules), len(a.Routes))
		}
		for _, l := range a.Links {
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
				routes := monitor(t, "route")
				tt.change(&l)
				after := settle(t, c, desired(l))
				if b, a := indexOf(t, before, l.Name), indexOf(t, after, l.Name); a != b {
					t.Errorf("the link was made anew: index %d, then %d", b, a)
				}
				removed := 0
				for _, line := range routes() {
					// A device route of the kernel's own belongs to an address.
					if strings.HasPrefix(line, "Deleted") && strings.Contains(line, "proto 92") {
						removed++
					}
				}
				if removed != tt.removed {
					t.Errorf("%d routes were removed, want %d", removed, tt.removed)
				}
			})
		})
	}
}

// monitor runs ip monitor and returns what stops it and returns its lines.
func monitor(t *testing.T, what string) (stop func() []string) {
	t.Helper()
	cmd := exec.Command("ip", "monitor", what)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It listens when its socket is bound to groups.
	eventually(t, "ip monitor listens", func() bool {
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/netlink", cmd.Process.Pid))
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) > 3 && f[2] == fmt.Sprint(cmd.Process.Pid) && f[3] != "00000000" {
				return true
			}
		}
		return false
	})
	return func() []string {
		// What happened before is reported before.
		ip(t, "route add 203.0.113.113/32 dev lo")
		ip(t, "route del 203.0.113.113/32 dev lo")
		var lines []string
		for scan := bufio.NewScanner(out); scan.Scan(); {
			if strings.HasPrefix(scan.Text(), "Deleted 203.0.113.113") {
				break
			}
			lines = append(lines, scan.Text())
		}
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		return lines
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
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

// Everything somebody can do to ours is seen and put right.
func TestTamperingIsSeenAndPutRight(t *testing.T) {
	for _, command := range []string{
		"link set liqo.tunnel1 down",
		"link set liqo.tunnel1 mtu 1290",
		"link set liqo.tunnel1 alias x",
		"link del liqo.tunnel1",
		"addr del 10.80.0.5/32 dev liqo.tunnel1",
		"addr add 10.80.0.77/24 dev liqo.tunnel1",
		"route del 10.1.0.0/16 table 6091",
		"route replace 10.1.0.0/16 dev lo table 6091 proto 92",
		"route replace 10.1.0.0/16 table 6091 proto 92 nexthop dev lo nexthop dev liqo.tunnel1",
		"route append 10.1.0.0/16 dev lo table 6091 proto 92",
		"route append blackhole 10.1.0.0/16 table 6091 proto 92",
		"route add 10.55.0.0/16 dev lo table 6091 proto 92",
		"route flush table 6091",
		"-6 route del fd00:0:0:1::/64 table 6091",
		"-6 route flush table 6091",
		"-6 route add unreachable fd55::/64 table 6091 proto 92",
		"rule del pref 600",
		"-6 rule del pref 600",
		"rule add pref 99 lookup 6091 proto 92",
		"rule add pref 99 from 10.9.0.0/16 iif lo lookup 6091 proto 92",
		"rule add pref 600 not to 10.9.0.0/16 lookup 6091 proto 92",
	} {
		t.Run(command, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind Kind) {
				c := reopen(t)
				want := desired(tunnel(kind, 1), tunnel(kind, 2))
				settle(t, c, want)
				events := watch(t, c)
				if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
					t.Skipf("SKIPPED: this kernel cannot be tampered with like that: %v: %s", err, out)
				}
				events.wait(t, Event{Ours: true})
				if kind != KindTUN || command != "link set liqo.tunnel1 alias x" { // A TUN device without alias is not known to be ours.
					settle(t, c, want)
				}
			})
		})
	}
}

// Kernel links have attributes of their own to be tampered with.
func TestTamperingWithKernelLinks(t *testing.T) {
	for _, command := range []string{
		"link set liqo.tunnel1 address 02:00:00:00:00:01",
		"link set liqo.tunnel1 type KIND id 101 remote 192.0.2.99",
	} {
		t.Run(command, func(t *testing.T) {
			kinds(t, func(t *testing.T, kind Kind) {
				if kind == KindTUN {
					t.Skip("not a kernel link")
				}
				command := strings.ReplaceAll(command, "KIND", string(kind))
				c := reopen(t)
				settle(t, c, desired(tunnel(kind, 1)))
				events := watch(t, c)
				ip(t, command)
				events.wait(t, Event{Ours: true})
				settle(t, c, desired(tunnel(kind, 1)))
			})
		})
	}
}

// watched collects events.
type watched chan Event

// watch begins to watch, and has seen the first event when it returns.
func watch(t *testing.T, c *Conn) watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events := make(watched, 1000)
	done := make(chan error)
	go func() { done <- c.Watch(ctx, func(e Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	if e := <-events; e != (Event{Ours: true, Paths: true}) {
		t.Errorf("first event %+v, want everything", e)
	}
	return events
}

// wait waits for an event that includes want.
func (w watched) wait(t *testing.T, want Event) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case e := <-w:
			if e.Ours == want.Ours && e.Paths == want.Paths {
				return
			}
		case <-timeout:
			t.Fatalf("no event %+v", want)
		}
	}
}

func TestWatchTellsOursFromOthers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	c := openHere(t)
	settle(t, c, desired(tunnel(KindTUN, 1)))
	events := watch(t, c)
	for _, tt := range []struct {
		command string
		want    Event
	}{
		{"link add other type veth peer name other2", Event{Paths: true}},
		{"link set other up", Event{Paths: true}},
		{"addr add 198.51.100.1/24 dev other", Event{Paths: true}},
		{"route add 203.0.113.0/24 dev other", Event{Paths: true}},
		{"-6 route add 2001:db8:5::/64 dev other", Event{Paths: true}},
		{"rule add pref 77 lookup 77", Event{Paths: true}},
		{"link set other2 name liqo.mine", Event{Ours: true}},
		{"route add 203.0.113.0/24 dev other table 6091", Event{Ours: true}},
		{"addr add 198.51.100.2/32 dev liqo.tunnel1", Event{Ours: true}},
		{"link del liqo.tunnel1", Event{Ours: true}},
	} {
		ip(t, tt.command)
		events.wait(t, tt.want)
	}
}

// An agent that ends and starts again finds everything as it left it.
func TestRestart(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		c := reopen(t)
		want := desired(tunnel(kind, 1), tunnel(kind, 2))
		settle(t, c, want)
		before := everythingButLinks(t)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = reopen(t)
		if plan := Diff(want, read(t, c)); !plan.Empty() {
			t.Errorf("plan after restart: %q", plan.Lines())
		}
		if d := cmp.Diff(before, everythingButLinks(t)); d != "" {
			t.Errorf("namespace (-before +after):\n%s", d)
		}
	})
}

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

func TestLockOfTheNamespace(t *testing.T) {
	c := openHere(t)
	if _, err := Open(); !errors.Is(err, ErrInUse) {
		t.Errorf("second agent: %v, want %v", err, ErrInUse)
	}
	reader, err := OpenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	settle(t, c, desired(tunnel(KindTUN, 1)))
	if a := read(t, reader); len(a.Links) != 1 {
		t.Errorf("reader sees %+v", a.Links)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	reopen(t)
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
	if len(errs) != 1 || !errors.Is(errs[refused.Name], unix.EADDRINUSE) || !strings.Contains(errs[refused.Name].Error(), "stop it or choose another port") {
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
		if err := errs["liqo.tunnel1"]; !errors.Is(err, errForeignLink) || !strings.Contains(err.Error(), "veth") {
			t.Errorf("errors %v", errs)
		}
		settle(t, c, Desired{})
		if d := cmp.Diff(before, everything(t)); d != "" {
			t.Errorf("namespace (-before +after):\n%s", d)
		}
	})
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
	all = slices.DeleteFunc(all, func(s KindSupport) bool { return !s.OK })
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

// TestNotPermitted runs itself without NET_ADMIN.
func TestNotPermitted(t *testing.T) {
	if os.Getenv("HOSTNET_TEST_UNPRIVILEGED") != "" {
		_, err := Open()
		if !errors.Is(err, ErrNotPermitted) || !strings.Contains(err.Error(), "NET_ADMIN") {
			t.Errorf("open: %v, want %v", err, ErrNotPermitted)
		}
		c, err := OpenReadOnly()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a := read(t, c)
		if err := LinkErrors(c.Apply(Diff(desired(tunnel(KindVXLAN, 1)), a)))["liqo.tunnel1"]; !errors.Is(err, ErrNotPermitted) {
			t.Errorf("apply: %v, want %v", err, ErrNotPermitted)
		}
		for _, s := range c.Probe() {
			if s.OK {
				t.Errorf("%s can be had", s.Kind)
			}
		}
		return
	}
	enterNamespace(t)
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("SKIPPED: needs setpriv(1) of util-linux to drop a capability")
	}
	cmd := exec.Command("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", os.Args[0], "-test.run=^TestNotPermitted$")
	cmd.Env = append(os.Environ(), "HOSTNET_TEST_UNPRIVILEGED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProbe(t *testing.T) {
	c := openHere(t)
	before := everything(t)
	for _, s := range c.Probe() {
		if s.OK == (s.Reason != "") {
			t.Errorf("%+v: a reason belongs to what is missing", s)
		}
		err := exec.Command("ip", "link", "add", "probe", "type", string(s.Kind), "id", "1", "remote", "192.0.2.1", "dstport", "1").Run()
		if s.Kind != KindTUN && (err == nil) != s.OK {
			t.Errorf("%s: %+v, but ip link add says %v", s.Kind, s, err)
		}
		_ = exec.Command("ip", "link", "del", "probe").Run()
	}
	if d := cmp.Diff(before, everything(t)); d != "" {
		t.Errorf("namespace (-before +after):\n%s", d)
	}
}

func TestProbeWithoutTUN(t *testing.T) {
	c := openHere(t)
	// The thread gets file systems of its own.
	if err := errors.Join(
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", "/dev/net", "tmpfs", 0, ""),
	); err != nil {
		t.Skipf("SKIPPED: cannot hide /dev/net/tun: %v", err)
	}
	i := slices.IndexFunc(c.Probe(), func(s KindSupport) bool {
		return s.Kind == KindTUN && !s.OK && strings.Contains(s.Reason, "modprobe tun")
	})
	if i < 0 {
		t.Errorf("without /dev/net/tun: %+v", c.Probe())
	}
}

func TestPath(t *testing.T) {
	c := openHere(t)
	for _, command := range []string{
		"link add eth0 type veth peer name peer0", "link set peer0 up", "link set eth0 mtu 1450 up", "addr add 10.0.0.5/24 dev eth0", "-6 addr add 2001:db8::5/64 dev eth0 nodad",
		"link add eth1 type veth peer name peer1", "link set peer1 up", "link set eth1 up", "addr add 10.0.9.5/24 dev eth1",
		"route add 10.7.0.0/16 via 10.0.0.1 mtu 1400",
		"route add default via 10.0.0.1", "route add unreachable 10.66.0.0/16", "route add blackhole 10.67.0.0/16", "route add prohibit 10.68.0.0/16",
		"rule add pref 100 ipproto udp dport 6091 to 10.8.0.0/16 lookup 100", "route add default dev eth1 table 100",
	} {
		ip(t, command)
	}
	for _, tt := range []struct {
		dst  string
		want Path // without MTU: ErrNoRoute
	}{
		{"10.0.0.9", Path{Source: addr("10.0.0.5"), Device: "eth0", MTU: 1450}},
		{"10.7.0.1", Path{Source: addr("10.0.0.5"), Device: "eth0", MTU: 1400}},
		{"10.8.0.1", Path{Source: addr("10.0.9.5"), Device: "eth1", MTU: 1500}},
		{"198.51.100.1", Path{Source: addr("10.0.0.5"), Device: "eth0", MTU: 1450}},
		{"10.0.9.5", Path{Source: addr("10.0.9.5"), Device: "lo", MTU: 65536, Local: true}},
		{"2001:db8::9", Path{Source: addr("2001:db8::5"), Device: "eth0", MTU: 1450}},
		{"2001:db8:1::9", Path{}},
		{"10.66.0.1", Path{}},
		{"10.67.0.1", Path{}},
		{"10.68.0.1", Path{}},
		{"224.0.0.1", Path{}},
	} {
		got, err := c.Path(addr(tt.dst), 6091)
		if d := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("path to %s (-want +got):\n%s", tt.dst, d)
		}
		if (tt.want.MTU == 0) != (err != nil) || err != nil && usable(addr(tt.dst)) && !errors.Is(err, ErrNoRoute) {
			t.Errorf("path to %s: %v", tt.dst, err)
		}
	}
	if p, err := c.Path(addr("10.8.0.1"), 53); err != nil || p.Device != "eth0" {
		t.Errorf("path to another port: %+v, %v, want device eth0", p, err)
	}
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
