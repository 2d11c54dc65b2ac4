package health_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/sluice-net/sluice/dataplane/health"
)

func Example() {
	us, _ := net.ListenPacket("udp", "127.0.0.1:0")
	them, _ := net.ListenPacket("udp", "127.0.0.1:0")
	defer us.Close()
	defer them.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	peer, _ := health.New(health.Config{ClusterID: "milan", Peer: port(us)}, health.Options{})
	go peer.Run(ctx, them)

	connected := make(chan health.Status, 1)
	p, err := health.New(health.Config{ClusterID: "rome", Peer: port(them)}, health.Options{
		Notify: func(s health.Status) {
			if s.Value == health.Connected {
				connected <- s
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go p.Run(ctx, us)
	s := <-connected
	fmt.Println(s.Value, s.Latency > 0)
	// Output: Connected true
}

func port(c net.PacketConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }
