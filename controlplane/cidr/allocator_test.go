package cidr_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func newAllocator(t testing.TB, pools ...netip.Prefix) *cidr.Allocator {
	t.Helper()
	a, err := cidr.NewAllocator(pools)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// installed is what a cluster holds after the installation.
func installed(t testing.TB, pools ...netip.Prefix) *cidr.Allocator {
	t.Helper()
	a := newAllocator(t, pools...)
	for owner, r := range map[string]cidr.Request{
		"pods":     {Prefix: prefix("10.243.0.0/16"), NotRemapped: true},
		"services": {Prefix: prefix("10.96.0.0/12"), NotRemapped: true},
		"external": {Prefix: prefix("10.70.0.0/16")},
		"internal": {Prefix: prefix("10.80.0.0/16")},
		"lan":      {Prefix: prefix("192.168.0.0/20"), NotRemapped: true, Shared: true},
		"pods6":    {Prefix: prefix("fd00:10:243::/56"), NotRemapped: true},
	} {
		got, err := a.Acquire(owner, r)
		if err != nil || got != r.Prefix {
			t.Fatalf("%s: got %v, %v, want %v", owner, got, err, r.Prefix)
		}
	}
	return a
}

func TestAcquire(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request cidr.Request
		pools   []netip.Prefix // when nil: the default ones
		want    string
	}{
		{"a free prefix", cidr.Request{Prefix: prefix("10.42.0.0/16")}, nil, "10.42.0.0/16"},
		{"a free prefix outside the pools", cidr.Request{Prefix: prefix("100.64.0.0/10")}, nil, "100.64.0.0/10"},
		{"a free public prefix", cidr.Request{Prefix: prefix("11.0.0.0/16")}, nil, "11.0.0.0/16"},
		{"a free prefix without pools", cidr.Request{Prefix: prefix("10.42.0.0/16")}, []netip.Prefix{}, "10.42.0.0/16"},
		{"a free IPv6 prefix", cidr.Request{Prefix: prefix("2001:db8::/56")}, nil, "2001:db8::/56"},

		{"a pooled prefix", cidr.Request{Prefix: prefix("10.42.0.0/16"), Pooled: true}, nil, "10.42.0.0/16"},
		{"a public prefix, pooled", cidr.Request{Prefix: prefix("8.0.0.0/16"), Pooled: true}, nil, "10.71.0.0/16"},
		{"a public prefix larger than a pool", cidr.Request{Prefix: prefix("8.0.0.0/7"), Pooled: true}, nil,
			"8.0.0.0/7 is in no pool, and no pool (10.0.0.0/8, 192.168.0.0/16, 172.16.0.0/12) has a free /7 to stand for it"},
		{"a prefix around a pool", cidr.Request{Prefix: prefix("192.0.0.0/8"), Pooled: true}, nil,
			"192.0.0.0/8 overlaps 192.168.0.0/20 of lan, and no pool (10.0.0.0/8, 192.168.0.0/16, 172.16.0.0/12) has a free /8 to stand for it"},
		{"a public prefix, pooled and not remapped", cidr.Request{Prefix: prefix("8.0.0.0/16"), Pooled: true, NotRemapped: true}, nil, "8.0.0.0/16"},
		{"a private prefix, where there is no pool", cidr.Request{Prefix: prefix("10.42.0.0/16"), Pooled: true}, []netip.Prefix{}, "10.42.0.0/16"},
		{"a public one, where there is no pool", cidr.Request{Prefix: prefix("8.0.0.0/16"), Pooled: true}, []netip.Prefix{},
			"8.0.0.0/16 is in no pool, and there is no pool of IPv4 prefixes to take another from"},
		{"a unique local prefix", cidr.Request{Prefix: prefix("fd00:1::/56"), Pooled: true}, nil, "fd00:1::/56"},
		{"a public IPv6 prefix", cidr.Request{Prefix: prefix("2600::/56"), Pooled: true}, nil, "fd50:52ea::/56"},
		{"in use, over what is shared", cidr.Request{Prefix: prefix("192.168.0.0/16"), NotRemapped: true, OverShared: true}, nil, "192.168.0.0/16"},
		{"in use, not shared", cidr.Request{Prefix: prefix("10.243.0.0/16"), NotRemapped: true, OverShared: true}, nil, "10.243.0.0/16 overlaps 10.243.0.0/16 of pods"},

		{"a prefix in use stays beside what is used", cidr.Request{Prefix: prefix("10.243.0.0/16")}, nil, "10.71.0.0/16"},
		{"part of one in use", cidr.Request{Prefix: prefix("10.243.7.0/24")}, nil, "10.71.0.0/24"},
		{"more than one in use", cidr.Request{Prefix: prefix("10.242.0.0/15")}, nil, "10.68.0.0/15"},
		{"a large one", cidr.Request{Prefix: prefix("10.192.0.0/10")}, nil, "10.0.0.0/10"},
		{"one too large for the first pool that is not used", cidr.Request{Prefix: prefix("10.0.0.0/8")}, nil,
			"10.0.0.0/8 overlaps 10.70.0.0/16 of external, 10.80.0.0/16 of internal, 10.96.0.0/12 of services and 10.243.0.0/16 of pods, " +
				"and no pool (10.0.0.0/8, 192.168.0.0/16, 172.16.0.0/12) has a free /8 to stand for it"},
		{"a reserved one", cidr.Request{Prefix: prefix("192.168.1.0/24")}, nil, "10.71.0.0/24"},
		{"pools are used in order", cidr.Request{Prefix: prefix("10.243.0.0/16")},
			[]netip.Prefix{prefix("10.96.0.0/12"), prefix("172.16.0.0/12"), prefix("10.0.0.0/8")}, "172.16.0.0/16"},
		{"within a pool, space in use first", cidr.Request{Prefix: prefix("10.243.0.0/24")}, []netip.Prefix{prefix("192.168.0.0/16")}, "192.168.16.0/24"},
		{"a pool within space in use has nothing", cidr.Request{Prefix: prefix("10.243.0.0/24")}, []netip.Prefix{prefix("10.243.0.0/20")},
			"10.243.0.0/24 overlaps 10.243.0.0/16 of pods, and no pool (10.243.0.0/20) has a free /24 to stand for it"},
		{"IPv6 in use", cidr.Request{Prefix: prefix("fd00:10:243::/56")}, nil, "fd50:52ea::/56"},
		{"IPv6 without a pool", cidr.Request{Prefix: prefix("fd00:10:243::/56")}, []netip.Prefix{prefix("10.0.0.0/8")},
			"fd00:10:243::/56 overlaps fd00:10:243::/56 of pods6, and there is no pool of IPv6 prefixes to take another from"},
		{"IPv4 without a pool", cidr.Request{Prefix: prefix("10.243.0.1/32")}, []netip.Prefix{},
			"10.243.0.1/32 overlaps 10.243.0.0/16 of pods, and there is no pool of IPv4 prefixes to take another from"},

		{"free, not remapped", cidr.Request{Prefix: prefix("10.42.0.0/16"), NotRemapped: true}, nil, "10.42.0.0/16"},
		{"in use, not remapped", cidr.Request{Prefix: prefix("10.243.7.0/24"), NotRemapped: true}, nil, "10.243.7.0/24 overlaps 10.243.0.0/16 of pods"},
		{"reserved, not remapped", cidr.Request{Prefix: prefix("192.168.0.0/24"), NotRemapped: true}, nil, "192.168.0.0/24 overlaps 192.168.0.0/20 of lan"},
		{"in use, shared", cidr.Request{Prefix: prefix("10.243.7.0/24"), Shared: true}, nil, "10.243.7.0/24"},
		{"in use in part, shared and not remapped", cidr.Request{Prefix: prefix("10.0.0.0/8"), Shared: true, NotRemapped: true}, nil, "10.0.0.0/8"},

		{"loopback", cidr.Request{Prefix: prefix("127.0.0.0/24")}, nil, "127.0.0.0/24 overlaps 127.0.0.0/8, which cannot be routed between clusters"},
		{"the tunnel", cidr.Request{Prefix: prefix("169.254.18.0/30")}, nil, "169.254.18.0/30 overlaps 169.254.0.0/16, which cannot be routed between clusters"},
		{"everything", cidr.Request{Prefix: prefix("0.0.0.0/0")}, nil, "0.0.0.0/0 overlaps 0.0.0.0/8, which cannot be routed between clusters"},
		{"everything, shared", cidr.Request{Prefix: prefix("::/0"), Shared: true}, nil, "::/0 overlaps ::/127, which cannot be routed between clusters"},
		{"link-local, reserved", cidr.Request{Prefix: prefix("fe80::/64"), Shared: true}, nil, "fe80::/64"},
		{"IPv4 in IPv6", cidr.Request{Prefix: prefix("::ffff:10.0.0.0/104")}, nil, "::ffff:10.0.0.0/104 overlaps ::ffff:0.0.0.0/96, which cannot be routed between clusters"},
		{"multicast", cidr.Request{Prefix: prefix("239.0.0.0/16")}, nil, "239.0.0.0/16 overlaps 224.0.0.0/3, which cannot be routed between clusters"},
		{"host bits", cidr.Request{Prefix: prefix("10.42.1.0/16"), Shared: true}, nil, "10.42.1.0/16 has bits set behind its length: write 10.42.0.0/16"},
		{"host bits of what cannot be routed", cidr.Request{Prefix: prefix("127.0.0.1/16"), Shared: true}, nil, "127.0.0.1/16 has bits set behind its length: write 127.0.0.0/16"},
		{"nothing", cidr.Request{}, nil, "invalid Prefix is not a prefix"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pools := tt.pools
			if pools == nil {
				pools = cidr.DefaultPools()
			}
			a := installed(t, pools...)
			before := a.Len()
			p, err := a.Acquire("new", tt.request)
			got := p.String()
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			g, ok := a.Get("new")
			if ok != (err == nil) || g.Prefix != p {
				t.Errorf("it holds %v, %v", g, ok)
			}
			if again, err := a.Acquire("new", tt.request); ok && (again != p || err != nil) {
				t.Errorf("the same again: got %v, %v", again, err)
			}
			if a.Release("new"); a.Len() != before {
				t.Errorf("%d hold a prefix, want %d", a.Len(), before)
			}
		})
	}
}

