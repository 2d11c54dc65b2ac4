// Package tunnel is the WireGuard tunnel to the peer cluster's gateway: the
// handshakes, keys and timers of wireguard-go's device between two ends that are
// ours, and packets that are sealed and opened by the goroutine that reads them.
//
//	          egress                                    ingress
//	Overlay.ReadPackets                          Overlay.WritePackets
//	        |                                             ^
//	tun.Device.Read   (admit)                    tun.Device.Write
//	        |                                             |
//	device.Direct.Send: seal                     device.Direct.Receive: open, replay, allowed IPs
//	        |                                             |
//	conn.Bind.Send                               conn.ReceiveFunc
//	        |                                             ^
//	Socket.WriteBatch                            Socket.ReadBatch
//
// Each column is one goroutine of wireguard-go, its TUN reader and its receiver,
// and crosses no queue. What Read returns and ReceiveFunc returns is what
// wireguard-go itself has to do: keep packets until there is a session, and seal
// them then; answer handshakes. With Options.Workers they return everything, as
// any TUN device and socket do, and wireguard-go's queues and workers take the
// place of the third line: several processors for one direction, at up to twice
// the processor time.
//
// To wireguard-go the data plane is a TUN device and the data plane's batched
// UDP socket is its conn.Bind. Whoever uses this package sees neither: it gives
// an Overlay and a function that opens a Socket, applies a Config, and runs.
//
// device.Direct is the one file of ours in third_party/wireguard, which is
// otherwise as its authors publish it.
//
// What it is not: it knows no Geneve, no address translation and no Kubernetes;
// it looks at nothing inside an IP packet.
//
// # Order of calls
//
// New builds and opens nothing. Apply may come before Run: it then checks the
// Config and opens the listening socket, so that a port in use is an error
// before anything runs. Apply may also come during Run; until the first one the
// running Tunnel neither listens nor sends. Run works until its context ends,
// closes everything and leaves no goroutine. A Tunnel that was applied but will
// never run is released with Close.
//
// # How it stops
//
// wireguard-go waits for its reader of the TUN device, and that reader sits in
// Overlay.ReadPackets. So an Overlay that can block there also has a method
// CloseRead(), which makes the blocked and every later ReadPackets return
// os.ErrClosed; Run calls it when its context ends. An Overlay without CloseRead
// must be closed by its owner, and Run returns only then.
//
// # Memory
//
// What is sealed and opened here stays in the buffers of one batch per direction.
// wireguard-go gives each packet that it takes a buffer of 64 KiB and does not
// bound its queues: packets for a peer that does not answer pile up to more than
// 1 GiB. So every packet handed to wireguard-go, one that waits for a session or,
// with Workers, any, is entered in a ledger and struck out when it comes out at
// the other end; at most MaxInFlight packets per direction are inside. What
// decides about admission are pure functions over plain values
// (decideEgress, decideIngress). While nothing comes out, because there is no
// session, at most 64 packets wait for the handshake that they trigger; more are
// dropped and counted. Of the gateway's own packets (health ping) a few per batch
// are exempt, so that a tunnel under a flood still notices that the peer is back.
//
// # Endpoint
//
// The peer's endpoint follows the peer (roaming), as WireGuard does. A Config
// that changes anything else leaves it alone. A configured name is looked up
// again while there is no session, or while the peer leaves packets unanswered
// for 20 s; a live session keeps the endpoint that the peer has. A gateway without
// a configured endpoint that has just started, and gets messages of a session that
// the peer had with the gateway before, asks for another where they come from, with
// regard to those who only pretend (caller.go).
//
// # Several with one key
//
// One of several gateways with the same key leads. Unconfirmed has one that may have a
// successor leave the session alone, until the peer is heard (unconfirmed.go). Messages of a
// session that the peer has replaced do not move its endpoint (device.Direct).
//
// # Keys
//
// A key of the peer that replaces another in a live session is awaited: the former
// one is honoured until the new one is used, for three minutes at most (rekey.go).
// A key that is to be honoured no longer has to be taken away first.
//
// The protocol is that of the WireGuard paper (Donenfeld, NDSS 2017); sections
// are cited where they matter.
package tunnel
