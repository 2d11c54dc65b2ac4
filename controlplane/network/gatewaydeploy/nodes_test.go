package gatewaydeploy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func texts(prefixes []netip.Prefix) (out []string) {
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

func TestNodePrefixes(t *testing.T) {
	node := func(addresses ...string) corev1.Node {
		n := corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "192.0.2.99"}}}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		return n
	}
	internal := func(local, remote string) (n networkingv1beta1.InternalNode) {
		n.Status.NodeIP = networkingv1beta1.NodeIP{Local: networkingv1beta1.Address(local), Remote: networkingv1beta1.Address(remote)}
		return n
	}
	nodes := []corev1.Node{node("192.0.2.5", "2001:db8::5"), node("192.0.2.4"), node("nonsense", "127.0.0.1"), node()}
	virtual := node("10.243.0.13")
	virtual.Labels = map[string]string{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual}
	nodes = append(nodes, virtual)
	agents := []networkingv1beta1.InternalNode{internal("10.243.1.1", "10.243.1.0"), internal("", "192.0.2.4"), internal("", "")}
	if diff := cmp.Diff([]string{"10.243.1.0/31", "192.0.2.4/31", "2001:db8::5/128"}, texts(nodePrefixes(nodes, agents))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := nodePrefixes(nil, nil); len(got) != 0 {
		t.Errorf("without nodes: %v", got)
	}
}

// Exactly the addresses as long as there is room, and never less than those.
func TestCovering(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var addrs []netip.Addr
		for range 1 + r.IntN(300) {
			text := fmt.Sprintf("10.%d.%d.%d", r.IntN(3), r.IntN(4), r.IntN(256))
			if r.IntN(5) == 0 {
				text = fmt.Sprintf("2001:db8::%x", r.IntN(256))
			}
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		for _, limit := range []int{1 << 20, 20} {
			prefixes := covering(addrs, limit)
			if len(prefixes) > limit {
				t.Fatalf("%d prefixes, limit %d", len(prefixes), limit)
			}
			holds := func(a netip.Addr) bool {
				return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
			}
			size := 0
			for _, p := range prefixes {
				size += 1 << (p.Addr().BitLen() - p.Bits())
				if p != p.Masked() || !slices.ContainsFunc(addrs, p.Contains) {
					t.Fatalf("%v is of no use", p)
				}
			}
			distinct := make(map[netip.Addr]bool)
			for _, a := range addrs {
				if distinct[a] = true; !holds(a) {
					t.Fatalf("%v is in none of %v", a, prefixes)
				}
			}
			if limit > len(addrs) && size != len(distinct) {
				t.Fatalf("%d addresses in prefixes of %d: %v", len(distinct), size, prefixes)
			}
		}
	}
}

// A large cluster costs little.
func TestCoveringOfThousands(t *testing.T) {
	var addrs []netip.Addr
	for i := range 5000 {
		addrs = append(addrs, netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(i * 7)}))
	}
	if got := covering(addrs, maxNodePrefixes); len(got) > maxNodePrefixes || len(got) < 2 {
		t.Errorf("%d prefixes: %v", len(got), got)
	}
}
