package hostnet

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What Liqo's agent has made goes, and nothing else, whatever it looks like.
func TestLeftInKernel(t *testing.T) {
	c := openHere(t)
	p := Predecessor{
		Fabrics: []PredecessorFabric{{Name: "milan", Prefixes: []netip.Prefix{prefix("10.80.0.1/32")}}, {Name: "rome", Prefixes: []netip.Prefix{prefix("10.3.0.0/16")}}},
		Tables:  []string{"milan-masquerade-bypass", "none"},
	}
	for _, command := range []string{
		"link add liqo.milan type veth peer name peer0",
		"link set liqo.milan up",
		"link add eth0 type veth peer name peer1",
		"link set eth0 up",
		"addr add 10.80.0.5/32 dev liqo.milan",
		"addr add fd00::1/64 dev eth0 nodad",
		// Others use the table of a fabric, and look almost like Liqo.
		"rule add pref 900 to 10.3.0.0/16 lookup 1541114207",
		"route add 10.3.0.0/16 dev liqo.milan table 1541114207",
		"-6 route add fd00:3::/64 dev eth0 table 1541114207",
		"rule add pref 901 to 10.1.0.0/16 iif eth0 lookup 978431797",
		"rule add pref 902 to 10.1.0.0/16 fwmark 0x1/0xf lookup 978431797",
		"rule add pref 903 to 10.1.0.0/16 lookup 978431797 suppress_prefixlength 8",
		"rule add pref 904 not to 10.1.0.0/16 lookup 978431797",
		"rule add pref 905 to 10.1.0.0/16 lookup 978431797 proto 186",
		"rule add pref 906 to 10.1.0.0/16 lookup 978431798",
		"rule add pref 907 to 10.2.0.0/16 lookup 978431797",
		"route add 10.1.0.0/16 dev liqo.milan table 978431798",
		"route add 10.1.0.0/16 dev liqo.milan",
	} {
		ip(t, command)
	}
	nftCommand(t, `table inet cni { }
		table ip milan { }
		table arp milan-masquerade-bypass { }`)
	all := func() string { return everything(t) + nftCommand(t, "list ruleset") }
	before := all()
	for range 2 { // once more is no trouble
		for _, command := range []string{
			"rule add pref 32765 to 10.80.0.1 lookup 978431797",
			"rule add pref 32764 to 10.1.0.0/16 lookup 978431797",
			"route add 10.80.0.1 dev liqo.milan scope link table 978431797",
			"route add 10.1.0.0/16 via 10.80.0.1 dev liqo.milan onlink table 978431797",
		} {
			ip(t, command)
		}
		nftCommand(t, `table ip milan-masquerade-bypass {
			chain pre-postrouting { type nat hook postrouting priority 99; ip saddr 10.60.0.0/16 ip daddr 10.1.0.0/16 snat to 10.60.0.1; }
		}`)
		left, err := c.Left(p)
		if err != nil {
			t.Fatal(err)
		}
		if want := "2 rules, 2 routes, table ip milan-masquerade-bypass"; left.String() != want {
			t.Fatalf("left is %q, want %q", left, want)
		}
		others := strings.Join(left.Others, "\n")
		for _, want := range []string{"1541114207", "rule 901:", "rule 902:", "rule 903:", "rule 904:", "rule 905:", "rule 907:"} {
			if !strings.Contains(others, want) {
				t.Errorf("of others there is not %q:\n%s", want, others)
			}
		}
		// What somebody has removed meanwhile is no error, and what follows goes all the same.
		for range 2 {
			if err := c.Apply(left.Plan); err != nil {
				t.Error(err)
			}
		}
		if left, err = c.Left(p); err != nil || left.String() != "" {
			t.Errorf("left is %q after that, %v", left, err)
		}
		if d := cmp.Diff(before, all()); d != "" {
			t.Fatalf("the namespace (-before +after):\n%s", d)
		}
	}
}

// Without Liqo there is nothing to find, nor where the kernel has no such tables.
func TestLeftOfNobody(t *testing.T) {
	c := openHere(t)
	for _, p := range []Predecessor{{}, {Fabrics: []PredecessorFabric{{Name: "milan"}}, Tables: []string{"milan-masquerade-bypass"}}} {
		if left, err := c.Left(p); err != nil || left.String() != "" || len(left.Others) > 0 {
			t.Errorf("%+v: left is %+v, %v", p, left, err)
		}
	}
}

// The alias alone changes, and can be taken away again.
func TestSetAlias(t *testing.T) {
	c := openHere(t)
	ip(t, "link add liqo.milan type vxlan id 7 dstport 6091 remote 192.0.2.9 nolearning")
	before := ip(t, "-d link show")
	a := read(t, c)
	if len(a.Foreign) != 1 || a.Foreign[0].Tunnel.VNI != 7 {
		t.Fatalf("%+v", a.Foreign)
	}
	for _, alias := range []string{"sluice: InternalFabric t/milan (MAC 4a:1b:00:5e:10:07)", ""} {
		if err := c.Apply(Plan{Steps: []Step{setAlias{name: "liqo.milan", index: a.Foreign[0].Tunnel.Index, alias: alias}}}); err != nil {
			t.Fatal(err)
		}
		want := before
		if alias != "" {
			want += "    alias " + alias + "\n"
		}
		if d := cmp.Diff(want, ip(t, "-d link show")); d != "" {
			t.Errorf("alias %q (-want +got):\n%s", alias, d)
		}
	}
}
