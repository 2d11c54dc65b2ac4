package prefixes

import (
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// aroundNodes says whose the network around the address of a node is.
const aroundNodes = "the network of nodes"

// reserve keeps these addresses free, and the networks that nodes with such addresses are
// usually in, and nothing else: who has each address. So no peer is given a prefix that would
// lead what is for a node or an API server into a tunnel, nor one in which the next node may
// be. Which networks they really are, the agents know, and they refuse what overlaps one. What
// was granted before a node came stays.
func (l *ledger) reserve(addresses map[netip.Addr]string) {
	want := make(map[netip.Prefix]string)
	for addr, who := range addresses {
		want[netip.PrefixFrom(addr, addr.BitLen())] = who
		if strings.HasPrefix(who, reserved.Node) {
			want[cidr.NetworkOf(addr)] = aroundNodes
		}
	}
	for p, who := range l.reserved {
		if want[p] != who {
			l.release(holderOf(who, p))
			delete(l.reserved, p)
		}
	}
	for p, who := range want {
		if _, ok := l.reserved[p]; ok {
			continue
		}
		// Shared, because what was granted before may hold it. Loopback and the like
		// are granted to nobody anyway.
		if err := l.allocator.Restore(holderOf(who, p), p, true); err == nil {
			l.reserved[p] = who
		}
	}
}

// holderOf is the name under which what is reserved holds space, as messages show it.
func holderOf(who string, p netip.Prefix) string {
	if p.IsSingleIP() {
		return who + " " + p.Addr().String()
	}
	return who + " " + p.String()
}
