package geneve_test

import (
	"fmt"

	"github.com/sluice-net/sluice/geneve"
)

func Example() {
	datagram := make([]byte, geneve.HeaderLen, 64)
	geneve.PutHeader(datagram, geneve.Geneve, 7, geneve.ProtocolEthernet)
	datagram = append(datagram, "an Ethernet frame"...)

	h, inner, err := geneve.Decode(datagram)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v, VNI %d: %s\n", h.Encapsulation, h.VNI, inner)
	// Output: geneve, VNI 7: an Ethernet frame
}
