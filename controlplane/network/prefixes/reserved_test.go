package prefixes

import (
	"net/netip"
	"testing"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
)

// TestReserved asks for prefixes around the addresses of nodes.
func TestReserved(t *testing.T) {
	l := ledgerOf(t, installation()...)
	node, other := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	decide := func(c claim) string { return l.decide(c, installation()).text() }
	l.reserve(map[netip.Addr]string{
		node: "Node n", netip.MustParseAddr("fd00:9:0:1::1"): "Node n",
		netip.MustParseAddr("127.0.0.1"): "the API server", netip.MustParseAddr("10.11.0.1"): "the API server",
	})
	for name, test := range map[string]struct {
		claim claim
		want  string
	}{
		"a peer's pods where nodes are": {network("rome", "a", "10.9.0.0/16", 1), "Remapped 10.8.0.0/16: 10.8.0.0/16 stands for 10.9.0.0/16, which was in use in this cluster"},
		"in their network, beside them": {network("rome", "a", "10.9.0.128/25", 1), "Remapped 10.9.1.0/25: 10.9.1.0/25 stands for 10.9.0.128/25, which was in use in this cluster"},
		"in the network of IPv6 nodes":  {network("rome", "a", "fd00:9:0:1:8000::/65", 1), "Remapped fd50:52ea::/65: fd50:52ea::/65 stands for fd00:9:0:1:8000::/65, which was in use in this cluster"},
		"where the API server is alone": {network("rome", "a", "10.11.0.128/25", 1), "Allocated 10.11.0.128/25: granted as asked for"},
		"beside them":                   {network("rome", "a", "10.10.0.0/16", 1), "Allocated 10.10.0.0/16: granted as asked for"},
		"granted before the node came":  {network("rome", "a", "10.9.0.0/16", 1, granted("10.9.0.0/16")), "Allocated 10.9.0.0/16: granted as asked for"},
		"this cluster's own pods": {network(liqo, "pod-cidr-2", "10.9.0.0/16", 1, label(ipamv1alpha1.LabelNetworkType, "pod-cidr"), notRemapped),
			"Allocated 10.9.0.0/16: granted as asked for"},
	} {
		if got := decide(test.claim); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
		l.forget(test.claim.key)
	}
	held := l.allocator.Len()
	l.reserve(map[netip.Addr]string{other: "Node m"})
	if got := l.allocator.Len(); got >= held {
		t.Errorf("%d hold something after a node went, before %d", got, held)
	}
	if got, want := decide(network("rome", "b", "fd00:9:0:1::/64", 1)), "Allocated fd00:9:0:1::/64: granted as asked for"; got != want {
		t.Errorf("the network of a node that is gone: %s", got)
	}
}
