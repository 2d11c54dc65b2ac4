package nat_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
)

// Both clusters use 10.243.0.0/16 for their pods; this one uses the peer's
// pods under 10.71.0.0/16.
func ExampleTable() {
	table, err := nat.NewTable(nat.Config{Remote: []nat.Mapping{{
		Inside:  netip.MustParsePrefix("10.71.0.0/16"),
		Outside: netip.MustParsePrefix("10.243.0.0/16"),
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, ok := packet.Parse([]byte{
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x6b, 0x3e, // IPv4, UDP
		10, 243, 0, 5, 10, 71, 0, 9, // addresses
		0x9c, 0x40, 0, 53, 0, 8, 0, 0, // ports 40000 and 53, no checksum
	})
	if !ok {
		fmt.Println("malformed")
		return
	}
	fmt.Println("to the peer:", table.Egress(&p))
	fmt.Println(p.Src(), "->", p.Dst())
	// Output:
	// to the peer: true
	// 10.243.0.5 -> 10.243.0.9
}
