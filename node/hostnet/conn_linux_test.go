package hostnet

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/source"
)

// An agent that ends and starts again finds everything as it left it.
func TestRestart(t *testing.T) {
	kinds(t, func(t *testing.T, kind Kind) {
		c := reopen(t)
		want := desired(tunnel(kind, 1), tunnel(kind, 2))
		before := settle(t, c, want)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = reopen(t)
		after := read(t, c)
		if plan := Diff(want, after); !plan.Empty() {
			t.Errorf("plan after restart: %q", plan.Lines())
		}
		for _, l := range before.Links {
			if i := indexOf(t, after, l.Name); i != l.Index {
				t.Errorf("link %s was made anew", l.Name)
			}
		}
	})
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
	source.NeedPrograms(t, "setpriv")
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
		source.Lacks(t, "/dev/net/tun cannot be hidden: %v", err)
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
	tests := []struct {
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
	}
	look := func(when string) {
		for _, tt := range tests {
			got, err := c.Path(addr(tt.dst), 6091)
			if d := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
				t.Errorf("%s: path to %s (-want +got):\n%s", when, tt.dst, d)
			}
			if (tt.want.MTU == 0) != (err != nil) || err != nil && usable(addr(tt.dst)) && !errors.Is(err, ErrNoRoute) {
				t.Errorf("%s: path to %s: %v", when, tt.dst, err)
			}
		}
	}
	look("without a tunnel")
	l := tunnel(KindVXLAN, 1)
	l.Routes = []netip.Prefix{prefix("10.0.0.0/8"), prefix("198.51.100.0/24"), prefix("2001:db8::/33")}
	settle(t, c, desired(l))
	if out := ip(t, "route get 198.51.100.1"); !strings.Contains(out, "dev liqo.tunnel1") {
		t.Errorf("the tunnel takes nothing: %s", out)
	}
	look("in spite of a tunnel that takes everything")
	if p, err := c.Path(addr("10.8.0.1"), 53); err != nil || p.Device != "eth0" {
		t.Errorf("path to another port: %+v, %v, want device eth0", p, err)
	}
}

func TestNetworks(t *testing.T) {
	c := openHere(t)
	for _, command := range []string{
		"link add eth0 type veth peer name peer0", "link set peer0 up", "link set eth0 up",
		"addr add 10.0.0.5/24 dev eth0", "addr add 10.0.0.6/24 dev eth0", "addr add 198.51.100.7 peer 172.31.1.1/32 dev eth0",
		"-6 addr add 2001:db8::5/64 dev eth0 nodad", "addr add 10.0.0.1/24 dev peer0", "addr add 203.0.113.9/32 dev lo", "addr add 10.9.0.1/16 dev lo",
		"link add eth1 type veth peer name peer1", "addr add 10.5.0.1/16 dev eth1",
	} {
		ip(t, command)
	}
	settle(t, c, desired(tunnel(KindVXLAN, 1)))
	want := []Network{
		{prefix("10.0.0.0/24"), "eth0"}, {prefix("10.0.0.1/32"), "peer0"}, {prefix("10.0.0.5/32"), "eth0"}, {prefix("10.0.0.6/32"), "eth0"},
		{prefix("10.9.0.1/32"), "lo"}, {prefix("172.31.1.1/32"), "eth0"}, {prefix("198.51.100.7/32"), "eth0"}, {prefix("203.0.113.9/32"), "lo"},
		{prefix("2001:db8::/64"), "eth0"}, {prefix("2001:db8::5/128"), "eth0"},
	}
	for range 2 { // by a reader that does not know yet which links are ours, too
		got, err := c.Networks()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if c, err = OpenReadOnly(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

func TestForwarding(t *testing.T) {
	c := openHere(t)
	for _, value := range []string{"0", "1"} {
		for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile(file, []byte(value), 0); err != nil {
				source.Lacks(t, "/proc/sys cannot be written: %v", err)
			}
		}
		if n := read(t, c).NoForwarding; n.IPv4 != (value == "0") || n.IPv6 != n.IPv4 {
			t.Errorf("with %s: %+v", value, n)
		}
	}
}
