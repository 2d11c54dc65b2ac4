package filter_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// A chain that lets the peer's cluster reach one database and nothing else.
func ExampleFilter_Check() {
	database := netip.MustParseAddr("10.243.1.10")
	fromPeer := filter.Match{In: filter.Link{Side: filter.PeerSide}}
	f, err := filter.Compile(filter.Config{Chains: []filter.Chain{{
		Table: "tenant/database", Name: "forward", Hook: filter.Forward,
		Rules: []filter.Rule{
			{Name: "database", Action: filter.Accept, Matches: []filter.Match{fromPeer, {
				Proto:   packet.ProtoTCP,
				Dst:     filter.Addrs{First: database, Last: database},
				DstPort: filter.Ports{First: 5432, Last: 5432},
			}}},
			{Name: "rest", Action: filter.Reject, Counter: true, Matches: []filter.Match{fromPeer}},
		},
	}}}, nil)
	if err != nil {
		panic(err)
	}
	for _, port := range []uint16{5432, 22} {
		p, _ := packet.Parse(packettest.Spec{
			Src: netip.MustParseAddr("10.243.2.20"), Dst: database, Proto: packet.ProtoTCP,
			Transport: packettest.Segment{SrcPort: 40000, DstPort: port, Flags: packet.TCPSyn}.Bytes(),
		}.Bytes())
		action, _ := f.Check(&p, &filter.Way{Node: "worker", Dst: database})
		fmt.Println(port, action)
	}
	fmt.Println(*f.Status()[0].Rules[1].Packets)
	// Output:
	// 5432 accept
	// 22 reject
	// {0 1}
}
