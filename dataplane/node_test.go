package dataplane

import (
	"net/netip"
	"testing"
)

// Loops that hear a node at one address of ours do not exchange what is known of it for each
// packet, although each has a copy of the address.
func TestLoopsAgreeOnANode(t *testing.T) {
	from := netip.MustParseAddrPort("172.30.0.11:6091")
	n := &nodeTunnel{remotes: []netip.AddrPort{from}, state: newNodeState(2)}
	hear := func(loop int, local string, now int64) {
		a := netip.MustParseAddr(local)
		n.learn(loop, origin{underlay: from.Addr(), local: &a}, now)
	}
	hear(0, "172.30.0.2", 1)
	known := n.state.local.Load()
	hear(1, "172.30.0.2", 3)
	if n.state.local.Load() != known {
		t.Error("the second loop has replaced the address by an equal one")
	}
	hear(0, "172.30.0.2", 2)
	if got := n.lastSeen(); got != 3 {
		t.Errorf("last seen at %d, want 3", got)
	}
	if hear(1, "172.30.0.3", 4); n.local() != netip.MustParseAddr("172.30.0.3") {
		t.Errorf("answers come from %v, want the address that the node sent to last", n.local())
	}
}
