package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
)

// A gateway is built, configured and run. Here its sockets are in memory; a
// real one gets them from underlay.Listen.
func ExampleForwarder() {
	network := dataplanetest.NewNetwork()
	socket := network.Listen(netip.MustParseAddrPort("172.30.0.2:6091"))

	f, err := dataplane.New(dataplane.Options{
		Underlays: []dataplane.Underlay{socket},
		Tunnel: tunnel.Options{Listen: func(port uint16) (tunnel.Socket, error) {
			return network.Listen(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)), nil
		}},
	})
	if err != nil {
		panic(err)
	}
	err = f.Apply(dataplane.Config{
		Tunnel:    tunnel.Config{PrivateKey: tunnel.GeneratePrivateKey(), ListenPort: 51840},
		Nodes:     []dataplane.Node{{Name: "worker", VNI: 7, Underlay: []netip.Addr{netip.MustParseAddr("172.30.0.11")}}},
		LocalPods: []netip.Prefix{netip.MustParsePrefix("10.243.0.0/16")},
		Remote: []nat.Mapping{{ // both clusters use 10.243.0.0/16
			Inside:  netip.MustParsePrefix("10.71.0.0/16"),
			Outside: netip.MustParsePrefix("10.243.0.0/16"),
		}},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once, for the example
	err = f.Run(ctx)
	for _, n := range f.Status().Nodes {
		fmt.Println(n.Name, n.Encapsulation == geneve.Geneve, err)
	}
	// Output: worker true <nil>
}
