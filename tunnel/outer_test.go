package tunnel

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/underlay"
)

// natSocket is the socket of a gateway behind a NAT: what does not come from where it
// has sent to gets lost.
type natSocket struct {
	*underlay.Conn
	asked netip.AddrPort
}

func (s *natSocket) ReadBatch(bufs [][]byte, sizes []int, from []underlay.Origin) (n int, err error) {
	all, err := s.Conn.ReadBatch(bufs, sizes, from)
	for i := range all {
		if from[i].Addr == s.asked {
			copy(bufs[n], bufs[i][:sizes[i]])
			sizes[n], from[n] = sizes[i], from[i]
			n++
		}
	}
	return n, err
}

// A server has two addresses, and the peer, behind a NAT, knows the one that the
// server's routes would not choose.
func TestHandshakeAtASecondAddress(t *testing.T) {
	asked := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), freePort(t))
	a := newGateway(t, "127.0.0.1", "10.1.0.1", Options{Listen: func(uint16) (Socket, error) {
		c, err := underlay.Listen(underlay.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
		return &natSocket{c, asked}, err
	}})
	b := newGateway(t, "127.0.0.2", "10.2.0.1", Options{Listen: func(port uint16) (Socket, error) {
		return underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(netip.Addr{}, port), GRO: true, GSO: true})
	}})
	connect(t, a, b)
	b.apply(t, func(c *Config) { c.ListenPort = asked.Port() })
	a.apply(t, func(c *Config) { c.Endpoint = asked.String() })
	a.run(t)
	b.run(t)
	cross(t, a, b, 1)
	cross(t, b, a, 2)
}

// The ECN field goes out with each packet, and marks of the network reach the overlay
// (RFC 6040).
func TestECN(t *testing.T) {
	n := newMemNet()
	a, b := newPair(t, n)
	cross(t, a, b, 0)
	const ce = 3
	var sent atomic.Uint32
	n.mu.Lock()
	n.pass = func(from netip.AddrPort, d *underlay.Datagram) {
		if from.Addr().String() == a.host && classify(d.Body) == messageData {
			sent.Store(uint32(d.ECN))
			d.ECN = ce
		}
	}
	n.mu.Unlock()
	for ecn := range uint8(4) {
		p := ipPacket(a.inner, b.inner, uint32(ecn), 100)
		p[1] = ecn
		a.overlay.out <- p
		expect(t, b, uint32(ecn))
		if sent.Load() != uint32(ecn) || b.overlay.ecn.Load() != ce {
			t.Errorf("ECN %d: sent with %d; delivered with %d, want %d", ecn, sent.Load(), b.overlay.ecn.Load(), ce)
		}
	}
}
