package tunnel

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/underlay"
)

// defaultBuffer is net.core.rmem_max as kernels have it, and what a socket gets at most
// of a process without CAP_NET_ADMIN: 208 KiB.
const defaultBuffer = 212992

// A burst that is larger than the socket buffer of an unprivileged process, while the
// data plane is busy: what does not fit is lost and counted, what fits arrives in order,
// and the tunnel goes on.
func TestSmallSocketBuffers(t *testing.T) {
	noLeaks(t)
	var sockets []*underlay.Conn
	listen := func(host string) func(uint16) (Socket, error) {
		return func(port uint16) (Socket, error) {
			c, err := underlay.Listen(underlay.Config{
				Addr: netip.AddrPortFrom(netip.MustParseAddr(host), port), GRO: true, GSO: true,
				ReadBuffer: defaultBuffer, WriteBuffer: defaultBuffer,
			})
			sockets = append(sockets, c)
			return c, err
		}
	}
	b := newGateway(t, "127.0.0.2", "10.2.0.1", Options{Listen: listen("127.0.0.2")})
	a := newGateway(t, "127.0.0.1", "10.1.0.1", Options{Listen: listen("127.0.0.1")})
	port := freePort(t)
	connect(t, a, b)
	b.apply(t, func(c *Config) { c.ListenPort = port })
	a.apply(t, func(c *Config) { c.Endpoint = netip.AddrPortFrom(netip.MustParseAddr(b.host), port).String() })
	a.run(t)
	b.run(t)
	cross(t, a, b, 0)

	// Nobody takes what is delivered, so that the gateway waits, and reads no more.
	const burst = 4000
	p := func(id uint32) []byte { return ipPacket(a.inner, b.inner, id, 1300) }
	for id := range uint32(burst) {
		a.overlay.out <- p(1 + id)
	}
	eventually(t, "all is sent", func() bool {
		s := a.Stats()
		return s.TxPackets == 1+burst
	})
	sent := a.Stats().TxPackets - 1

	arrived, last, deadline := uint64(0), uint32(0), time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for last <= burst { // until something arrives that was sent afterwards
		select {
		case got := <-b.overlay.in:
			id := packetID(got)
			if id < last {
				t.Fatalf("packet %d after packet %d", id, last)
			}
			if last = id; id <= burst {
				arrived++
			}
		case now := <-tick.C:
			if now.After(deadline) {
				t.Fatal("nothing arrives any more")
			}
			a.overlay.out <- p(burst + 1)
		}
	}
	const largestRun = 64 // datagrams that the kernel drops as one
	overruns := uint64(0)
	for _, c := range sockets {
		s := c.Stats()
		overruns += s.Overruns
		if s.ReadBuffer > defaultBuffer || s.WriteBuffer > defaultBuffer {
			t.Errorf("buffers of %d and %d bytes", s.ReadBuffer, s.WriteBuffer)
		}
	}
	lost := sent - arrived
	t.Logf("%d sent, %d lost, %d overruns", sent, lost, overruns)
	if lost == 0 || overruns == 0 || lost > overruns*largestRun {
		t.Errorf("%d packets of %d were lost, %d overruns counted", lost, sent, overruns)
	}
	cross(t, b, a, 1)
}