func TestErrorTypes(t *testing.T) {
	a := installed(t, cidr.DefaultPools()...)
	_, err := a.Acquire("x", cidr.Request{Prefix: prefix("10.0.0.0/8")})
	var exhausted *cidr.ExhaustedError
	if !errors.As(err, &exhausted) || exhausted.Overlap.Prefix != prefix("10.0.0.0/8") || len(exhausted.Overlap.With) != 4 || exhausted.Overlap.More {
		t.Errorf("got %#v", err)
	}
	_, err = a.Acquire("x", cidr.Request{Prefix: prefix("10.243.0.0/24"), NotRemapped: true})
	var overlap *cidr.OverlapError
	if !errors.As(err, &overlap) {
		t.Fatalf("got %#v", err)
	}
	if diff := cmp.Diff([]cidr.Grant{{Owner: "pods", Prefix: prefix("10.243.0.0/16")}}, overlap.With, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var unusable *cidr.UnusableError
	if _, err = a.Acquire("x", cidr.Request{Prefix: prefix("ff00::/8")}); !errors.As(err, &unusable) {
		t.Errorf("got %#v", err)
	}
}

func TestManyInTheWay(t *testing.T) {
	a := newAllocator(t)
	for i := range 9 {
		if err := a.Restore(fmt.Sprintf("owner-%d", i), prefix(fmt.Sprintf("10.0.%d.0/24", i)), false); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Acquire("x", cidr.Request{Prefix: prefix("10.0.0.0/16"), NotRemapped: true})
	want := "10.0.0.0/16 overlaps 10.0.0.0/24 of owner-0, 10.0.1.0/24 of owner-1, 10.0.2.0/24 of owner-2, 10.0.3.0/24 of owner-3 and others"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestRestore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		owner  string
		prefix string
		shared bool
		want   string
	}{
		{"free", "a", "10.42.0.0/16", false, ""},
		{"outside the pools", "a", "100.64.0.0/10", false, ""},
		{"the same again", "pods", "10.243.0.0/16", false, ""},
		{"another one", "pods", "10.42.0.0/16", false, "pods holds 10.243.0.0/16 already"},
		{"the same, shared now", "pods", "10.243.0.0/16", true, "pods holds 10.243.0.0/16 already"},
		{"inside another's", "a", "10.243.1.0/24", false, "10.243.1.0/24 overlaps 10.243.0.0/16 of pods"},
		{"around others'", "a", "10.64.0.0/11", false, "10.64.0.0/11 overlaps 10.70.0.0/16 of external and 10.80.0.0/16 of internal"},
		{"on top of another's, shared", "a", "10.243.1.0/24", true, ""},
		{"below what was reserved later", "a", "192.168.1.0/24", false, ""},
		{"what cannot be routed", "a", "127.0.0.0/8", false, "127.0.0.0/8 overlaps 127.0.0.0/8, which cannot be routed between clusters"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := installed(t, cidr.DefaultPools()...)
			got := ""
			if err := a.Restore(tt.owner, prefix(tt.prefix), tt.shared); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestPools(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8":    "",
		"2001:db8::/32": "",
		"0.0.0.0/0":     "pool 0.0.0.0/0 overlaps 0.0.0.0/8, which cannot be routed between clusters",
		"169.254.0.0/1": "pool 169.254.0.0/1 has bits set behind its length: write 128.0.0.0/1",
		"128.0.0.0/1":   "pool 128.0.0.0/1 overlaps 169.254.0.0/16, which cannot be routed between clusters",
	} {
		_, err := cidr.NewAllocator([]netip.Prefix{prefix(in)})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	if _, err := cidr.NewAllocator(cidr.DefaultPools()); err != nil {
		t.Error(err)
	}
}

func TestLargestFree(t *testing.T) {
	a := newAllocator(t)
	check := func(pool string, wantBits int, wantOK bool) {
		t.Helper()
		if bits, ok := a.LargestFree(prefix(pool)); ok != wantOK || ok && bits != wantBits {
			t.Errorf("%s: got /%d, %v, want /%d, %v", pool, bits, ok, wantBits, wantOK)
		}
	}
	check("10.0.0.0/8", 8, true)
	for owner, p := range map[string]string{"a": "10.0.0.0/9", "b": "10.128.0.0/24", "c": "10.192.0.0/24", "d": "172.16.0.0/12"} {
		if err := a.Restore(owner, prefix(p), false); err != nil {
			t.Fatal(err)
		}
	}
	check("10.0.0.0/8", 11, true)
	check("10.0.0.0/16", 0, false)
	check("172.16.0.0/12", 0, false)
	check("172.0.0.0/8", 9, true)
	check("10.64.0.0/10", 0, false)
	check("fd00::/8", 8, true)
	a.Release("d")
	check("172.16.0.0/12", 12, true)
}
