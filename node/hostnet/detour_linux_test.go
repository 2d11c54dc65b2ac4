package hostnet

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDetours asks this kernel where it passes on what pods send.
func TestDetours(t *testing.T) {
	bridge := []string{"link add cni0 type bridge", "link set cni0 up", "addr add 10.60.1.1/24 dev cni0", "-6 addr add fd60:1::1/64 dev cni0 nodad"}
	routed := []string{"link add cali1 type veth peer name pod1", "link set pod1 up", "link set cali1 up", "route add 10.60.1.7/32 dev cali1", "-6 route add fd60:1::7/128 dev cali1"}
	vpn := []string{"link add wg0 type veth peer name wg0p", "link set wg0p up", "link set wg0 up"}
	const (
		all4 = "10.1.0.0/16 by %q (%s) to %s"
		all6 = "fd00:0:0:1::/64 by %q (%s) to %s"
	)
	for _, tt := range []struct {
		name     string
		pods     []string
		commands []string
		want     []string
	}{
		{"nothing of others", bridge, nil, nil},
		{"behind ours", bridge, []string{"route add default dev wg0 table 52", "rule add pref 700 lookup 52"}, nil},
		{"everything", bridge, []string{"route add default dev wg0 table 52", "rule add pref 500 lookup 52"},
			[]string{fmt.Sprintf(all4, "500: from all lookup 52", "table 52", "wg0")}},
		{"IPv6 alone", bridge, []string{"-6 route add default dev wg0 table 52", "-6 rule add pref 500 lookup 52"},
			[]string{fmt.Sprintf(all6, "500: from all lookup 52", "table 52", "wg0")}},
		{"an empty table first", bridge, []string{"route add 192.0.2.0/24 dev wg0 table 51", "rule add pref 400 lookup 51", "route add 10.1.0.0/16 dev wg0 table 1052", "rule add pref 500 to 10.0.0.0/8 lookup 1052"},
			[]string{fmt.Sprintf(all4, "500: from all to 10.0.0.0/8 lookup 1052", "table 1052", "wg0")}},
		{"a table with nothing to it", bridge, []string{"route add 192.0.2.0/24 dev wg0 table 51", "rule add pref 400 lookup 51"}, nil},
		{"from the pods, each with a device", routed, []string{"route add default dev wg0 table 52", "rule add pref 500 from 10.60.0.0/16 lookup 52"},
			[]string{fmt.Sprintf(all4, "500: from 10.60.0.0/16 lookup 52", "table 52", "wg0")}},
		{"by the device of pods", routed, []string{"route add default dev wg0 table 52", "rule add pref 500 iif cali1 lookup 52", "-6 route add default dev wg0 table 52", "-6 rule add pref 500 iif cali1 lookup 52"},
			[]string{fmt.Sprintf(all4, "500: from all iif cali1 lookup 52", "table 52", "wg0"), fmt.Sprintf(all6, "500: from all iif cali1 lookup 52", "table 52", "wg0")}},
		{"by another device", routed, []string{"route add default dev wg0 table 52", "rule add pref 500 iif wg0 lookup 52"}, nil},
		{"the main table", bridge, []string{"route add default dev wg0", "rule add pref 500 lookup main"},
			[]string{fmt.Sprintf(all4, "500: from all lookup 254", "table 254", "wg0")}},
		{"the main table but for its default", bridge, []string{"route add default dev wg0", "rule add pref 500 lookup main suppress_prefixlength 0"}, nil},
		{"from others", bridge, []string{"route add default dev wg0 table 52", "rule add pref 500 from 192.168.0.0/16 lookup 52"}, nil},
		{"not from others", bridge, []string{"route add default dev wg0 table 52", "rule add pref 500 not from 192.168.0.0/16 lookup 52"},
			[]string{fmt.Sprintf(all4, "500: not from 192.168.0.0/16 lookup 52", "table 52", "wg0")}},
		{"to another prefix", bridge, []string{"route add default dev wg0 table 52", "rule add pref 500 to 10.2.0.0/16 lookup 52"}, nil},
		{"with a mark", bridge, []string{"route add default dev wg0 table 52", "rule add pref 500 fwmark 7 lookup 52"}, nil},
		{"dropped by a rule", bridge, []string{"rule add pref 500 to 10.1.0.0/16 prohibit", "-6 rule add pref 500 unreachable"},
			[]string{fmt.Sprintf(all4, "500: from all to 10.1.0.0/16 prohibit", "rule", "nothing"), fmt.Sprintf(all6, "500: from all unreachable", "rule", "nothing")}},
		{"dropped by a route", bridge, []string{"route add blackhole default table 52", "rule add pref 500 lookup 52", "-6 route add blackhole default table 53", "-6 rule add pref 500 lookup 53"},
			[]string{fmt.Sprintf(all4, "500: from all lookup 52", "table 52", "nothing"), fmt.Sprintf(all6, "500: from all lookup 53", "table 53", "nothing")}},
		{"a pod of another node", []string{"route add 10.60.0.0/16 dev wg0"}, []string{"route add default dev wg0 table 52", "rule add pref 500 from 10.60.0.0/16 lookup 52"},
			[]string{fmt.Sprintf(all4, "500: from 10.60.0.0/16 lookup 52", "table 52", "wg0")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := openHere(t)
			for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
				if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			l := tunnel(KindVXLAN, 1)
			settle(t, c, desired(l))
			for _, command := range append(append(append([]string(nil), vpn...), tt.pods...), tt.commands...) {
				ip(t, command)
			}
			pods := []netip.Prefix{prefix("10.60.0.0/16"), prefix("fd60::/16")}
			found, err := c.Detours([]Link{l}, pods)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range found {
				by, to := "rule", "nothing"
				if d.Table != 0 {
					by = fmt.Sprintf("table %d", d.Table)
				}
				if d.Device != "" {
					to = d.Device
				}
				if (d.Why == "") != (d.Device != "") || d.Link != l.Name || !strings.HasPrefix(d.Rule, fmt.Sprint(d.Priority, ":")) {
					t.Errorf("%+v", d)
				}
				got = append(got, fmt.Sprintf("%v by %q (%s) to %s", d.Prefix, d.Rule, by, to))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("detours (-want +got):\n%s\n%+v\n%s\n%s", d, found, ip(t, "rule"), ip(t, "-6 rule"))
			}
		})
	}
}

// A host that passes nothing on says nothing about its rules.
func TestDetoursWithoutForwarding(t *testing.T) {
	c := openHere(t)
	l := tunnel(KindVXLAN, 1)
	settle(t, c, desired(l))
	for _, command := range []string{"link add cni0 type bridge", "link set cni0 up", "addr add 10.60.1.1/24 dev cni0", "route add 192.0.2.0/24 dev cni0 table 51", "rule add pref 400 lookup 51"} {
		ip(t, command)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := c.Detours([]Link{l}, []netip.Prefix{prefix("10.60.0.0/16")}); err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
