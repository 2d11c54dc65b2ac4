package neighbor_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/neighbor"
)

// A gateway answers the request of a node.
func Example() {
	gateway := neighbor.StableMAC([]byte("10.80.0.1/7"))
	frame := make([]byte, neighbor.EthernetHeaderLen, 64)
	neighbor.PutEthernet(frame, neighbor.Broadcast, neighbor.MAC{2, 0, 0, 0, 0, 1}, neighbor.EtherTypeARP)
	frame = neighbor.AppendARP(frame, neighbor.ARP{
		Op:        neighbor.ARPRequest,
		SenderMAC: neighbor.MAC{2, 0, 0, 0, 0, 1}, SenderIP: netip.MustParseAddr("10.80.0.2"),
		TargetIP: netip.MustParseAddr("10.80.0.1"),
	})

	f, ok := neighbor.DecodeFrame(frame)
	if !ok || f.EtherType != neighbor.EtherTypeARP {
		return
	}
	if a, ok := neighbor.DecodeARP(f.Payload); ok && a.Op == neighbor.ARPRequest {
		reply := neighbor.AppendARP(nil, neighbor.ARP{
			Op:        neighbor.ARPReply,
			SenderMAC: gateway, SenderIP: a.TargetIP,
			TargetMAC: a.SenderMAC, TargetIP: a.SenderIP,
		})
		fmt.Printf("%v asks for %v, %d bytes back\n", a.SenderIP, a.TargetIP, len(reply))
	}
	// Output: 10.80.0.2 asks for 10.80.0.1, 28 bytes back
}
