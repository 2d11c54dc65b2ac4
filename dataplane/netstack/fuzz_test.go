package netstack

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/test/mutate"
)

// FuzzInject throws bytes at a stack that has something listening on
// everything. The property is that it survives and still answers a ping.
func FuzzInject(t *testing.F) {
	f := mutate.New(t)
	quoted := func(src, dst netip.Addr) []byte { return append(make([]byte, 4), udpPacket(dst, src, 20)...) }
	for _, seed := range [][]byte{
		nil, {0x45}, {0x60}, {0x40, 1, 2},
		echoPacket(addrB4, addrA4, 1, 100),
		echoPacket(addrB6, addrA6, 1, 100),
		udpPacket(addrB4, addrA4, 100),
		udpPacket(addrB6, addrA6, 100),
		udpPacket(addrA4, addrA4, 1), // from ourselves
		synPacket(addrB4, addrA4, 1000, 80),
		synPacket(addrB6, addrA6, 1000, 80),
		icmpPacket(addrB4, addrA4, 3, 4, quoted(addrB4, addrA4)),
		icmpPacket(addrB4, addrA4, 11, 0, quoted(addrB4, addrA4)),
		icmpPacket(addrB6, addrA6, 2, 0, quoted(addrB6, addrA6)),
		icmpPacket(addrB6, addrA6, 135, 0, append(make([]byte, 4), addrA6.AsSlice()...)), // neighbour solicitation
		icmpPacket(addrB6, addrA6, 134, 0, make([]byte, 12)),                             // router advertisement
		ipPacket(addrB4, addrA4, 2, make([]byte, 8)),                                     // IGMP
		ipPacket(addrB6, addrA6, 0, make([]byte, 16)),                                    // hop-by-hop options
		ipPacket(addrB6, addrA6, 43, []byte{17, 2, 0, 1, 0, 0, 0, 0}),                    // routing header
		ipPacket(addrB6, addrA6, 44, []byte{17, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8}),
	} {
		f.Add(seed)
	}
	s := newStack(f, Config{MTU: 1340}, addrA4, addrA6)
	l, err := s.ListenTCP(netip.AddrPortFrom(netip.IPv6Unspecified(), 80))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	pc, err := s.ListenUDP(netip.AddrPortFrom(netip.IPv6Unspecified(), 2000))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { pc.Close() })
	s.ObserveICMP(func(pkt []byte) { parseICMPError(pkt) })
	marker := echoPacket(addrB4, addrA4, 1, 10)
	var batch []byte
	f.Fuzz(func(t *testing.T, pkt []byte) {
		batch = s.out.take(batch)
		s.receive(pkt)
		s.receive(repaired(pkt))
		before := s.out.sent.Load()
		s.receive(marker)
		if s.out.sent.Load() == before {
			t.Error("the stack no longer answers")
		}
	})
}

// repaired is pkt with the lengths and checksums that an attacker would get
// right, so that mutations reach what lies behind those checks.
func repaired(pkt []byte) []byte {
	b := bytes.Clone(pkt)
	var transport uint8
	var t []byte
	switch {
	case header.IPVersion(b) == 4 && len(b) >= header.IPv4MinimumSize:
		ip := header.IPv4(b)
		ip.SetTotalLength(uint16(min(len(b), maxMTU)))
		if ip.HeaderLength() < header.IPv4MinimumSize || int(ip.HeaderLength()) > len(b) {
			b[0] = 0x45
		}
		ip.SetChecksum(0)
		ip.SetChecksum(^ip.CalculateChecksum())
		transport, t = ip.Protocol(), b[ip.HeaderLength():]
	case header.IPVersion(b) == 6 && len(b) >= header.IPv6MinimumSize:
		ip := header.IPv6(b)
		ip.SetPayloadLength(uint16(min(len(b)-header.IPv6MinimumSize, maxMTU)))
		transport, t = ip.NextHeader(), b[header.IPv6MinimumSize:]
	default:
		return b
	}
	at := map[uint8]int{1: 2, 6: 16, 17: 6, 58: 2}
	offset, known := at[transport]
	if !known || len(t) < offset+2 || len(b) > maxMTU {
		return b
	}
	t[offset], t[offset+1] = 0, 0
	pseudo := uint16(0)
	if transport != 1 {
		src, dst, _ := fields(b)
		pseudo = header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(transport), toAddress(src), toAddress(dst), uint16(len(t)))
	}
	binary.BigEndian.PutUint16(t[offset:], ^checksum.Checksum(t, pseudo))
	return b
}

func TestRepaired(t *testing.T) {
	for _, good := range [][]byte{
		echoPacket(addrB4, addrA4, 1, 100), echoPacket(addrB6, addrA6, 1, 100),
		udpPacket(addrB4, addrA4, 100), udpPacket(addrB6, addrA6, 100),
		synPacket(addrB4, addrA4, 1000, 80), synPacket(addrB6, addrA6, 1000, 80),
	} {
		if got := repaired(good); !bytes.Equal(got, good) {
			t.Errorf("changed a good packet:\n%x\n%x", good, got)
		}
	}
}
