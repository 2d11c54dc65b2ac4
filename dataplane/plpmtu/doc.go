// Package plpmtu decides how large the packets of a tunnel may be by what gets through
// it: packetization layer path MTU discovery for datagrams (RFC 8899). Search is a
// state machine: told the time, what is known of the path and which probes were
// answered, it says how large packets may be and which probe to send. It does no I/O,
// starts nothing and reads no clock.
//
//	         peer answers            Base answered           no larger size passes
//	Disabled ------------> Confirming ------------> Searching ---------------------> Complete
//	    ^                    ^   |                      |                              |  |
//	    '- peer is away      |   | MaxProbes lost       | MaxProbes of the size in     |  '--> Searching, after
//	       (from anywhere)   |   v                      | use lost: a black hole       |      RaiseInterval
//	                         |  Failed                  v                              |
//	                         '--------------------- Confirming <-----------------------'
//
// Probes and data go with Don't Fragment, except while Disabled and Failed: a path that
// does not carry Base in one piece works in fragments, as without this package.
// Before the last probe of Confirming there is a small one. Where nothing answers that,
// nothing passed at all: the first answer to a later probe leads from Failed to Confirming
// again. Otherwise Failed lasts for RaiseInterval.
//
// Each end searches its own direction: a probe that arrives is answered whatever size
// the way back carries. TCP is held to the lower of both, because the MSS of a SYN is
// lowered at both ends.
//
// # Trust
//
// A peer can only lie about its own MTU and about what arrives. It can make packets
// smaller, not below MinSize, and not larger than our own links carry.
package plpmtu
