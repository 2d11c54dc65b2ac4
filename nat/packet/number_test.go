package packet_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
)

func TestNumber(t *testing.T) {
	for addr, want := range map[string]packet.Number{
		"1.2.3.4":         {Lo: 0x01020304},
		"255.255.255.255": {Lo: 0xffffffff},
		"::1":             {Lo: 1},
		"::102:304":       {Lo: 0x01020304},
		"fd00:1::2:3":     {Hi: 0xfd00_0001_0000_0000, Lo: 0x0002_0003},
	} {
		a := netip.MustParseAddr(addr)
		n := packet.NumberOf(a)
		if n != want || n.Addr(a.Is4()) != a {
			t.Errorf("%s is %x and back %s, want %x", a, n, n.Addr(a.Is4()), want)
		}
	}
	if n := packet.NumberOf(netip.Addr{}); n != (packet.Number{}) {
		t.Errorf("no address is %x", n)
	}
}
