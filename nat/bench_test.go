package nat_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// benchmarkSpecs are packets from a pod here to a pod of the peer, and an ICMP
// error about one in the other direction, named family/protocol/length.
func benchmarkSpecs() map[string]packettest.Spec {
	src4, dst4 := netip.MustParseAddr("10.243.0.5"), netip.MustParseAddr("10.71.0.9")
	src6, dst6 := netip.MustParseAddr("fd00:243::5"), netip.MustParseAddr("fd00:71::9")
	tcp := func(n int) []byte {
		return packettest.Segment{SrcPort: 40000, DstPort: 80, Flags: packet.TCPAck, Payload: make([]byte, n-20)}.Bytes()
	}
	udp := func(n int) []byte { return packettest.Datagram(40000, 53, make([]byte, n-8)) }
	return map[string]packettest.Spec{
		"ipv4/tcp/64":        {Src: src4, Dst: dst4, Proto: packet.ProtoTCP, Transport: tcp(64 - 20)},
		"ipv4/tcp/1400":      {Src: src4, Dst: dst4, Proto: packet.ProtoTCP, Transport: tcp(1400 - 20)},
		"ipv4/udp/1400":      {Src: src4, Dst: dst4, Proto: packet.ProtoUDP, Transport: udp(1400 - 20)},
		"ipv6/tcp/1400":      {Src: src6, Dst: dst6, Proto: packet.ProtoTCP, Transport: tcp(1400 - 40)},
		"ipv4/icmp-error/56": describe("10.243.0.5 10.71.0.9", "10.71.0.9 10.243.0.5"),
	}
}

// benchmarkTable has n ranges around those of benchmarkSpecs, and local hosts.
func benchmarkTable(t testing.TB, n int) *nat.Table {
	c := fuzzConfig()
	for i := range n - len(c.Remote) {
		c.Remote = append(c.Remote, mapping(fmt.Sprintf("10.%d.0.0/16", 100+i), fmt.Sprintf("10.%d.0.0/16", 100+i)))
	}
	return mustTable(t, c)
}

func BenchmarkTranslate(b *testing.B) {
	for name, s := range benchmarkSpecs() {
		for _, n := range []int{2, 64} {
			b.Run(fmt.Sprintf("%s/mappings-%d", name, n), func(b *testing.B) {
				table := benchmarkTable(b, n)
				p, ok := packet.Parse(s.Bytes())
				if !ok {
					b.Fatal("refused")
				}
				dst := p.Dst()
				b.SetBytes(int64(len(p.Bytes)))
				b.ReportAllocs()
				for b.Loop() {
					if !table.Egress(&p) {
						b.Fatal("not translated")
					}
					p.SetDst(dst) // one more rewrite, so that the next round has work
				}
			})
		}
	}
}

func BenchmarkClampMSS(b *testing.B) {
	for _, tt := range []struct {
		name  string
		flags uint8
	}{{"syn", packet.TCPSyn}, {"ack", packet.TCPAck}} {
		b.Run("ipv4/"+tt.name, func(b *testing.B) {
			p, _ := packet.Parse(synPacket(netip.MustParseAddr("10.71.0.1"), tt.flags, mssOptions["as Linux sends"]).Bytes())
			b.SetBytes(int64(len(p.Bytes)))
			b.ReportAllocs()
			for b.Loop() {
				p.Bytes[42], p.Bytes[43] = 5, 0xb4
				nat.ClampMSS(&p, 1400)
			}
		})
	}
}

func TestTranslateDoesNotAllocate(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	specs := benchmarkSpecs()
	specs["ipv4/tcp/syn"] = synPacket(netip.MustParseAddr("10.71.0.1"), packet.TCPSyn, mssOptions["alone"])
	for name, s := range specs {
		for _, n := range []int{2, 64} {
			table := benchmarkTable(t, n)
			b := s.Bytes()
			allocs := testing.AllocsPerRun(100, func() {
				p, _ := packet.Parse(b)
				table.Egress(&p)
				exchange(&p)
				table.Ingress(&p)
				exchange(&p)
				nat.ClampMSS(&p, 1400)
			})
			if allocs != 0 {
				t.Errorf("%s with %d mappings: %v allocations", name, n, allocs)
			}
		}
	}
}
