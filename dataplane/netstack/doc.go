// Package netstack gives IP addresses to a process that has no network
// interface of its own: a TCP/IP stack between raw IP packets on one side and
// the net package's interfaces on the other. It is the only package of the
// project that knows gVisor.
//
// It has two users. The gateway's own addresses (its tunnel address and its
// address towards the nodes) live in one Stack: it answers ICMP echo in both
// families and carries the health ping and diagnostic listeners. And tests and
// the demo use one Stack per simulated pod: servers and clients of the net and
// net/http packages, ping and traceroute.
//
//	packets in  --Inject--> queue --> gVisor <--> ListenUDP, ListenTCP, DialContext, Ping, Trace
//	packets out <--Run's output <-- queue <-----'            (SendPacket goes straight to the queue)
//
// It is not a router: it forwards nothing, reads no neighbour discovery into
// routes, and has one default route per family, to the packets' side. It does
// not check that an injected packet is meant for it; the caller decides, and
// what is for no address of the stack is dropped inside.
//
// # Queues
//
// There are two, one per direction, both bounded by Config.QueueBytes. Senders
// never wait: what does not fit is dropped and counted (Stats), as a link
// would, so that neither the data plane nor the stack can be blocked by the
// other. The receivers are the two goroutines of Run. Each queue is a pair of
// byte arenas that swap: packets are copied in whole, and nothing is allocated
// per packet once the arenas have grown.
//
// # Bounds
//
// Memory that strangers can make the stack use is bounded: the two queues
// (twice QueueBytes each, because of the swap), Config.TCPBuffer per direction
// of a TCP connection, 128 connections per listener that nobody has accepted
// yet and as many half-open ones before SYN cookies take over (RFC 4987
// section 3.6), and 4 MiB of IP fragments per family (gVisor's constant). The
// number of accepted connections is the listener's owner's to bound. ICMP
// errors are limited to 1000 per second (gVisor's default).
//
// # Standards
//
// RFC 791, RFC 792, RFC 768, RFC 1122 (host side), RFC 8200, RFC 4443, and
// RFC 9293 with selective acknowledgements (RFC 2018). Duplicate address
// detection (RFC 4862), router solicitation, MLD and IGMP are off: the links
// are point to point and nobody listens.
package netstack
