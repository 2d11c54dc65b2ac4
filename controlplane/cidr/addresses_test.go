package cidr_test

import (
	"errors"
	"net/netip"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// TestAddressRange takes everything that a prefix has to give.
func TestAddressRange(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prefix  string
		options []cidr.AddressOption
		want    []string
	}{
		{"all", "10.0.0.0/30", nil, []string{"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"}},
		{"host bits are ignored", "10.0.0.3/31", nil, []string{"10.0.0.2", "10.0.0.3"}},
		{"one reserved", "10.70.0.0/30", []cidr.AddressOption{cidr.WithReserved(1)}, []string{"10.70.0.1", "10.70.0.2", "10.70.0.3"}},
		{"all but one reserved", "10.70.0.0/30", []cidr.AddressOption{cidr.WithReserved(3)}, []string{"10.70.0.3"}},
		{"all reserved", "10.70.0.0/30", []cidr.AddressOption{cidr.WithReserved(4)}, nil},
		{"more reserved than there are", "10.70.0.0/30", []cidr.AddressOption{cidr.WithReserved(1 << 31)}, nil},
		{"fewer than none reserved", "10.70.0.0/32", []cidr.AddressOption{cidr.WithReserved(-1)}, []string{"10.70.0.0"}},
		{"without ends", "10.80.0.0/30", []cidr.AddressOption{cidr.WithoutEnds()}, []string{"10.80.0.1", "10.80.0.2"}},
		{"without ends, one reserved", "10.80.0.0/30", []cidr.AddressOption{cidr.WithReserved(1), cidr.WithoutEnds()}, []string{"10.80.0.1", "10.80.0.2"}},
		{"one reserved, without ends", "10.80.0.0/30", []cidr.AddressOption{cidr.WithoutEnds(), cidr.WithReserved(1)}, []string{"10.80.0.1", "10.80.0.2"}},
		{"two reserved, without ends", "10.80.0.0/30", []cidr.AddressOption{cidr.WithoutEnds(), cidr.WithReserved(2)}, []string{"10.80.0.2"}},
		{"nothing but ends", "10.80.0.0/31", []cidr.AddressOption{cidr.WithoutEnds()}, nil},
		{"one address, without ends", "10.80.0.0/32", []cidr.AddressOption{cidr.WithoutEnds()}, nil},
		{"the first of all, without ends", "0.0.0.0/32", []cidr.AddressOption{cidr.WithoutEnds()}, nil},
		{"the last of all", "255.255.255.252/30", nil, []string{"255.255.255.252", "255.255.255.253", "255.255.255.254", "255.255.255.255"}},
		{"the last of all, reserved", "255.255.255.255/32", []cidr.AddressOption{cidr.WithReserved(1)}, nil},
		{"IPv6", "fd00::/127", nil, []string{"fd00::", "fd00::1"}},
		{"IPv6, across a byte", "fd00::fe/126", []cidr.AddressOption{cidr.WithReserved(2)}, []string{"fd00::fe", "fd00::ff"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := cidr.NewAddresses(netip.MustParsePrefix(tt.prefix), tt.options...)
			var got []string
			var full *cidr.FullError
			for i := 0; ; i++ {
				a, err := s.Acquire(strconv.Itoa(i))
				if errors.As(err, &full) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if full.Held != len(tt.want) || full.Prefix != s.Prefix() {
				t.Errorf("got %+v", full)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	s := cidr.NewAddresses(netip.MustParsePrefix("10.70.0.0/29"), cidr.WithReserved(1))
	acquire := func(owner, want string) {
		t.Helper()
		got, err := s.Acquire(owner)
		if err != nil || got != addr(want) {
			t.Errorf("%s: got %v, %v, want %s", owner, got, err, want)
		}
	}
	acquire("a", "10.70.0.1")
	acquire("b", "10.70.0.2")
	acquire("a", "10.70.0.1") // the same again
	s.Release("a")
	s.Release("a")
	acquire("c", "10.70.0.3") // not the one released a moment ago
	if err := s.Restore("d", addr("10.70.0.6")); err != nil {
		t.Error(err)
	}
	acquire("e", "10.70.0.7")
	acquire("f", "10.70.0.1") // behind the end comes the beginning
	acquire("g", "10.70.0.4")
	acquire("h", "10.70.0.5")
	if _, err := s.Acquire("i"); err == nil || err.Error() != "no address of 10.70.0.0/29 is free: 7 are held" {
		t.Errorf("got %v", err)
	}
	s.Release("c")
	acquire("i", "10.70.0.3")

	if got, ok := s.Get("i"); !ok || got != addr("10.70.0.3") {
		t.Errorf("i holds %v, %v", got, ok)
	}
	if got, ok := s.Owner(addr("10.70.0.6")); !ok || got != "d" {
		t.Errorf("10.70.0.6 is held by %v, %v", got, ok)
	}
}

func TestRestoreAddress(t *testing.T) {
	s := cidr.NewAddresses(netip.MustParsePrefix("10.70.0.0/29"), cidr.WithReserved(2))
	for _, tt := range []struct{ name, owner, addr, want string }{
		{"free", "a", "10.70.0.4", ""},
		{"the same again", "a", "10.70.0.4", ""},
		{"one that is never handed out", "b", "10.70.0.0", ""},
		{"of another", "c", "10.70.0.4", "address 10.70.0.4 is held by a"},
		{"a second one", "a", "10.70.0.5", "a holds 10.70.0.4 already"},
		{"outside", "c", "10.70.0.8", "address 10.70.0.8 is not in 10.70.0.0/29"},
		{"of the other family", "c", "fd00::", "address fd00:: is not in 10.70.0.0/29"},
		{"none", "c", "", "address invalid IP is not in 10.70.0.0/29"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a netip.Addr
			if tt.addr != "" {
				a = addr(tt.addr)
			}
			got := ""
			if err := s.Restore(tt.owner, a); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got, err := s.Acquire("z"); err != nil || got != addr("10.70.0.5") {
		t.Errorf("after restoring: got %v, %v, want the one behind the highest", got, err)
	}
}

// TestAddressesModel compares with a map that is searched one by one.
func TestAddressesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SampledFrom([]netip.Prefix{
			netip.MustParsePrefix("10.70.0.0/28"), netip.MustParsePrefix("255.255.255.240/28"), netip.MustParsePrefix("0.0.0.0/28"),
			netip.MustParsePrefix("fd00::fff0/124"), netip.MustParsePrefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124"),
		}).Draw(t, "prefix")
		reserved := rapid.IntRange(0, 3).Draw(t, "reserved")
		s := cidr.NewAddresses(prefix, cidr.WithReserved(reserved))
		var all []netip.Addr
		for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
			all = append(all, a)
		}
		held, previous := map[string]int{}, reserved-1
		owner := rapid.StringMatching("[a-t]")
		by := func(i int) string {
			for o, at := range held {
				if at == i {
					return o
				}
			}
			return ""
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				want, ok := held[o]
				for n := 1; n <= len(all) && !ok; n++ {
					want = (previous + n) % len(all)
					ok = want >= reserved && by(want) == ""
				}
				got, err := s.Acquire(o)
				if (err == nil) != ok || ok && got != all[want] {
					t.Fatalf("got %v, %v, want %v, %v", got, err, all[want], ok)
				}
				if _, had := held[o]; ok && !had {
					held[o], previous = want, want
				}
			},
			"release": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				s.Release(o)
				delete(held, o)
			},
			"restore": func(t *rapid.T) {
				o, i := owner.Draw(t, "owner"), rapid.IntRange(0, len(all)-1).Draw(t, "address")
				have, has := held[o]
				ok := (!has || have == i) && (by(i) == "" || by(i) == o)
				if err := s.Restore(o, all[i]); (err == nil) != ok {
					t.Fatalf("got %v, want success: %v", err, ok)
				}
				if ok && !has {
					held[o], previous = i, max(previous, i)
				}
			},
			"": func(t *rapid.T) {
				if s.Len() != len(held) {
					t.Fatalf("%d are held, want %d", s.Len(), len(held))
				}
				for i, a := range all {
					if got, _ := s.Owner(a); got != by(i) {
						t.Fatalf("%s is held by %q, want %q", a, got, by(i))
					}
				}
			},
		})
	})
}
