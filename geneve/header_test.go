package geneve

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/packettest"
)

// unhex reads hex with blanks; # starts a comment up to the end of the line.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("bad hex in test: %v", err)
	}
	return b
}

// wireTests go both ways: the bytes decode to header and payload, and a header
// without options encodes to the bytes. They are laid out by hand after the RFCs.
var wireTests = []struct {
	name    string
	wire    string
	header  Header
	payload string
}{
	{
		name: "geneve with an Ethernet frame",
		wire: `00 00 65 58  # version 0, no options, no flags, Ethernet
		       0a 0b 0c 00  # VNI
		       02 00 00 00 00 01`,
		header:  Header{VNI: 0x0a0b0c, Protocol: ProtocolEthernet},
		payload: "02 00 00 00 00 01",
	},
	{
		name:    "geneve with an IPv4 packet",
		wire:    `00 00 08 00 00 00 01 00 45`,
		header:  Header{Encapsulation: GeneveIP, VNI: 1, Protocol: ProtocolIPv4},
		payload: "45",
	},
	{
		name:    "geneve with an IPv6 packet",
		wire:    `00 00 86 dd ff ff ff 00 60`,
		header:  Header{Encapsulation: GeneveIP, VNI: MaxVNI, Protocol: ProtocolIPv6},
		payload: "60",
	},
	{
		name:   "geneve control packet",
		wire:   `00 80 65 58 00 00 00 00`,
		header: Header{Protocol: ProtocolEthernet, OAM: true},
	},
	{
		name: "geneve with two options that may be ignored",
		wire: `03 00 65 58 00 00 07 00 # three words of options
		       01 02 11 01             # class 0102, type 11, one word
		       de ad be ef
		       ff ff 7f 00             # experimental class, no data
		       aa`,
		header:  Header{VNI: 7, Protocol: ProtocolEthernet},
		payload: "aa",
	},
	{
		name: "geneve with the most options of a header",
		wire: `3f 00 65 58 00 00 07 00` +
			`00 01 01 1f` + strings.Repeat("00", 124) +
			`00 01 02 1e` + strings.Repeat("00", 120) + `bb`,
		header:  Header{VNI: 7, Protocol: ProtocolEthernet},
		payload: "bb",
	},
	{
		name:    "vxlan",
		wire:    `08 00 00 00 0a 0b 0c 00 02 00`,
		header:  Header{Encapsulation: VXLAN, VNI: 0x0a0b0c, Protocol: ProtocolEthernet},
		payload: "02 00",
	},
}

func TestWire(t *testing.T) {
	for _, tt := range wireTests {
		t.Run(tt.name, func(t *testing.T) {
			wire, payload := unhex(t, tt.wire), unhex(t, tt.payload)
			h, inner, err := Decode(wire)
			if err != nil {
				t.Fatalf("Decode: %v", err)
			}
			if diff := cmp.Diff(tt.header, h); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			if !bytes.Equal(inner, payload) {
				t.Errorf("payload = %x, want %x", inner, payload)
			}
			if len(wire) == HeaderLen+len(payload) && !tt.header.OAM {
				got := bytes.Repeat([]byte{0xff}, HeaderLen)
				PutHeader(got, tt.header.Encapsulation, tt.header.VNI, tt.header.Protocol)
				if !bytes.Equal(got, wire[:HeaderLen]) {
					t.Errorf("PutHeader = %x, want %x", got, wire[:HeaderLen])
				}
			}
		})
	}
}

