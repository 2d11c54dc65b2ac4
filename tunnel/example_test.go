package tunnel_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// printer is the smallest data plane: it sends nothing and prints what arrives.
type printer struct{ done chan struct{} }

func (p printer) ReadPackets([][]byte, []int, int) (n, own int, err error) {
	<-p.done
	return 0, 0, os.ErrClosed
}

func (p printer) WritePackets(bufs [][]byte, _ []uint8, offset int, _ func()) {
	for _, b := range bufs {
		fmt.Println(len(b)-offset, "bytes")
	}
}

func (p printer) CloseRead() { close(p.done) }

func Example() {
	t, err := tunnel.New(tunnel.Options{
		Overlay: printer{done: make(chan struct{})},
		Listen: func(port uint16) (tunnel.Socket, error) {
			return underlay.Listen(underlay.Config{Addr: netip.AddrPortFrom(netip.IPv6Unspecified(), port), GRO: true, GSO: true})
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The server side: it listens, and learns the peer's key later.
	if err := t.Apply(tunnel.Config{PrivateKey: tunnel.GeneratePrivateKey(), MTU: 1340}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println("Run:", t.Run(ctx))
	// Output: Run: <nil>
}
