package neighbor

import (
	"bytes"
	"encoding/hex"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/test/mutate"
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

var (
	nodeMAC    = MAC{0x02, 0, 0, 0, 0, 0x01}
	gatewayMAC = MAC{0x02, 0, 0, 0, 0, 0x02}
)

func TestMAC(t *testing.T) {
	for _, tt := range []struct {
		mac                        MAC
		text                       string
		multicast, broadcast, zero bool
	}{
		{mac: MAC{}, text: "00:00:00:00:00:00", zero: true},
		{mac: MAC{0x02, 0x0a, 0xbc, 0xde, 0xf0, 0x19}, text: "02:0a:bc:de:f0:19"},
		{mac: MAC{0x33, 0x33, 0, 0, 0, 1}, text: "33:33:00:00:00:01", multicast: true},
		{mac: Broadcast, text: "ff:ff:ff:ff:ff:ff", multicast: true, broadcast: true},
	} {
		t.Run(tt.text, func(t *testing.T) {
			if got := tt.mac.String(); got != tt.text || got != net.HardwareAddr(tt.mac[:]).String() {
				t.Errorf("String = %q, want %q", got, tt.text)
			}
			if tt.mac.IsMulticast() != tt.multicast || tt.mac.IsBroadcast() != tt.broadcast || tt.mac.IsZero() != tt.zero {
				t.Errorf("multicast, broadcast, zero = %v, %v, %v", tt.mac.IsMulticast(), tt.mac.IsBroadcast(), tt.mac.IsZero())
			}
		})
	}
}

func TestStableMAC(t *testing.T) {
	// A change of this value would make every node's neighbor cache wrong
	// when the gateway is updated.
	if got, want := StableMAC([]byte("10.80.0.1/7")).String(), "a6:6f:14:95:ba:ee"; got != want {
		t.Errorf("StableMAC = %s, want %s", got, want)
	}
	seen := make(map[MAC]bool)
	for i := range 10000 {
		m := StableMAC([]byte{byte(i >> 8), byte(i)})
		if !m.isStation() || m[0]&2 == 0 {
			t.Fatalf("%v is not a locally administered unicast address", m)
		}
		if seen[m] {
			t.Fatalf("%v twice", m)
		}
		seen[m] = true
	}
}

func TestFrame(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wire  string
		frame Frame
		ok    bool
	}{
		{
			name: "unicast IPv4",
			wire: `02 00 00 00 00 02  02 00 00 00 00 01  08 00  45`,
			frame: Frame{Dst: gatewayMAC, Src: nodeMAC,
				EtherType: EtherTypeIPv4, Payload: []byte{0x45}},
			ok: true,
		},
		{
			name: "broadcast ARP without payload",
			wire: `ff ff ff ff ff ff  02 00 00 00 00 01  08 06`,
			frame: Frame{Dst: Broadcast, Src: nodeMAC,
				EtherType: EtherTypeARP, Payload: []byte{}},
			ok: true,
		},
		{
			name: "EtherType that nobody here knows",
			wire: `02 00 00 00 00 02  02 00 00 00 00 01  06 00`,
			frame: Frame{Dst: gatewayMAC, Src: nodeMAC,
				EtherType: 0x0600, Payload: []byte{}},
			ok: true,
		},
		{name: "one byte short", wire: `02 00 00 00 00 02  02 00 00 00 00 01  08`},
		{name: "802.3 length", wire: `02 00 00 00 00 02  02 00 00 00 00 01  05 ff`},
		{name: "802.1Q tag", wire: `02 00 00 00 00 02  02 00 00 00 00 01  81 00 00 01 08 00 45`},
		{name: "802.1ad tag", wire: `02 00 00 00 00 02  02 00 00 00 00 01  88 a8 00 01 08 00 45`},
		{name: "old outer tag", wire: `02 00 00 00 00 02  02 00 00 00 00 01  91 00 00 01 08 00 45`},
		{name: "group as source", wire: `02 00 00 00 00 02  01 00 5e 00 00 01  08 00 45`},
		{name: "broadcast as source", wire: `02 00 00 00 00 02  ff ff ff ff ff ff  08 00 45`},
		{name: "zero as source", wire: `02 00 00 00 00 02  00 00 00 00 00 00  08 00 45`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wire := unhex(t, tt.wire)
			f, ok := DecodeFrame(wire)
			if ok != tt.ok {
				t.Fatalf("ok = %v, want %v", ok, tt.ok)
			}
			if diff := cmp.Diff(tt.frame, f); diff != "" {
				t.Errorf("frame (-want +got):\n%s", diff)
			}
			if !ok {
				return
			}
			got := bytes.Repeat([]byte{0xff}, EthernetHeaderLen)
			PutEthernet(got, f.Dst, f.Src, f.EtherType)
			if !bytes.Equal(got, wire[:EthernetHeaderLen]) {
				t.Errorf("PutEthernet = %x, want %x", got, wire[:EthernetHeaderLen])
			}
		})
	}
}

func FuzzDecodeFrame(t *testing.F) {
	f := mutate.New(t)
	f.Add(unhex(f, `02 00 00 00 00 02  02 00 00 00 00 01  08 00  45`))
	f.Add(unhex(f, `ff ff ff ff ff ff  02 00 00 00 00 01  08 06`))
	f.Add(unhex(f, `02 00 00 00 00 02  02 00 00 00 00 01  81 00 00 01 08 00 45`))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, ok := DecodeFrame(b)
		if !ok {
			if !reflect.DeepEqual(Frame{}, frame) {
				t.Fatalf("result beside a failure: %+v", frame)
			}
			return
		}
		g := header.Ethernet(b)
		want := Frame{
			Dst:       MAC([]byte(g.DestinationAddress())),
			Src:       MAC([]byte(g.SourceAddress())),
			EtherType: uint16(g.Type()),
			Payload:   b[header.EthernetMinimumSize:],
		}
		if !reflect.DeepEqual(want, frame) {
			t.Fatalf("frame (-gvisor +got):\n%s", cmp.Diff(want, frame))
		}
		again := make([]byte, EthernetHeaderLen)
		PutEthernet(again, frame.Dst, frame.Src, frame.EtherType)
		if !bytes.Equal(append(again, frame.Payload...), b) {
			t.Fatal("the encoded frame differs")
		}
	})
}
