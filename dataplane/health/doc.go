// Package health tells whether the peer gateway answers through the tunnel, and
// how fast. Both gateways send each other a JSON datagram every two seconds and
// send back what they receive:
//
//	{"clusterID":"rome","msgType":"PING","timeStamp":"2026-01-02T15:04:05.123456789Z","mtu":1340}
//	{"clusterID":"rome","msgType":"PONG","timeStamp":"2026-01-02T15:04:05.123456789Z","mtu":1340}
//
// The sender puts into clusterID whatever it knows the peer by; the receiver
// echoes it. mtu is ours: the sender's tunnel MTU, by which two ends that
// disagree find out. A peer that does not know the field ignores it.
//
// The package has three layers: Message is the wire format; Monitor decides,
// with the time as an argument and without I/O; Prober runs a Monitor over any
// net.PacketConn. It knows neither the tunnel nor Kubernetes.
//
// # Trust
//
// The datagrams carry no authentication beyond the tunnel's. Anybody's PING is
// answered; to others than the peer with never more bytes than it had. A PONG counts only when it comes
// from the peer's address, carries our cluster ID and the timestamp of a PING
// that is still outstanding and newer than the last one answered. Everything
// else is dropped under a name (Verdict).
package health
