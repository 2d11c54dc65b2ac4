package tunlink_test

import (
	"context"
	"log"
	"net/netip"

	"github.com/sluice-net/sluice/node/tunlink"
)

// A node whose kernel has no tunnel devices reaches one gateway. The device
// was made by node/hostnet.
func Example() {
	e, err := tunlink.New(tunlink.Options{GSO: true, GRO: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Apply([]tunlink.Tunnel{{
		Device: "liqo.example", VNI: 7, Gateway: netip.MustParseAddr("192.0.2.1"),
		Internal: netip.MustParseAddr("10.80.0.2"), GatewayInternal: netip.MustParseAddr("10.80.0.1"), MTU: 1400,
	}}); err != nil {
		log.Fatal(err) // says for which device, and what to do
	}
	log.Fatal(e.Run(context.Background()))
}
