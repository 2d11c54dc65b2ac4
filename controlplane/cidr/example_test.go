package cidr_test

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/controlplane/cidr"
)

func Example() {
	a, err := cidr.NewAllocator(cidr.DefaultPools())
	if err != nil {
		fmt.Println(err)
		return
	}
	pods := netip.MustParsePrefix("10.243.0.0/16")
	fmt.Println(a.Acquire("liqo/pod-cidr", cidr.Request{Prefix: pods, NotRemapped: true}))
	fmt.Println(a.Acquire("tenant/remote-pod", cidr.Request{Prefix: pods}))
	fmt.Println(a.Acquire("tenant/fixed", cidr.Request{Prefix: pods, NotRemapped: true}))
	// Output:
	// 10.243.0.0/16 <nil>
	// 10.242.0.0/16 <nil>
	// invalid Prefix 10.243.0.0/16 overlaps 10.243.0.0/16 of liqo/pod-cidr
}
