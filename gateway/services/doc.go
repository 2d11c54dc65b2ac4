// Package services exchanges Services between the gateways of a peering: each tells the other which of its Services
// may be used there.
//
//	ExportedServices --Offer--> Exchange --serve--> TCP 6092 in the tunnel --> the peer's gateway
//	ImportedServices <--Writes-- Exchange <--dial--- TCP 6092 in the tunnel <-- the peer's gateway
//
// Each gateway listens on its own address in the tunnel, where only the peer's gateway reaches it: a packet of a node or
// of a pod of the peer to that address is dropped by the data plane, and a connection from another address is closed.
// The gateway that connects receives, and the one that accepts sends: a peering has two connections, one for each
// direction, independent of each other.
//
// # The protocol
//
// The sender sends a line, "sluice-services/1", and after it one stream of DEFLATE (RFC 1951), flushed after
// each batch. In it are frames: a byte for the kind, four bytes for the length, most significant first, and the payload.
//
//	1 put        NAMESPACE.NAME, a line feed, and the ServiceDescription as JSON
//	2 delete     NAMESPACE.NAME
//	3 synced     empty: everything has been sent
//	4 heartbeat  empty: every ten seconds
//
// A frame of another kind is skipped, so that later versions can send more. The receiver sends nothing.
//
// # What a peer can do
//
// What the peer sends has to keep to the schema of an ImportedService and to the bounds of the API. A Service that does
// not is left out; a frame that does not, or a number that is too large, ends the connection. The Reason is shown and
// counted. Bytes and frames per second are limited: TCP slows down a peer that sends more, and because a sender sends
// the newest state, that is what arrives. No packet of a pod passes through here.
package services
