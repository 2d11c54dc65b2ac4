// Package hostnet keeps the part of a node's network that belongs to Sluice
// equal to what is desired: tunnel links to the gateways with their addresses,
// the routes into them, and a table of address translation.
//
//	Desired --\
//	           Diff -> Plan -> Conn.Apply -> kernel (rtnetlink, nf_tables, TUN)
//	Actual ---/                                |
//	   ^------------- Conn.Read <--------------+-- Conn.Watch: something changed
//
// Diff is pure; everything that talks to the kernel is a method of Conn, and
// nothing else in the project talks to it about links, routes or tables.
//
// # Marks
//
// A node's network belongs to many. Only what carries our mark is ever changed
// or removed:
//
//   - links: an alias (IFLA_IFALIAS) that begins with AliasPrefix;
//   - routes: in Table, with Protocol;
//   - policy rules: with Protocol, leading to Table;
//   - translation: the nftables table TranslationTable.
//
// The tables of Counters are nobody's state: the kernel removes them with the sockets
// that made them.
//
// A link that has the wanted name but not the mark is somebody else's: that is
// an error, and the link stays as it is.
//
// The exception is what Liqo's node agent has made, where this one takes its place:
// see Predecessor.
//
// A kernel link is also known by its MAC address, which is computed: should the
// agent die between making a link and marking it, the next one finds it. As long
// as a Conn is open, it knows every link that was ours by its index.
//
// # Order
//
// A plan is done phase by phase over all links: what is in the way goes; a link is
// made, marked, gets its address and is set up; routes are added or replaced; what
// they made superfluous goes. A link that cannot be made whole is removed again,
// and the others are not affected. A changed gateway, MTU, address or route changes
// in place: the device stays, and no prefix is without a route for a moment.
//
// # Two agents
//
// Whoever may change a namespace holds its lock, an abstract Unix socket. Readers
// need neither the lock nor a privilege.
//
// # Why the messages are our own
//
// Sockets and attributes are those of mdlayher/netlink and google/nftables. The rtnetlink
// messages are written here because thousands of tunnels need them sent in batches and
// read without an allocation for each attribute: vishvananda/netlink sends one request at
// a time, jsimonetti/rtnetlink has no driver for Geneve, and both would leave the tests and
// the difference as they are. knftables runs the program nft, which the image of the node
// agent does not have.
//
// # Nothing is lost by a restart
//
// The state lives in the kernel, that of a TUN device in its alias. An agent that ends
// removes nothing, one that starts finds what is there and changes only what differs.
// What is not asked for any more goes when Desired no longer holds it; all of it goes
// with Desired{}.
package hostnet