// receiveTests hold what is never sent: fields to ignore, and errors.
var receiveTests = []struct {
	name   string
	wire   string
	header Header
	err    error
}{
	{name: "nothing", wire: ``, err: ErrShort},
	{name: "one byte short", wire: `00 00 65 58 00 00 01`, err: ErrShort},
	{name: "geneve version 1", wire: `40 00 65 58 00 00 01 00`, err: ErrVersion},
	{name: "geneve version 3 that has the I flag of vxlan", wire: `c8 00 65 58 00 00 01 00`, err: ErrVersion},
	{name: "geneve with ARP as payload", wire: `00 00 08 06 00 00 01 00`, err: ErrProtocol},
	{name: "geneve with MPLS as payload and eight words of options", wire: `08 00 88 47 00 00 01 00`, err: ErrProtocol},
	{name: "smallest EtherType", wire: `08 00 06 00 00 00 01 00`, err: ErrProtocol},
	{name: "geneve reserved bits", wire: `00 3f 65 58 00 00 01 ff`, header: Header{VNI: 1, Protocol: ProtocolEthernet}},
	{name: "options longer than the datagram", wire: `01 00 65 58 00 00 01 00 00 00 00`, err: ErrShort},
	{name: "option longer than all options", wire: `01 00 65 58 00 00 01 00 00 01 00 01 00 00 00 00`, err: ErrOptionLength},
	{name: "second option longer than all options", wire: `02 00 65 58 00 00 01 00 00 01 00 00 00 01 00 1f`, err: ErrOptionLength},
	{name: "option with data that is cut off", wire: `02 00 65 58 00 00 01 00 00 01 02 02 00 00 00 00`, err: ErrOptionLength},
	{name: "critical option that does not fit", wire: `01 40 65 58 00 00 01 00 00 01 80 01`, err: ErrOptionLength},
	{name: "option reserved bits", wire: `01 00 65 58 00 00 01 00 00 01 00 e0`, header: Header{VNI: 1, Protocol: ProtocolEthernet}},
	{name: "critical option", wire: `01 40 65 58 00 00 01 00 00 01 80 00`, err: ErrCriticalOption},
	{name: "critical option behind another", wire: `02 40 65 58 00 00 01 00 00 01 00 00 00 01 80 00`, err: ErrCriticalOption},
	{name: "critical option behind the data of another", wire: `03 40 65 58 00 00 01 00 00 01 00 01 00 00 00 00 ff ff 80 00`, err: ErrCriticalOption},
	{name: "critical option not announced by the C bit", wire: `01 00 65 58 00 00 01 00 00 01 80 00`, err: ErrCriticalOption},
	{name: "C bit without options", wire: `00 40 65 58 00 00 01 00`, err: ErrCriticalOption},
	{name: "C bit without a critical option", wire: `01 40 65 58 00 00 01 00 00 01 00 00`, err: ErrCriticalOption},
	{name: "vxlan reserved bits", wire: `ff ff 05 ff 00 00 01 ff`, header: Header{Encapsulation: VXLAN, VNI: 1, Protocol: ProtocolEthernet}},
	{name: "vxlan without a valid VNI", wire: `f7 ff 05 ff 00 00 01 00`, err: ErrVXLANFlags},
	{name: "all zero", wire: `00 00 00 00 00 00 00 00`, err: ErrVXLANFlags},
	{name: "all ones", wire: `ff ff ff ff ff ff ff ff`, err: ErrVersion},
}

