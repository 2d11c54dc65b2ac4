// Package services exchanges Services between the gateways of a peering: each tells the other which of its Services
// may be used there.
//
//	ExportedServices --Offer--> Exchange --serve--> TCP 6092 in the tunnel --> the peer's gateway
//	ImportedServices <--Writes-- Exchange <--dial--- TCP 6092 in the tunnel <-- the peer's gateway
//
// Each gateway listens on its own address in the tunnel, where only the peer's gateway reaches it: a packet of a node or
// of a pod of the peer to that address is dropped by the data plane, and a connection from another address is closed.
// Who connects listens, and who is connected to tells: two connections make a peering, independent of each other.
//
// # The protocol
//
// The one who tells sends a line, "sluice-services/1", and after it one stream of DEFLATE (RFC 1951), flushed after
// each batch. In it are frames: a byte for the kind, four bytes for the length, most significant first, and the payload.
//
//	1 put        NAMESPACE.NAME, a line feed, and the ServiceDescription as JSON
//	2 delete     NAMESPACE.NAME
//	3 synced     empty: all there is has been told
//	4 heartbeat  empty: every ten seconds
//
// A frame of another kind is skipped, so that later versions may tell more. The one who listens sends nothing.
//
// # What a peer can do
//
// Nothing of what is told is believed but that it keeps to the schema of an ImportedService and to the bounds of the
// API: what does not is left out (one Service), or ends the connection (a frame, a number that is too large), under a
// Reason that is shown and counted. What is read is bounded in bytes and in frames a second, so a peer that tells more
// is slowed by TCP, and as who tells sends the newest state, that is what arrives. Nothing of this is on the way of a
// packet.
package services
