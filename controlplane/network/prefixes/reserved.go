package prefixes

import "net/netip"

// reserve keeps these addresses free, and no others: who has each. So no peer is given
// a prefix that would lead what is for a node or an API server into a tunnel. What was
// granted before a node came stays.
func (l *ledger) reserve(addresses map[netip.Addr]string) {
	for addr, who := range l.reserved {
		if addresses[addr] != who {
			l.release(who + " " + addr.String())
			delete(l.reserved, addr)
		}
	}
	for addr, who := range addresses {
		if _, ok := l.reserved[addr]; ok {
			continue
		}
		// Shared, because what was granted before may hold it. Loopback and the like
		// are granted to nobody anyway.
		if err := l.allocator.Restore(who+" "+addr.String(), netip.PrefixFrom(addr, addr.BitLen()), true); err == nil {
			l.reserved[addr] = who
		}
	}
}
