package nat_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// mssOptions are TCP options with an MSS of 1460 (05b4), where they hold one.
var mssOptions = map[string][]byte{
	"alone":           {2, 4, 5, 0xb4},
	"as Linux sends":  {2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7},
	"at an odd place": {1, 2, 4, 5, 0xb4, 1, 1, 0},
	"at the end":      {1, 1, 1, 1, 2, 4, 5, 0xb4},
	"twice":           {2, 4, 5, 0xb4, 1, 2, 4, 5, 0xb4, 1, 1, 1},
	"high, then low":  {2, 4, 5, 0xb4, 2, 4, 1, 0},
	"none":            {4, 2, 1, 1},
	"behind the end":  {0, 2, 4, 5, 0xb4, 0, 0, 0},
	"wrong length":    {2, 3, 5, 1, 0, 0, 0, 0},
	"length zero":     {2, 0, 5, 0xb4},
	"length one":      {4, 1, 2, 4, 5, 0xb4, 0, 0},
	"cut":             {1, 1, 2, 4},
	"kind alone":      {1, 1, 1, 2},
	"overlong":        {8, 40, 2, 4, 5, 0xb4, 0, 0},
	"no options":      {},
}

// synPacket returns a TCP packet with given flags and options.
func synPacket(a netip.Addr, flags uint8, options []byte) packettest.Spec {
	s := packettest.Segment{SrcPort: 40000, DstPort: 80, Flags: flags, Options: options, Payload: []byte("data")}
	return packettest.Spec{Src: a, Dst: a.Next(), Proto: packet.ProtoTCP, Transport: s.Bytes()}
}

// replaced returns options with 1460 replaced by another MSS.
func replaced(options []byte, mss int) []byte {
	return bytes.ReplaceAll(options, []byte{2, 4, 5, 0xb4}, []byte{2, 4, byte(mss >> 8), byte(mss)})
}

func TestClampMSS(t *testing.T) {
	a4, a6 := netip.MustParseAddr("10.71.0.1"), netip.MustParseAddr("fd00:71::1")
	tests := []struct {
		name    string
		addr    netip.Addr
		flags   uint8
		options string
		mtu     int
		want    int // the MSS afterwards; 0 means unchanged
	}{
		{"SYN", a4, packet.TCPSyn, "alone", 1400, 1360},
		{"SYN-ACK", a4, packet.TCPSyn | packet.TCPAck, "alone", 1400, 1360},
		{"SYN with ECN", a4, packet.TCPSyn | packet.TCPEce | packet.TCPCwr, "alone", 1400, 1360},
		{"IPv6", a6, packet.TCPSyn, "alone", 1400, 1340},
		{"the options of a kernel", a4, packet.TCPSyn, "as Linux sends", 1400, 1360},
		{"odd offset", a4, packet.TCPSyn, "at an odd place", 1400, 1360},
		{"odd offset in IPv6", a6, packet.TCPSyn, "at an odd place", 1300, 1240},
		{"last option", a6, packet.TCPSyn, "at the end", 1400, 1340},
		{"several", a4, packet.TCPSyn, "twice", 1400, 1360},
		{"several, the last one low enough", a4, packet.TCPSyn, "high, then low", 1400, 1360},
		{"one byte too high", a4, packet.TCPSyn, "alone", 1499, 1459},
		{"just right", a4, packet.TCPSyn, "alone", 1500, 0},
		{"never raised", a4, packet.TCPSyn, "alone", 9000, 0},
		{"never raised above 64 KiB", a4, packet.TCPSyn, "alone", 1 << 20, 0},
		{"room for one byte", a4, packet.TCPSyn, "alone", 41, 1},
		{"no room at all", a4, packet.TCPSyn, "alone", 40, 0},
		{"MTU of zero", a4, packet.TCPSyn, "alone", 0, 0},
		{"ACK", a4, packet.TCPAck, "alone", 1400, 0},
		{"RST", a4, packet.TCPRst, "alone", 1400, 0},
		{"no MSS option", a4, packet.TCPSyn, "none", 1400, 0},
		{"no options", a4, packet.TCPSyn, "no options", 1400, 0},
		{"behind the end of options", a4, packet.TCPSyn, "behind the end", 1400, 0},
		{"wrong length", a4, packet.TCPSyn, "wrong length", 1400, 0},
		{"option of length zero", a4, packet.TCPSyn, "length zero", 1400, 0},
		{"option of length one", a4, packet.TCPSyn, "length one", 1400, 0},
		{"option cut by the header", a4, packet.TCPSyn, "cut", 1400, 0},
		{"kind without a length", a4, packet.TCPSyn, "kind alone", 1400, 0},
		{"option beyond the header", a4, packet.TCPSyn, "overlong", 1400, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options := mssOptions[tt.options]
			b, want := synPacket(tt.addr, tt.flags, options).Bytes(), synPacket(tt.addr, tt.flags, options).Bytes()
			if tt.want != 0 {
				want = synPacket(tt.addr, tt.flags, replaced(options, tt.want)).Bytes()
			}
			p, ok := packet.Parse(b)
			if !ok {
				t.Fatal("refused")
			}
			if changed := nat.ClampMSS(&p, tt.mtu); changed != (tt.want != 0) {
				t.Errorf("reports %t", changed)
			}
			if !bytes.Equal(b, want) {
				t.Errorf("got  %x\nwant %x", b, want)
			}
		})
	}
}

