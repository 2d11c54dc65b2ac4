package cidr_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

// Few small pools, so that they run out and that requests meet.
var (
	smallPools = []netip.Prefix{prefix("10.0.0.0/27"), prefix("10.0.1.0/28"), prefix("fd00::/124"), prefix("fd00::1:0/123")}
	around     = []netip.Prefix{prefix("10.0.0.0/26"), prefix("10.0.1.0/27"), prefix("192.0.2.0/28"), prefix("fd00::/123"), prefix("fd00::1:0/123")}
)

func drawPrefix(t *rapid.T) netip.Prefix {
	base := rapid.SampledFrom(around).Draw(t, "base")
	bits := rapid.IntRange(base.Bits(), base.Addr().BitLen()).Draw(t, "bits")
	b := base.Addr().AsSlice()
	b[len(b)-1] |= byte(rapid.IntRange(0, 1<<(base.Addr().BitLen()-base.Bits())-1).Draw(t, "address"))
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, bits).Masked()
}

// TestAllocatorModel compares with the slow allocator.
func TestAllocatorModel(t *testing.T) { rapid.Check(t, allocatorModel) }

// FuzzAllocator is the same with a fuzzer that draws what leads to new code.
func FuzzAllocator(f *testing.F) { f.Fuzz(rapid.MakeFuzz(allocatorModel)) }

func allocatorModel(t *rapid.T) {
	fast, err := cidr.NewAllocator(smallPools)
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowAllocator{pools: smallPools}
	owner := rapid.StringMatching("[a-z]")
	t.Repeat(map[string]func(*rapid.T){
		"acquire": func(t *rapid.T) {
			o := owner.Draw(t, "owner")
			r := cidr.Request{Prefix: drawPrefix(t), NotRemapped: rapid.Bool().Draw(t, "not remapped"), Shared: rapid.IntRange(0, 4).Draw(t, "shared") == 0}
			want, ok := slow.acquire(o, r)
			if got, err := fast.Acquire(o, r); (err == nil) != ok || ok && got != want {
				t.Fatalf("got %v, %v, want %v, %v", got, err, want, ok)
			}
		},
		"restore": func(t *rapid.T) {
			o, p, shared := owner.Draw(t, "owner"), drawPrefix(t), rapid.Bool().Draw(t, "shared")
			want := slow.restore(o, p, shared)
			if err := fast.Restore(o, p, shared); (err == nil) != want {
				t.Fatalf("got %v, want success: %v", err, want)
			}
		},
		"release": func(t *rapid.T) {
			o := owner.Draw(t, "owner")
			fast.Release(o)
			slow.release(o)
		},
		"": func(t *rapid.T) {
			if fast.Len() != len(slow.grants) {
				t.Fatalf("%d hold a prefix, want %d", fast.Len(), len(slow.grants))
			}
			for i, g := range slow.grants {
				if got, ok := fast.Get(g.Owner); !ok || got != g {
					t.Fatalf("%s holds %v, %v, want %v", g.Owner, got, ok, g)
				}
				for _, h := range slow.grants[:i] {
					if g.Prefix.Overlaps(h.Prefix) && !g.Shared && !h.Shared {
						t.Fatalf("%v and %v overlap", g, h)
					}
				}
			}
			for _, pool := range smallPools {
				bits, ok := fast.LargestFree(pool)
				for b := pool.Bits(); b <= pool.Addr().BitLen(); b++ {
					if _, free := slow.first(pool, b); free != (ok && b >= bits) {
						t.Fatalf("largest free of %v: got /%d, %v, but /%d free is %v", pool, bits, ok, b, free)
					}
				}
			}
		},
	})
}

// TestRestoreEquals restores what one allocator granted into another, in any
// order, and asks both for more: they must answer the same.
func TestRestoreEquals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) cidr.Request {
			return cidr.Request{Prefix: drawPrefix(t), NotRemapped: rapid.Bool().Draw(t, "not remapped"), Shared: rapid.Bool().Draw(t, "shared")}
		}), 1, 20).Draw(t, "requests")
		before, after := rapidAllocator(t), rapidAllocator(t)
		held := map[string]cidr.Grant{}
		for i, r := range requests {
			o := fmt.Sprint(i)
			if _, err := before.Acquire(o, r); err == nil {
				held[o], _ = before.Get(o)
			}
		}
		for _, o := range rapid.Permutation(slices.Sorted(maps.Keys(held))).Draw(t, "order") {
			if err := after.Restore(o, held[o].Prefix, held[o].Shared); err != nil {
				t.Fatalf("restore %v: %v", held[o], err)
			}
		}
		for i, r := range requests {
			o := fmt.Sprint("more ", i)
			p, err := before.Acquire(o, r)
			q, err2 := after.Acquire(o, r)
			if p != q || (err == nil) != (err2 == nil) {
				t.Fatalf("%v: got %v, %v, want %v, %v", r, q, err2, p, err)
			}
		}
	})
}

// TestReleaseGivesBack takes and releases: the next owner gets what the one
// before got.
func TestReleaseGivesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapidAllocator(t)
		for i := range 10 {
			if p := drawPrefix(t); rapid.Bool().Draw(t, "held") {
				_, _ = a.Acquire(fmt.Sprint(i), cidr.Request{Prefix: p}) // as many as fit
			}
		}
		r := cidr.Request{Prefix: drawPrefix(t)}
		p, err := a.Acquire("x", r)
		a.Release("x")
		q, err2 := a.Acquire("y", r)
		if p != q || (err == nil) != (err2 == nil) {
			t.Fatalf("got %v, %v, then %v, %v", p, err, q, err2)
		}
	})
}

func rapidAllocator(t *rapid.T) *cidr.Allocator {
	a, err := cidr.NewAllocator(smallPools)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
