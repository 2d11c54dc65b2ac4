// Package tunlink is the node end of the tunnels where the kernel has no
// device for them: a TUN device per tunnel on one side, Geneve over one UDP
// socket on the other.
//
//	pods --> TUN read -> complete checksums or cut the super-segment -> encapsulate -> UDP run --> gateway
//	pods <-- TUN write <- put segments together <- check <- parse <- decapsulate <- UDP run <-- gateway
//
// fromdevice.go and todevice.go say the same, one direction each; coalesce.go is
// the putting together. What the kernel hands over as one piece of up to 64 KiB
// stays one piece as long as possible: a TCP super-segment is read by one system
// call, each of its segments gets headers of its own while the payload stays
// where it was read, and a system call or two send all of them as runs. On the
// way in a run is received by one system call and the segments in it are written to
// the device as one super-segment, again from where they lie. The only work done
// for every byte is the checksum, once, because the far end may be any kernel
// and because nothing may be passed on as checked that was not.
//
// # Workers
//
// There are as many workers as a device has queues. Worker i waits, in one place, for
// queue i of every device; the first also for the socket. So memory for
// packets belongs to workers and not to tunnels: thousands of idle tunnels cost a
// file descriptor per queue and some counters each.
//
// A worker writes to its own queue, and the kernel then gives that queue the other
// direction of the flow (tun_flow_update, drivers/net/tun.c). So a connection stays with one
// worker, which after writing finds the acknowledgments in the queue without having been woken
// for them. (Spread over the queues by a hash, connections cost more processor time, measured.)
// The other workers carry what gets no answers. There is one socket because a gateway sends
// from one port, so that several could not share its datagrams.
//
// # Neighbors
//
// On the wire the packets are in Ethernet frames, which every gateway takes, a kernel's
// included. The gateway's address is asked for by ARP or neighbor discovery through the
// tunnel, which also tells the gateway at once who we are and what we speak; what the
// gateway asks is answered. On the way in all encapsulations of package geneve are taken,
// because after a change of the kind of tunnel the gateway goes on in the old one until it
// hears from us.
//
// # What it is not
//
// It makes no devices, sets no addresses and no routes: that is node/hostnet. It
// does not judge addresses: routes, reverse path filter and firewall of the kernel do.
//
// # Invariants
//
//   - Packets of one flow are never reordered.
//   - What is put together comes apart again as the same packets; only the
//     identification of IPv4 packets with the DF bit may differ, which means nothing
//     (RFC 6864 section 4).
//   - No datagram is accepted but from a tunnel's gateway with the tunnel's VNI.
//   - Nothing is allocated and nothing is logged per packet; each drop has a name.
package tunlink
