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
	l.reserve(map[netip.Addr]string{node: "Node n", netip.MustParseAddr("127.0.0.1"): "the API server"})
	for name, test := range map[string]struct {
		claim claim
		want  string
	}{
		"a peer's pods where nodes are": {network("rome", "a", "10.9.0.0/16", 1), "Remapped 10.8.0.0/16: 10.8.0.0/16 stands for 10.9.0.0/16, which was in use in this cluster"},
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
	if got, want := decide(network("rome", "b", "10.9.0.1/32", 1)), "Allocated 10.9.0.1/32: granted as asked for"; got != want {
		t.Errorf("the address of a node that is gone: %s", got)
	}
}
