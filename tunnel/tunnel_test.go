package tunnel

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane/underlay"
)

func TestTunnelCarriesPacketsBothWays(t *testing.T) {
	loopback := func(host string) func(uint16) (Socket, error) {
		return func(port uint16) (Socket, error) {
			return underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(netip.MustParseAddr(host), port), GRO: true, GSO: true})
		}
	}
	mem := newMemNet()
	for _, tt := range []struct {
		name   string
		hosts  [2]string
		listen func(host string) func(uint16) (Socket, error)
	}{
		{"in memory", [2]string{"192.0.2.1", "192.0.2.2"}, mem.listen},
		{"over IPv4 loopback", [2]string{"127.0.0.1", "127.0.0.2"}, loopback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			a := newGateway(t, tt.hosts[0], "10.1.0.1", Options{Listen: tt.listen(tt.hosts[0])})
			b := newGateway(t, tt.hosts[1], "10.2.0.1", Options{Listen: tt.listen(tt.hosts[1])})
			connect(t, a, b)
			a.run(t)
			b.run(t)
			start := time.Now()
			cross(t, a, b, 1)
			cross(t, b, a, 2)
			t.Log("handshake and two packets took", time.Since(start))
		})
	}
}
