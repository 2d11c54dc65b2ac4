// Package dropped keeps the headers of some of the packets that go nowhere, for
// somebody who asks later which packets these were.
//
// # How
//
// A Sample has a Cell for each reason and direction: a ring of the last packets and a
// budget. A flood of one reason fills its own ring and nobody else's, and uses up its
// own budget: a packet beyond it costs one comparison. Of the rest, the packet path
// finds the headers and keeps them.
//
// # Invariants
//
// Nothing of a payload is kept, and nothing that belongs to the caller. Wants and Keep
// allocate nothing and never wait: where somebody reads a ring at that moment, or
// another goroutine writes to it, the packet is left out. The memory of a Sample does
// not depend on what is dropped.
package dropped
