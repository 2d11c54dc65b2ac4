// Package underlay is the one kind of socket Sluice has: UDP, in batches.
//
// The Geneve side and the WireGuard side both use it. One system call moves
// many datagrams, and where the kernel can carry a run of equal datagrams as
// one message (UDP_SEGMENT when sending, UDP_GRO when receiving) one message
// does: that, not the number of system calls, is what makes UDP fast on Linux.
//
//	WriteBatch  [Head|Body] [Head|Body] ...  ->  one message per run, gathered from where the bytes lie
//	ReadBatch   one message per run          ->  [datagram] [datagram] ...  each at the start of a buffer of its own
//
// The package knows nothing of what it carries. It starts no goroutine that lasts,
// keeps no queue of its own and allocates nothing per batch.
//
// # Reading
//
// With GRO a message holds several datagrams, but the caller wants each of
// them in a buffer of its own. ReadBatch therefore predicts: it hands the kernel
// the caller's buffers cut at the segment size of the runs seen last, so that
// each datagram lands where it belongs without a copy. Behind the last of them
// stands a spare buffer that holds the largest possible message, so a wrong
// prediction costs a copy and never a datagram. What does not fit into the
// caller's buffers stays in the spare and is returned by the next ReadBatch.
//
// # Writing
//
// Consecutive datagrams to one address with equal lengths, the last possibly
// shorter, are a run. The order of datagrams is kept. A kernel, route or
// device that refuses a run costs nothing but speed: the run is sent again as
// single datagrams, and what that taught decides whether runs of that size, or
// runs at all, are still tried. An error about one destination drops the
// datagrams it is about, is counted, and does not stop the batch.
//
// # Fragmentation
//
// Over IPv4 no datagram has the Don't Fragment bit (IP_PMTUDISC_DONT), as with
// the kernel's own Geneve and WireGuard devices. Both tunnels choose their
// inner MTU so that outer datagrams fit. Where a link on the way is smaller
// after all, a fragmented tunnel is slow, while Don't Fragment together with a
// firewall that eats ICMP is a tunnel that passes pings and hangs on data. The
// MTU of the route and what ICMP teaches about the path are still
// respected: the datagram is then fragmented here. IPv6 has no such choice
// (only the sender fragments) and keeps the kernel's default.
//
// # One reader, many writers
//
// ReadBatch belongs to one goroutine at a time. Several readers need several sockets on one
// address, which ListenShared opens. Everything else may be called from anywhere at any time;
// a WriteBatch waits for those before it, unless Config.Writers lets them send at the same
// time, and for the send buffer, a TryWriteBatch for nobody. Wake ends a blocked ReadBatch without closing it,
// for a reader that has a second source of packets.
package underlay
