// Package capture copies packets off the packet path into a bounded piece of
// memory, for somebody who looks at them later or elsewhere.
//
// # Points
//
// Where on its way a packet can be looked at:
//
//	node        ┌──────────────────────── gateway ───────────────────────┐        peer
//	 │          │                                                        │          ▲
//	 └─ Geneve ─┼─▶ decapsulate ─▶ check ─▶ translate ─▶ cut ─▶ encrypt ─┼─ UDP ────┘
//	            │ ▲                  │                 ▲      ▲          │ ▲
//	            │ Node               Dropped  Translated      Tunnel     │ Wire
//
// and the same in the other direction:
//
//	Node        inner frames from and to the nodes; super-segments in one piece
//	Translated  IP packets as they leave the translation, before they are cut for
//	            the tunnel or wrapped for a node
//	Tunnel      IP packets inside WireGuard, as the peer sees them
//	Wire        WireGuard datagrams, with IP and UDP headers made of the socket's
//	            addresses: those that the kernel writes are not known here
//	Dropped     what goes nowhere, as far as it got, with the reason
//
// A Filter sees a packet as it is at the point: at Node with the addresses that
// this cluster uses, at Tunnel with those of the tunnel, at Wire with those of the
// gateways.
//
// # How
//
// A Set holds the captures that are under way. The packet path loads it once per
// batch; while there are none that is a nil pointer and all there is to it. A Capture is
// a filter and a ring with many writers, the goroutines of the packet path, and one
// reader. Writers never wait: what does not fit is lost and counted. One that is held
// up in the middle of a record holds up the reader, and nobody else.
//
// # Invariants
//
// Nothing here does I/O or knows a file format. Active.Offer allocates nothing, takes no
// lock and keeps nothing of what it is shown. A Capture uses the memory that its
// Config asks for, and it is garbage once the Set has forgotten it.
package capture
