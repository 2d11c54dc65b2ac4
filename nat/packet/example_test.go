package packet_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/nat/packet"
)

func ExampleParse() {
	p, ok := packet.Parse(ping) // as it came from the wire
	if !ok {
		return // malformed
	}
	p.SetDst(netip.MustParseAddr("10.243.0.7"))
	p.DecrementHopLimit()
	fmt.Println(p.Src(), "->", p.Dst(), "echo:", p.IsEcho(), "hop limit:", p.HopLimit())
	fmt.Println("checksum valid:", p.HeaderChecksumValid())
	// Output:
	// 192.0.2.1 -> 10.243.0.7 echo: true hop limit: 63
	// checksum valid: true
}

// ping is an ICMP echo request from 192.0.2.1 to 10.71.0.7.
var ping = []byte{
	0x45, 0x00, 0x00, 0x1c, 0x00, 0x01, 0x00, 0x00, 0x40, 0x01, 0xae, 0x91, // header, TTL 64, ICMP
	192, 0, 2, 1, 10, 71, 0, 7, // addresses
	0x08, 0x00, 0xf7, 0xfd, 0x00, 0x01, 0x00, 0x01, // echo request, identifier 1, sequence number 1
}
