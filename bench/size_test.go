package bench

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/test/lab"
)

// The size of the cluster that the gateways of sluice-large believe in, beside the
// one node and pod that there are.
const (
	largeNodes = 5000
	// largePods is how many pods such a node has, of each family. The pod CIDR of
	// IPv4 is full with so many.
	largePods, largePods6 = 13, 7
	largeIPs              = 1000
)

// large adds nodes, pods and IPs that carry no traffic. Pods are routes of one
// address each: 100000 in all.
func large(m *lab.Manifests) {
	m.FewFiles = true
	pod := netip.MustParseAddr("10.243.2.0")
	pod6 := netip.MustParseAddr("fd00:10:243:ff::")
	underlay, internal := netip.MustParseAddr("172.31.0.1"), netip.MustParseAddr("10.90.0.1")
	for i := range largeNodes {
		n := lab.NodeManifest{Name: fmt.Sprintf("far%d", i), Underlay: underlay, Internal: internal, VNI: 1000 + i}
		for range largePods {
			n.Pods = append(n.Pods, netip.PrefixFrom(pod, 32))
			pod = pod.Next()
		}
		for range largePods6 {
			n.Pods = append(n.Pods, netip.PrefixFrom(pod6, 128))
			pod6 = pod6.Next()
		}
		m.Nodes = append(m.Nodes, n)
		underlay, internal = underlay.Next(), internal.Next()
	}
	ip, remapped := netip.MustParseAddr("192.168.8.0"), netip.MustParseAddr("10.70.8.0")
	for i := range largeIPs {
		m.IPs = append(m.IPs, lab.IPManifest{Name: fmt.Sprintf("far%d", i), IP: ip, Remapped: remapped})
		ip, remapped = ip.Next(), remapped.Next()
	}
}
