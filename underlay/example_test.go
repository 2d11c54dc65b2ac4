package underlay_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/underlay"
)

func Example() {
	cfg := underlay.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), GSO: true, GRO: true}
	a, err := underlay.Listen(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	b, err := underlay.Listen(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	// Equal lengths, one destination: one message to the kernel.
	head := []byte("header ")
	sent, err := a.WriteBatch([]underlay.Datagram{
		{Addr: b.LocalAddr(), Head: head, Body: []byte("one")},
		{Addr: b.LocalAddr(), Head: head, Body: []byte("two")},
	})
	fmt.Println(sent, err)

	bufs := [][]byte{make([]byte, underlay.MaxDatagram), make([]byte, underlay.MaxDatagram)}
	sizes, from := make([]int, 2), make([]underlay.Origin, 2)
	for seen := 0; seen < sent; {
		n, err := b.ReadBatch(bufs, sizes, from)
		if err != nil {
			fmt.Println(err)
			return
		}
		for i := range n {
			fmt.Println(string(bufs[i][:sizes[i]]), from[i].Addr == a.LocalAddr())
		}
		seen += n
	}
	// Output:
	// 2 <nil>
	// header one true
	// header two true
}
