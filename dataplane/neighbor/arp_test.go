package neighbor

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sluice-net/sluice/test/mutate"
)

var compareAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

var arpTests = []struct {
	name string
	wire string
	arp  ARP
	ok   bool
}{
	{
		name: "request",
		wire: `00 01 08 00 06 04 00 01
		       02 00 00 00 00 01  0a 50 00 02  # the node asks
		       00 00 00 00 00 00  0a 50 00 01  # for the gateway`,
		arp: ARP{Op: ARPRequest, SenderMAC: nodeMAC, SenderIP: netip.MustParseAddr("10.80.0.2"),
			TargetIP: netip.MustParseAddr("10.80.0.1")},
		ok: true,
	},
	{
		name: "reply",
		wire: `00 01 08 00 06 04 00 02
		       02 00 00 00 00 02  0a 50 00 01
		       02 00 00 00 00 01  0a 50 00 02`,
		arp: ARP{Op: ARPReply, SenderMAC: gatewayMAC, SenderIP: netip.MustParseAddr("10.80.0.1"),
			TargetMAC: nodeMAC, TargetIP: netip.MustParseAddr("10.80.0.2")},
		ok: true,
	},
	{
		name: "probe",
		wire: `00 01 08 00 06 04 00 01
		       02 00 00 00 00 01  00 00 00 00
		       00 00 00 00 00 00  0a 50 00 01`,
		arp: ARP{Op: ARPRequest, SenderMAC: nodeMAC, SenderIP: netip.IPv4Unspecified(),
			TargetIP: netip.MustParseAddr("10.80.0.1")},
		ok: true,
	},
	{name: "one byte short", wire: `00 01 08 00 06 04 00 01 020000000001 0a500002 000000000000 0a5000`},
	{name: "other hardware", wire: `00 06 08 00 06 04 00 01 020000000001 0a500002 000000000000 0a500001`},
	{name: "other protocol", wire: `00 01 86 dd 06 04 00 01 020000000001 0a500002 000000000000 0a500001`},
	{name: "other hardware length", wire: `00 01 08 00 08 04 00 01 020000000001 0a500002 000000000000 0a500001`},
	{name: "other protocol length", wire: `00 01 08 00 06 10 00 01 020000000001 0a500002 000000000000 0a500001`},
	{name: "reverse request", wire: `00 01 08 00 06 04 00 03 020000000001 0a500002 000000000000 0a500001`},
	{name: "operation zero", wire: `00 01 08 00 06 04 00 00 020000000001 0a500002 000000000000 0a500001`},
	{name: "group as sender", wire: `00 01 08 00 06 04 00 02 01005e000001 0a500002 000000000000 0a500001`},
	{name: "broadcast as sender", wire: `00 01 08 00 06 04 00 02 ffffffffffff 0a500002 000000000000 0a500001`},
	{name: "zero as sender", wire: `00 01 08 00 06 04 00 02 000000000000 0a500002 000000000000 0a500001`},
	{name: "multicast address as sender", wire: `00 01 08 00 06 04 00 02 020000000001 e0000001 000000000000 0a500001`},
	{name: "broadcast address as sender", wire: `00 01 08 00 06 04 00 02 020000000001 ffffffff 000000000000 0a500001`},
}

func TestARP(t *testing.T) {
	for _, tt := range arpTests {
		t.Run(tt.name, func(t *testing.T) {
			wire := unhex(t, tt.wire)
			got, ok := DecodeARP(append(wire, "padding of a short frame"...))
			if tt.name == "one byte short" {
				got, ok = DecodeARP(wire)
			}
			if ok != tt.ok {
				t.Fatalf("ok = %v, want %v", ok, tt.ok)
			}
			if diff := cmp.Diff(tt.arp, got, compareAddr); diff != "" {
				t.Errorf("ARP (-want +got):\n%s", diff)
			}
			if !ok {
				return
			}
			if b := AppendARP([]byte{1, 2}, tt.arp); !bytes.Equal(b[2:], wire) {
				t.Errorf("AppendARP = %x, want %x", b[2:], wire)
			}
		})
	}
}

func TestAppendARPWithoutAddress(t *testing.T) {
	b := AppendARP(nil, ARP{Op: ARPRequest, SenderMAC: nodeMAC, TargetIP: netip.IPv6Unspecified()})
	got, ok := DecodeARP(b)
	if !ok || !got.SenderIP.IsUnspecified() || !got.TargetIP.IsUnspecified() {
		t.Errorf("got %v, %v; want unspecified addresses", got, ok)
	}
}

func FuzzDecodeARP(t *testing.F) {
	f := mutate.New(t)
	for _, tt := range arpTests {
		f.Add(unhex(f, tt.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := DecodeARP(b)
		if !ok {
			if a != (ARP{}) {
				t.Fatalf("result beside a failure: %+v", a)
			}
			return
		}
		g := header.ARP(b)
		if !g.IsValid() {
			t.Fatal("accepted what gVisor refuses")
		}
		want := ARP{
			Op:        uint16(g.Op()),
			SenderMAC: MAC(g.HardwareAddressSender()), SenderIP: netip.AddrFrom4([4]byte(g.ProtocolAddressSender())),
			TargetMAC: MAC(g.HardwareAddressTarget()), TargetIP: netip.AddrFrom4([4]byte(g.ProtocolAddressTarget())),
		}
		if want != a {
			t.Fatalf("ARP (-gvisor +got):\n%s", cmp.Diff(want, a, compareAddr))
		}
		if !a.SenderMAC.isStation() {
			t.Fatalf("sender %v", a.SenderMAC)
		}
		if again := AppendARP(nil, a); !bytes.Equal(again, b[:ARPLen]) {
			t.Fatalf("encoded again: %x", again)
		}
	})
}