func TestReceive(t *testing.T) {
	for _, tt := range receiveTests {
		t.Run(tt.name, func(t *testing.T) {
			h, inner, err := Decode(unhex(t, tt.wire))
			if err != tt.err {
				t.Fatalf("err = %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.header, h); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			if len(inner) != 0 {
				t.Errorf("payload = %x, want none", inner)
			}
		})
	}
}

// TestGeneveAndVXLANDisjoint decides every value of the octets that matter for
// telling the two apart: octet 0, and octets 2 and 3. What a valid header is
// comes from the RFCs, not from the code under test.
func TestGeneveAndVXLANDisjoint(t *testing.T) {
	b := make([]byte, HeaderLen+optLenMask*4) // zeros are 63 empty options of class 0
	for first := range 1 << 8 {
		for low := range 1 << 16 {
			b[0] = byte(first)
			binary.BigEndian.PutUint16(b[2:], uint16(low))
			h, _, err := Decode(b)

			// RFC 8926 section 3.4: version 0, an EtherType. RFC 7348 section 5:
			// as sent, only the I flag is set.
			validGeneve := first>>6 == 0 && low >= 0x0600
			validVXLAN := first == 0x08 && low == 0
			known := low == 0x6558 || low == 0x0800 || low == 0x86dd
			isVXLAN := err == nil && h.Encapsulation == VXLAN
			isGeneve := err == nil && h.Encapsulation != VXLAN
			switch {
			case validGeneve && validVXLAN:
				t.Fatalf("%02x..%04x is valid as both", first, low)
			case validGeneve && (isVXLAN || known != isGeneve || !known && err != ErrProtocol):
				t.Fatalf("%02x..%04x: valid Geneve decoded as %v, %v", first, low, h.Encapsulation, err)
			case validVXLAN && !isVXLAN:
				t.Fatalf("%02x..%04x: valid VXLAN decoded as %v, %v", first, low, h.Encapsulation, err)
			case !validGeneve && isGeneve:
				t.Fatalf("%02x..%04x: invalid Geneve accepted", first, low)
			case isVXLAN && first&0x08 == 0:
				t.Fatalf("%02x..%04x: VXLAN without the I flag accepted", first, low)
			}
		}
	}
}

// TestSecondOctet proves that octet 1 has no part in the choice, which lets
// TestGeneveAndVXLANDisjoint stand for all first words.
func TestSecondOctet(t *testing.T) {
	b := make([]byte, HeaderLen+optLenMask*4)
	for first := range 1 << 8 {
		for _, low := range []uint16{0, 1, 0x05ff, 0x0600, 0x0800, 0x6558, 0x86dd, 0xffff} {
			b[0], b[1] = byte(first), 0
			binary.BigEndian.PutUint16(b[2:], low)
			want, _, wantErr := Decode(b)
			for second := range 1 << 8 {
				b[1] = byte(second)
				got, _, err := Decode(b)
				if err == ErrCriticalOption && wantErr == nil && want.Encapsulation != VXLAN && second&flagCritical != 0 {
					continue // the C bit refuses, it does not choose
				}
				if err != wantErr || got.Encapsulation != want.Encapsulation {
					t.Fatalf("%02x %02x %04x: %v, %v; with a zero octet 1 %v, %v",
						first, second, low, got.Encapsulation, err, want.Encapsulation, wantErr)
				}
			}
		}
	}
}

func TestEncapsulationString(t *testing.T) {
	for e, want := range map[Encapsulation]string{Geneve: "geneve", GeneveIP: "geneve-ip", VXLAN: "vxlan", 9: "unknown"} {
		if got := e.String(); got != want {
			t.Errorf("Encapsulation(%d) = %q, want %q", e, got, want)
		}
	}
}

func TestZeroAllocations(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	wire := unhex(t, wireTests[4].wire)
	buf := make([]byte, HeaderLen)
	if n := testing.AllocsPerRun(100, func() {
		h, inner, err := Decode(wire)
		if err != nil || len(inner) != 1 {
			t.Fatal("cannot decode")
		}
		PutHeader(buf, h.Encapsulation, h.VNI, h.Protocol)
	}); n != 0 {
		t.Errorf("%v allocations per packet, want 0", n)
	}
}

func TestEncapsulationText(t *testing.T) {
	for _, e := range []Encapsulation{Geneve, GeneveIP, VXLAN} {
		b, err := e.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Encapsulation
		if err := got.UnmarshalText(b); err != nil || got != e {
			t.Errorf("%q is read as %v, %v", b, got, err)
		}
	}
	var e Encapsulation
	if err := e.UnmarshalText([]byte("gre")); err == nil {
		t.Errorf("gre is read as %v", e)
	}
}