// TestClampMSSFragment: a first fragment may end within the options.
func TestClampMSSFragment(t *testing.T) {
	s := synPacket(netip.MustParseAddr("10.71.0.1"), packet.TCPSyn, mssOptions["as Linux sends"])
	for _, length := range []int{24, 32} {
		s.Part = packettest.Part{Length: length}
		p, ok := packet.Parse(s.Bytes())
		if !ok {
			t.Fatal("refused")
		}
		if !nat.ClampMSS(&p, 1400) || binary.BigEndian.Uint16(p.Bytes[42:]) != 1360 {
			t.Errorf("%d bytes: %x", length, p.Bytes)
		}
	}
	// The option itself is cut, and a later fragment has none.
	s = synPacket(netip.MustParseAddr("10.71.0.1"), packet.TCPSyn, append([]byte{1, 1}, mssOptions["at the end"]...)[:8])
	for _, part := range []packettest.Part{{Offset: 0, Length: 24}, {Offset: 24, Length: 8}} {
		s.Part = part
		b := s.Bytes()
		p, ok := packet.Parse(b)
		if !ok {
			t.Fatal("refused")
		}
		if nat.ClampMSS(&p, 1400) || !bytes.Equal(b, s.Bytes()) {
			t.Errorf("%+v: changed to %x", part, b)
		}
	}
}

func TestClampMSSOnlyTCP(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for range packettest.Rounds(20_000) {
		s := packettest.Random(r, randomAddr(r, true), randomAddr(r, true))
		b := s.Bytes()
		p, ok := packet.Parse(b)
		if !ok {
			t.Fatal("refused")
		}
		if nat.ClampMSS(&p, 600) && (s.Proto != packet.ProtoTCP || s.Part.Offset != 0) || len(p.Bytes) != len(b) {
			t.Fatalf("changed %+v", s)
		}
	}
}

func TestMSS(t *testing.T) {
	a4 := netip.MustParseAddr("10.71.0.1")
	want := map[string]int{
		"alone": 1460, "as Linux sends": 1460, "at an odd place": 1460, "at the end": 1460, "twice": 1460,
		"high, then low": 256, // a receiver may take either
	}
	for name, options := range mssOptions {
		for flags, announces := range map[uint8]bool{
			packet.TCPSyn: true, packet.TCPSyn | packet.TCPAck: true, packet.TCPAck: false,
		} {
			p, ok := packet.Parse(synPacket(a4, flags, options).Bytes())
			if !ok {
				t.Fatalf("%s: not a packet", name)
			}
			mss, found := nat.MSS(&p)
			if wantMSS := want[name]; found != (announces && wantMSS > 0) || found && mss != wantMSS {
				t.Errorf("%s, flags %#x: got %d, %v, want %d", name, flags, mss, found, wantMSS)
			}
		}
	}
}
