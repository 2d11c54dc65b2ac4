package packet_test

import (
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// benchmarkPackets are named family/protocol/length of the IP packet.
func benchmarkPackets() map[string]packettest.Spec {
	tcp := func(header, n int) []byte {
		return packettest.Segment{SrcPort: 1000, DstPort: 80, Flags: packet.TCPAck, Payload: make([]byte, n-header-20)}.Bytes()
	}
	extended := spec6(packet.ProtoTCP, tcp(56, 1400))
	extended.Extensions = []packettest.Extension{hopByHop, destOpts}
	return map[string]packettest.Spec{
		"ipv4/tcp/64":            spec4(packet.ProtoTCP, tcp(20, 64)),
		"ipv4/tcp/1400":          spec4(packet.ProtoTCP, tcp(20, 1400)),
		"ipv4/udp/64":            spec4(packet.ProtoUDP, packettest.Datagram(1, 2, make([]byte, 64-28))),
		"ipv4/icmp-error/56":     unreachable(spec4(packet.ProtoUDP, udp), 28),
		"ipv6/tcp/64":            spec6(packet.ProtoTCP, tcp(40, 64)),
		"ipv6/tcp/1400":          spec6(packet.ProtoTCP, tcp(40, 1400)),
		"ipv6/tcp-extended/1400": extended,
	}
}

func BenchmarkParse(b *testing.B) {
	for name, s := range benchmarkPackets() {
		b.Run(name, func(b *testing.B) {
			buf := s.Bytes()
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := packet.Parse(buf); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkSetSrc(b *testing.B) {
	for name, s := range benchmarkPackets() {
		b.Run(name, func(b *testing.B) {
			p, _ := packet.Parse(s.Bytes())
			src, dst := p.Src(), p.Dst()
			b.SetBytes(int64(len(p.Bytes)))
			b.ReportAllocs()
			for b.Loop() {
				p.SetSrc(dst)
				src, dst = dst, src
			}
		})
	}
}

func BenchmarkCompleteChecksum(b *testing.B) {
	for name, s := range benchmarkPackets() {
		p, _ := packet.Parse(s.Bytes())
		if p.Proto != packet.ProtoTCP {
			continue
		}
		pseudo := packet.PseudoHeader(p.Src(), p.Dst(), p.Proto, len(p.Transport()))
		run := func(unfinished bool) func(*testing.B) {
			return func(b *testing.B) {
				b.SetBytes(int64(len(p.Bytes)))
				b.ReportAllocs()
				for b.Loop() {
					if unfinished {
						p.Transport()[16], p.Transport()[17] = byte(pseudo>>8), byte(pseudo)
					}
					if p.CompleteChecksum() != unfinished {
						b.Fatal("wrong answer")
					}
				}
			}
		}
		b.Run("finished/"+name, run(false))
		b.Run("unfinished/"+name, run(true))
	}
}
