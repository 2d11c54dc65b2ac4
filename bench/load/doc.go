// Package load makes traffic for measurements and counts what arrives, at as
// little cost as possible: generator, sink and what is measured share one
// machine, and whatever the first two take is missing from the third.
//
//   - Source sends UDP in super-packets (UDP_SEGMENT), as much as the path carries
//     and no more: it learns from the Sink how far the path has come and keeps a
//     bounded number of packets under way. An open loop would spend most of the
//     machine on packets that are dropped.
//   - Sink is a BPF program at a device's ingress (TCX, Linux 6.6) that counts the
//     packets of a Source and drops them: no tunnel, route or socket behind it costs
//     anything. It looks into VXLAN and Geneve, and it counts the packets in a
//     super-packet however deep it was put together.
//   - Exchange is request and response over TCP, by one connection or by one for each.
//
// Sockets belong to the network namespace of the thread that makes them: the
// constructors are called inside the namespace that is meant, the rest anywhere.
package load
