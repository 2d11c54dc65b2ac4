// Package tunnel is the WireGuard tunnel to the peer cluster's gateway: the
// handshakes, keys and timers of wireguard-go's device between two ends that are
// ours, and packets that are sealed and opened by the goroutine that reads them.
//
//	egress (egress.go)                           ingress (ingress.go)
//	Overlay.ReadPackets                          Overlay.WritePackets
//	        |                                             ^
//	device.Direct.Send: seal                     device.Direct: Open, Accept (replay, allowed IPs)
//	        |                                             ^
//	Socket.WriteBatch                            Socket.ReadBatch
//
// Each column is a loop of ours on one goroutine, and crosses no queue. There are several of
// the left one if there are several sources of packets (Options.Readers), and of the right one
// if there are several sinks (Options.Writers) and so much comes that one falls behind
// (receiver.run). Packets never enter wireguard-go: it makes the sessions. It is given the handshake messages that the
// ingress loop receives, and sends handshakes and keepalives by itself (bind.go). Packets
// that find no session wait for one (waiting.go).
//
// Whoever uses this package sees nothing of wireguard-go: it gives an Overlay and a
// function that opens a Socket, applies a Config, and runs.
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
// Run waits for the egress loops, which sit in ReadPackets. So a Reader that can block there
// also has a method CloseRead(), which makes the blocked and every later ReadPackets return
// os.ErrClosed; Run calls it when its context ends, or when reading from another one fails. A
// Reader without CloseRead must be closed by its owner, and Run returns only then.
//
// # Memory
//
// What is sealed and opened stays in the buffers of one batch per loop. A loop of ingress that
// was never needed has none. Of the packets
// that find no session the last 64 are kept, and sent if there is one within 90 s; the first
// of them begins a handshake. While so many wait, a loop reads nothing for half a second,
// once in each outage. Packets with own addresses of the gateway (health pings) have
// no precedence: once there is a session, all pass.
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
// # Several tunnels
//
// A Config may have further tunnels to the same peer. Each flow goes by one of those that
// are usable (spread.go), and comes by whichever the peer chooses (further.go).
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
