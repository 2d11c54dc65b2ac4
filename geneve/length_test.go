package geneve

import (
	"strings"
	"testing"
)

func TestDatagramLen(t *testing.T) {
	const (
		geneveEthernet = "00 00 65 58 00 00 07 00 "
		vxlan          = "08 00 00 00 00 00 07 00 "
		stations       = "02 00 00 00 00 01 02 00 00 00 00 02 "
		ipv4           = "45 00 05 39 00 00 " // 1337 bytes
		ipv6           = "60 00 00 00 05 39 " // 40 and 1337 bytes
	)
	tests := []struct {
		name, wire string
		want       int
		ok         bool
	}{
		{"Ethernet, IPv4", geneveEthernet + stations + "08 00 " + ipv4, 8 + 14 + 1337, true},
		{"Ethernet, IPv6", geneveEthernet + stations + "86 dd " + ipv6, 8 + 14 + 40 + 1337, true},
		{"VXLAN", vxlan + stations + "08 00 " + ipv4, 8 + 14 + 1337, true},
		{"no Ethernet, IPv4", "00 00 08 00 00 00 07 00 " + ipv4, 8 + 1337, true},
		{"no Ethernet, IPv6", "00 00 86 dd 00 00 07 00 " + ipv6, 8 + 40 + 1337, true},
		{"options", "01 00 08 00 00 00 07 00  01 02 03 00 " + ipv4, 8 + 4 + 1337, true},
		{"ARP", geneveEthernet + stations + "08 06 00 01 08 00 06 04", 0, false},
		{"a length that is cut off", "00 00 08 00 00 00 07 00 45 00 05 39 00", 0, false},
		{"a frame that is cut off", geneveEthernet + "02 00 00 00 00 01 02", 0, false},
		{"no encapsulation", "ff ff ff ff", 0, false},
		{"nothing", "", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.wire)
			if n, ok := DatagramLen(b); n != tt.want || ok != tt.ok {
				t.Errorf("%d, %t, want %d, %t", n, ok, tt.want, tt.ok)
			}
			// What follows does not count.
			if n, ok := DatagramLen(append(b, unhex(t, strings.Repeat("00", 100))...)); tt.ok && (n != tt.want || !ok) {
				t.Errorf("with more behind it: %d, %t, want %d", n, ok, tt.want)
			}
		})
	}
}
