package dataplane_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/tunnel"
)

// A configuration that one part of the data plane refuses changes no other part.
func TestApplyIsAllOrNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		refuse func(f *dataplane.Forwarder, port *uint16) // has a part refuse what comes next
	}{
		{"the own stack refuses", func(f *dataplane.Forwarder, _ *uint16) { f.CloseStack() }},
		{"the listen port is in use", func(_ *dataplane.Forwarder, port *uint16) { *port = 51999 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			network := dataplanetest.NewNetwork()
			var taken uint16
			f, err := dataplane.New(dataplane.Options{
				Underlays: []dataplane.Underlay{network.Listen(gatewayAddr)},
				Tunnel: tunnel.Options{Listen: func(port uint16) (tunnel.Socket, error) {
					if port == taken {
						return nil, syscall.EADDRINUSE
					}
					return network.Listen(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)), nil
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			h := &harness{T: t, network: network, forwarder: f}
			t.Cleanup(h.close)
			config := harnessConfig()
			if err := f.Apply(config); err != nil {
				t.Fatal(err)
			}
			before, own := f.Status(), f.OwnAddresses()

			tt.refuse(f, &taken)
			config.MTU = 1300
			config.Tunnel.ListenPort = 51999
			config.Tunnel.PeerKey = tunnel.GeneratePrivateKey().Public()
			config.Internal = []netip.Addr{netip.MustParseAddr("10.80.0.2")}
			config.Nodes = append(config.Nodes, dataplane.Node{Name: "node-2", Underlay: []netip.Addr{netip.MustParseAddr("192.168.5.5")}, VNI: 99})
			if err := f.Apply(config); err == nil {
				t.Fatal("it was applied")
			} else if taken != 0 && !errors.Is(err, syscall.EADDRINUSE) {
				t.Error(err)
			}
			if diff := cmp.Diff(before, f.Status(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); diff != "" {
				t.Errorf("the status changed (-before +after):\n%s", diff)
			}
			if got := f.OwnAddresses(); taken != 0 && !cmp.Equal(own, got, cmpopts.EquateComparable(netip.Addr{})) {
				t.Errorf("own addresses %v, want %v", got, own)
			}
			if n := f.States(); n != 2 {
				t.Errorf("something is known about %d nodes, want 2", n)
			}
		})
	}
}
