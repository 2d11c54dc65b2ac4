// Package transport is WireGuard without queues: what seals and opens messages is
// called where the packets are, and returns when it is done. Whoever has packets calls
//
//	Peer.Sender    -> SendKey.Seal        the thread towards the peer
//	Peer.Receiver  -> ReceiveKey.Open     the thread from the peer
//	Peer.Control                          likewise, for handshakes
//
// and no packet ever waits for another thread. wireguard-go hands each one over
// three times instead; ../transport.md says what that costs.
//
// It is a prototype, there to be decided on by figures, and no part of the product. The
// handshake (Noise IK), transport messages, replay window, and the renewal of keys are
// those of the WireGuard paper (Donenfeld, NDSS 2017), whose sections are cited;
// wireguard-go takes it for one of its own, in the tests. What is missing:
//
//   - cookies: it neither asks for proof of an address nor gives one, and a flood
//     of initiations costs it a processor;
//   - roaming, and more than one peer;
//   - preshared keys;
//   - timers: sessions are begun and renewed by what is sent. There are no keepalives,
//     no handshake after silence, and old keys stay in memory;
//   - a place for packets until there is a session: they are dropped;
//   - handshakes on a thread of their own: one stops the thread that opens for some
//     hundred microseconds.
package transport
