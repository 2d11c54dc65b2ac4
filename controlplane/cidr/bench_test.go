package cidr_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

const many = 10_000

// owners are made before the clock runs.
func owners() []string {
	s := make([]string, many)
	for i := range s {
		s[i] = fmt.Sprintf("tenant-%d/remote-pod", i)
	}
	return s
}

// BenchmarkAllocator takes and gives back one prefix more while 10 000 are held.
func BenchmarkAllocator(b *testing.B) {
	for _, bb := range []struct {
		name   string
		prefix func(i int) netip.Prefix // asked for by the i-th owner
	}{
		// All remote clusters have the same pod CIDR.
		{"remapped/ipv4", func(int) netip.Prefix { return prefix("10.244.0.0/22") }},
		{"remapped/ipv6", func(int) netip.Prefix { return prefix("fd00:10:244::/56") }},
		// All have another one.
		{"as-is/ipv4", func(i int) netip.Prefix {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], 10<<24|uint32(i*2654435761)%(1<<14)<<10)
			return netip.PrefixFrom(netip.AddrFrom4(a), 22)
		}},
		{"as-is/ipv6", func(i int) netip.Prefix {
			a := [16]byte{0x20, 0x01, 0x0d, 0xb8}
			binary.BigEndian.PutUint16(a[5:], uint16(i*40503))
			return netip.PrefixFrom(netip.AddrFrom16(a), 56)
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			a, names := newAllocator(b, cidr.DefaultPools()...), owners()
			for i, o := range names {
				if _, err := a.Acquire(o, cidr.Request{Prefix: bb.prefix(i)}); err != nil {
					b.Fatal(err)
				}
			}
			p := bb.prefix(many)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Acquire("one more", cidr.Request{Prefix: p}); err != nil {
					b.Fatal(err)
				}
				a.Release("one more")
			}
		})
	}
}

// BenchmarkAllocatorFill takes 10 000 prefixes and gives them back.
func BenchmarkAllocatorFill(b *testing.B) {
	names := owners()
	b.ReportAllocs()
	for b.Loop() {
		a := newAllocator(b, cidr.DefaultPools()...)
		for _, o := range names {
			if _, err := a.Acquire(o, cidr.Request{Prefix: prefix("10.244.0.0/22")}); err != nil {
				b.Fatal(err)
			}
		}
		for _, o := range names {
			a.Release(o)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*many), "ns/prefix")
}

// BenchmarkExhausted asks for what no pool has while 10 000 are held.
func BenchmarkExhausted(b *testing.B) {
	a := newAllocator(b, prefix("10.0.0.0/8"))
	for i, o := range owners() {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(i >> 8), 0}), 24)
		if _, err := a.Acquire(o, cidr.Request{Prefix: p}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Acquire("one more", cidr.Request{Prefix: prefix("10.0.0.0/12")}); err == nil {
			b.Fatal("granted")
		}
	}
}

// BenchmarkAddresses takes and gives back one address more while 10 000 are held.
func BenchmarkAddresses(b *testing.B) {
	a := cidr.NewAddresses(prefix("10.70.0.0/16"), cidr.WithReserved(1))
	for _, o := range owners() {
		if _, err := a.Acquire(o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Acquire("one more"); err != nil {
			b.Fatal(err)
		}
		a.Release("one more")
	}
}
