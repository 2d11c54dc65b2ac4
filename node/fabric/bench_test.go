package fabric

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
)

// BenchmarkBuild is what a change of any object costs on a node with many
// gateways.
func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld()
			w.fabrics, w.tunnels, w.Paths = nil, nil, make(map[netip.Addr]hostnet.Path)
			for i := range n {
				name, gateway := fmt.Sprintf("peer%d", i), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				w.fabrics = append(w.fabrics, newFabric(name, fmt.Sprintf("liqo.%d", i), gateway.String(), fmt.Sprintf("10.81.%d.%d", i>>8, i&255),
					networkingv1beta1.CIDR(fmt.Sprintf("100.%d.%d.0/24", 64+i>>8, i&255))))
				w.tunnels = append(w.tunnels, newTunnel(name, "worker", int32(i)))
				w.Paths[gateway] = hostnet.Path{Source: addr("172.18.0.2"), Device: "eth0", MTU: 1500}
			}
			objects := w.objects(true)
			b.ReportAllocs()
			for b.Loop() {
				p, err := Build(objects, w.Facts)
				if err != nil || len(p.Desired.Links) != n || len(p.Ignored) > 0 {
					b.Fatal(len(p.Desired.Links), p.Ignored, err)
				}
			}
		})
	}
}
