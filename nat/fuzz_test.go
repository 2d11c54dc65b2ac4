package nat_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	gchecksum "gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

// fuzzConfig has what the seeds meet: ranges of both families and a host.
func fuzzConfig() nat.Config {
	return nat.Config{
		Remote: []nat.Mapping{mapping("10.71.0.0/16", "10.243.0.0/16"), mapping("fd00:71::/48", "fd00:243::/48")},
		Local:  []nat.Mapping{mapping("192.0.2.1/32", "10.70.0.1/32"), mapping("2001:db8::1/128", "fd00:70::1/128")},
	}
}

// checksums says which checksums of a packet there are and whether they are
// valid, as gVisor computes them.
type checksums struct{ header, transport bool }

func gvisorChecksums(p *packet.Packet) checksums {
	c := checksums{header: p.Version == 6 || header.IPv4(p.Bytes).IsChecksumValid()}
	if p.Fragment != packet.Whole {
		return c
	}
	var sum uint16
	switch {
	case p.Proto == packet.ProtoTCP, p.Proto == packet.ProtoUDP, p.Version == 6 && p.Proto == packet.ProtoICMPv6:
		sum = header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(p.Proto),
			tcpip.AddrFromSlice(p.Src().AsSlice()), tcpip.AddrFromSlice(p.Dst().AsSlice()), uint16(len(p.Transport())))
	case p.Version == 4 && p.Proto == packet.ProtoICMP:
	default:
		return c
	}
	c.transport = gchecksum.Checksum(p.Transport(), sum) == 0xffff
	return c
}

// exchange swaps the addresses of a packet, and of the one it quotes, in
// place. No checksum changes by that.
func exchange(p *packet.Packet) {
	src, dst := p.Src(), p.Dst()
	p.SetSrc(dst)
	p.SetDst(src)
	if e, ok := p.Embedded(); ok {
		src, dst := e.Src(), e.Dst()
		e.SetSrc(dst)
		e.SetDst(src)
	}
}

// FuzzTranslate translates any packet and its reply: what was valid stays valid,
// what was wrong stays wrong, and the reply comes back as it would have been
// without translation.
func FuzzTranslate(t *testing.F) {
	f := mutate.New(t)
	w := world{config: fuzzConfig()}
	table, err := nat.NewTable(w.config)
	if err != nil {
		f.Fatal(err)
	}
	r := rand.New(rand.NewPCG(21, 22))
	for range 100 {
		f.Add(w.packet(r, true).Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		before, length, valid := bytes.Clone(b), len(p.Bytes), gvisorChecksums(&p)
		udpAbsent := p.Proto == packet.ProtoUDP && p.Fragment == packet.Whole && before[p.TransportOffset+6]|before[p.TransportOffset+7] == 0
		invertible := w.invertible(describeAddresses(&p))
		table.Egress(&p)
		if q, ok := packet.Parse(b); !ok || len(q.Bytes) != length || q.TransportOffset != p.TransportOffset {
			t.Fatalf("translated into something else\n%x\n%x", before, b)
		}
		if got := gvisorChecksums(&p); got != valid && !udpAbsent {
			t.Fatalf("checksums valid before %+v, after %+v\n%x\n%x", valid, got, before, b)
		}
		changed := 0
		for i := range b {
			if b[i] != before[i] {
				changed++
			}
		}
		// Two addresses and two checksums, once outside and once in the quotation.
		if most := 2 * (2*len(p.Src().AsSlice()) + 2*2); changed > most {
			t.Fatalf("%d bytes changed\n%x\n%x", changed, before, b)
		}
		if !invertible {
			return
		}
		exchange(&p)
		table.Ingress(&p)
		exchange(&p)
		for i := 0; i < len(b); i++ {
			if b[i] == before[i] {
				continue
			}
			// A checksum that came as one zero may go as the other.
			if zero := b[i]^before[i] == 0xff && (b[i] == 0 || b[i] == 0xff); !zero {
				t.Fatalf("there and back differ at %d\n%x\n%x", i, before, b)
			}
		}
	})
}

// describeAddresses returns the addresses of a packet and its quotation.
func describeAddresses(p *packet.Packet) packettest.Spec {
	s := packettest.Spec{Src: p.Src(), Dst: p.Dst()}
	if e, ok := p.Embedded(); ok {
		s.Quote = &packettest.Spec{Src: e.Src(), Dst: e.Dst()}
	}
	return s
}

// FuzzClampMSS: only a SYN changes, no value is raised, a second time changes
// nothing, and checksums stay as valid as they were.
func FuzzClampMSS(t *testing.F) {
	f := mutate.New(t)
	a, b6 := netip.MustParseAddr("10.71.0.1"), netip.MustParseAddr("fd00::1")
	for _, options := range mssOptions {
		for _, addr := range []netip.Addr{a, b6} {
			f.Add(synPacket(addr, packet.TCPSyn, options).Bytes(), 1400)
			f.Add(synPacket(addr, packet.TCPAck, options).Bytes(), 41)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, mtu int) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		before, valid := bytes.Clone(b), gvisorChecksums(&p)
		changed := nat.ClampMSS(&p, mtu)
		if changed == bytes.Equal(b, before) {
			t.Fatalf("reports %t\n%x\n%x", changed, before, b)
		}
		if changed && !p.IsTCPSYN() {
			t.Fatalf("changed what is no SYN: %x", before)
		}
		if got := gvisorChecksums(&p); got != valid {
			t.Fatalf("checksums valid before %+v, after %+v\n%x\n%x", valid, got, before, b)
		}
		if nat.ClampMSS(&p, mtu) {
			t.Fatalf("clamped twice: %x", before)
		}
		if !changed {
			return
		}
		old, now := announced(before[p.TransportOffset:len(p.Bytes)]), announced(p.Transport())
		for i := range now {
			if now[i] > old[i] {
				t.Fatalf("MSS raised from %d to %d", old[i], now[i])
			}
		}
		for i := range b {
			if options := p.TransportOffset + packet.TCPHeaderLen; b[i] != before[i] && i < options && i != options-4 && i != options-3 {
				t.Fatalf("byte %d changed, neither option nor checksum", i)
			}
		}
	})
}

// announced returns the values of all MSS options of a TCP header.
func announced(tcp []byte) (values []int) {
	options := tcp[20:min(int(tcp[12]>>4)*4, len(tcp))]
	for i := 0; i < len(options) && options[i] != 0; {
		if options[i] == 1 {
			i++
			continue
		}
		if i+1 >= len(options) || options[i+1] < 2 || i+int(options[i+1]) > len(options) {
			break
		}
		if options[i] == 2 && options[i+1] == 4 {
			values = append(values, int(options[i+2])<<8|int(options[i+3]))
		}
		i += int(options[i+1])
	}
	return values
}
