package filter_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// manyRules is a forward chain of n counted rules that a packet to port 53 does
// not match, by address, protocol and port, before one that accepts it.
func manyRules(n int) filter.Config {
	c := filter.Chain{Table: "bench", Name: "forward", Hook: filter.Forward, Policy: filter.Drop}
	for i := range n - 1 {
		a, last := netip.AddrFrom4([4]byte{10, 243, byte(100 + i/256), byte(i)}), netip.AddrFrom4([4]byte{10, 243, byte(100 + i/256), 255})
		c.Rules = append(c.Rules, filter.Rule{Name: fmt.Sprint(i), Action: filter.Drop, Counter: true, Matches: []filter.Match{
			{Proto: packet.ProtoUDP, DstPort: ports(53, 53)}, {Src: filter.Addrs{First: a, Last: last}},
		}})
	}
	c.Rules = append(c.Rules, filter.Rule{Name: "last", Action: filter.Accept, Counter: true, Matches: []filter.Match{
		{Proto: packet.ProtoUDP, DstPort: ports(53, 53)},
	}})
	return filter.Config{Chains: []filter.Chain{c}}
}

func compile(tb testing.TB, c filter.Config) *filter.Filter {
	f, err := filter.Compile(c, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestCheckAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	f := compile(t, manyRules(100))
	late := compile(t, filter.Config{Chains: []filter.Chain{
		{Hook: filter.Prerouting, Priority: -300, Rules: []filter.Rule{{Action: filter.ClampMSS, MSS: 1000, Counter: true}}},
		{Hook: filter.Postrouting, Priority: 100, Policy: filter.Drop},
	}})
	for _, s := range []packettest.Spec{udp(53), udp(54), tcp(80, packet.TCPSyn), fragment(udp(53), 40)} {
		p, ok := packet.Parse(s.Bytes())
		if !ok {
			t.Fatal("not a packet")
		}
		n := testing.AllocsPerRun(100, func() {
			f.Check(&p, &egress)
			f.Check(&p, &ingress)
			late.Check(&p, &filter.Way{Egress: true, Node: "a", Dst: farOut, Src: podOut})
		})
		if n != 0 {
			t.Errorf("%+v: %v allocations", s, n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	p, ok := packet.Parse(udp(53).Bytes())
	if !ok {
		b.Fatal("not a packet")
	}
	for _, n := range []int{1, 10, 100, 1000} {
		f := compile(b, manyRules(n))
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.Check(&p, &egress)
			}
		})
	}
	// Rules of the other direction and family are not even looked at.
	other := manyRules(100)
	other.Chains[0].Family, other.Chains[0].Policy = filter.IPv4, filter.Accept
	for i := range other.Chains[0].Rules {
		other.Chains[0].Rules[i].Matches[0].In = filter.Link{Side: filter.PeerSide}
	}
	f := compile(b, other)
	b.Run("rules=100/other direction", func(b *testing.B) {
		for b.Loop() {
			f.Check(&p, &egress)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{10, 1000} {
		c := manyRules(n)
		old := compile(b, c)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := filter.Compile(c, old); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
