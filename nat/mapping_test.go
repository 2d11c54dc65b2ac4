package nat_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/nat"
)

func mapping(inside, outside string) nat.Mapping {
	return nat.Mapping{Inside: netip.MustParsePrefix(inside), Outside: netip.MustParsePrefix(outside)}
}

func TestNewTableRefuses(t *testing.T) {
	pods := mapping("10.71.0.0/16", "10.243.0.0/16")
	tests := []struct {
		name          string
		remote, local []nat.Mapping
		want          []string // parts of the message
	}{
		{"no prefix", []nat.Mapping{{}}, nil, []string{"remote mapping invalid Prefix (inside) = invalid Prefix (outside)", "not a prefix"}},
		{"half a mapping", []nat.Mapping{{Inside: pods.Inside}}, nil, []string{"10.71.0.0/16 (inside) = invalid Prefix (outside)", "not a prefix"}},
		{"two families", []nat.Mapping{mapping("10.71.0.0/16", "fd00::/16")}, nil, []string{"10.71.0.0/16 (inside) = fd00::/16 (outside)", "one is IPv4, the other IPv6"}},
		{"IPv4 written as IPv6", []nat.Mapping{mapping("::ffff:10.71.0.0/112", "::ffff:10.72.0.0/112")}, nil, []string{"::ffff:10.71.0.0/112", "IPv4 written as IPv6"}},
		{"two lengths", []nat.Mapping{mapping("10.71.0.0/16", "10.243.0.0/17")}, nil, []string{"10.71.0.0/16 (inside) = 10.243.0.0/17 (outside)", "prefix lengths differ"}},
		{"host bits inside", []nat.Mapping{mapping("10.71.1.0/16", "10.243.0.0/16")}, nil, []string{"inside has host bits set, want 10.71.0.0/16"}},
		{"host bits outside", []nat.Mapping{mapping("fd00:1::/32", "fd00:2::1/32")}, nil, []string{"outside has host bits set, want fd00:2::/32"}},
		{"listed twice", []nat.Mapping{pods, pods}, nil, []string{pods.String(), "listed twice"}},
		{"inside overlaps", []nat.Mapping{pods, mapping("10.71.128.0/24", "10.9.9.0/24")}, nil, []string{"10.71.128.0/24 (inside) = 10.9.9.0/24 (outside)", "inside overlaps with 10.71.0.0/16", pods.String()}},
		{"outside overlaps", []nat.Mapping{pods, mapping("10.80.0.0/12", "10.240.0.0/12")}, nil, []string{"10.80.0.0/12 (inside) = 10.240.0.0/12 (outside)", "outside overlaps with 10.243.0.0/16", pods.String()}},
		{"local prefix", nil, []nat.Mapping{mapping("10.1.0.0/31", "10.2.0.0/31")}, []string{"local mapping 10.1.0.0/31 (inside) = 10.2.0.0/31 (outside)", "not single addresses"}},
		{"local families", nil, []nat.Mapping{mapping("10.1.0.0/32", "fd00::/128")}, []string{"local mapping 10.1.0.0/32 (inside) = fd00::/128 (outside)", "IPv6"}},
		{"local inside twice", nil, []nat.Mapping{mapping("10.1.0.1/32", "10.2.0.1/32"), mapping("10.1.0.1/32", "10.2.0.2/32")}, []string{"10.2.0.2/32", "inside address is already in mapping 10.1.0.1/32 (inside) = 10.2.0.1/32 (outside)"}},
		{"local outside twice", nil, []nat.Mapping{mapping("10.1.0.1/32", "10.2.0.1/32"), mapping("10.1.0.2/32", "10.2.0.1/32")}, []string{"10.1.0.2/32", "outside address is already in mapping 10.1.0.1/32"}},
		{"local within remote", []nat.Mapping{pods}, []nat.Mapping{mapping("10.71.0.9/32", "10.2.0.1/32")}, []string{"local mapping 10.71.0.9/32", "inside lies within 10.71.0.0/16 of remote mapping " + pods.String()}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table, err := nat.NewTable(nat.Config{Remote: tt.remote, Local: tt.local})
			if err == nil || table != nil {
				t.Fatalf("accepted: %v", table)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestNewTableAccepts(t *testing.T) {
	tests := []struct {
		name          string
		remote, local []nat.Mapping
	}{
		{"nothing", nil, nil},
		{"a range that is not remapped", []nat.Mapping{mapping("10.243.0.0/16", "10.243.0.0/16")}, nil},
		{"ranges side by side", []nat.Mapping{mapping("10.0.0.0/9", "10.128.0.0/9"), mapping("10.128.0.0/9", "10.0.0.0/9")}, nil},
		{"both families", []nat.Mapping{mapping("10.71.0.0/16", "10.243.0.0/16"), mapping("fd00:71::/64", "fd00:243::/64")}, nil},
		{"everything", []nat.Mapping{mapping("0.0.0.0/0", "0.0.0.0/0"), mapping("::/0", "::/0")}, nil},
		// The peer's external range may be the same as ours: source and
		// destination tell the two apart.
		{"local outside within remote outside", []nat.Mapping{mapping("10.80.0.0/16", "10.70.0.0/16")}, []nat.Mapping{mapping("192.0.2.1/32", "10.70.0.1/32")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := nat.NewTable(nat.Config{Remote: tt.remote, Local: tt.local}); err != nil {
				t.Error(err)
			}
		})
	}
}

func mustTable(t testing.TB, c nat.Config) *nat.Table {
	t.Helper()
	table, err := nat.NewTable(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestLookup(t *testing.T) {
	config := nat.Config{
		Remote: []nat.Mapping{
			mapping("10.71.0.0/16", "10.243.0.0/16"),
			mapping("10.72.0.0/20", "192.168.16.0/20"),
			mapping("10.5.5.5/32", "10.6.6.6/32"),
			mapping("fd00:71::/64", "fd00:243::/64"),
			mapping("fd00:72::/33", "fd00:8000::/33"),
			mapping("2001:db8:1::/96", "2001:db8:2::/96"),
		},
		Local: []nat.Mapping{mapping("192.0.2.1/32", "10.70.0.1/32"), mapping("2001:db8::1/128", "fd00:70::1/128")},
	}
	many := config
	many.Remote = append([]nat.Mapping(nil), config.Remote...)
	for i := range 200 { // beyond the linear scan, on both ends of the others
		many.Remote = append(many.Remote,
			mapping(fmt.Sprintf("10.100.%d.0/24", i), fmt.Sprintf("10.200.%d.0/24", 199-i)),
			mapping(fmt.Sprintf("1.%d.0.0/16", i), fmt.Sprintf("200.%d.0.0/16", i)))
	}
	for name, table := range map[string]*nat.Table{"few": mustTable(t, config), "many": mustTable(t, many)} {
		for _, tt := range []struct{ inside, outside string }{
			{"10.71.0.0", "10.243.0.0"},
			{"10.71.3.4", "10.243.3.4"},
			{"10.71.255.255", "10.243.255.255"},
			{"10.72.15.255", "192.168.31.255"},
			{"10.5.5.5", "10.6.6.6"},
			{"fd00:71::", "fd00:243::"},
			{"fd00:71::ffff:ffff:ffff:ffff", "fd00:243::ffff:ffff:ffff:ffff"},
			{"fd00:72:7fff::1", "fd00:8000:7fff::1"},
			{"2001:db8:1::ffff:ffff", "2001:db8:2::ffff:ffff"},
		} {
			inside, outside := netip.MustParseAddr(tt.inside), netip.MustParseAddr(tt.outside)
			if got, ok := table.Outside(inside); !ok || got != outside {
				t.Errorf("%s: Outside(%s) = %s, %t; want %s", name, inside, got, ok, outside)
			}
			if got, ok := table.Inside(outside); !ok || got != inside {
				t.Errorf("%s: Inside(%s) = %s, %t; want %s", name, outside, got, ok, inside)
			}
		}
		for _, s := range []string{"10.70.255.255", "10.72.16.0", "10.5.5.4", "10.5.5.6", "0.0.0.0", "255.255.255.255", "fd00:71:0:1::",
			"fd00:72:8000::", "2001:db8:1::1:0:0", "::", "ffff::", "::ffff:10.71.0.1", "::10.71.0.1"} {
			if got, ok := table.Outside(netip.MustParseAddr(s)); ok {
				t.Errorf("%s: Outside(%s) = %s", name, s, got)
			}
		}
		if got, ok := table.Outside(netip.Addr{}); ok {
			t.Errorf("%s: Outside of no address = %s", name, got)
		}
		in, out := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.70.0.1")
		if got, ok := table.LocalOutside(in); !ok || got != out {
			t.Errorf("LocalOutside(%s) = %s, %t; want %s", in, got, ok, out)
		}
		if got, ok := table.LocalInside(out); !ok || got != in {
			t.Errorf("LocalInside(%s) = %s, %t; want %s", out, got, ok, in)
		}
		if got, ok := table.LocalInside(in); ok {
			t.Errorf("LocalInside(%s) = %s", in, got)
		}
	}
}

func TestNoTable(t *testing.T) {
	for name, table := range map[string]*nat.Table{"nil": nil, "zero": {}, "empty": mustTable(t, nat.Config{})} {
		a := netip.MustParseAddr("10.71.0.1")
		for _, lookup := range []func(netip.Addr) (netip.Addr, bool){table.Outside, table.Inside, table.LocalOutside, table.LocalInside} {
			if got, ok := lookup(a); ok {
				t.Errorf("%s table: %s", name, got)
			}
		}
	}
}
