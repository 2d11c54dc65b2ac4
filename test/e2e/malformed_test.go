package e2e

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/lab"
)

var malformedCount = flag.Int("e2e.malformed", 100_000, "malformed datagrams for each socket")

// testMalformed sends datagrams that are wrong in every way to the two sockets
// of a gateway, from where a node or the peer would send. The gateway counts
// them by reason and carries traffic on.
func testMalformed(t *testing.T, w *world) {
	to := w.fromA(w.B1.PodAddr)
	before := w.gatewayA.Status().DataPlane

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, flood := range []struct {
		name string
		from *lab.Host
		to   netip.AddrPort
		make func(r *rand.Rand, b []byte) []byte
	}{
		{"node tunnels", w.A2.Host, netip.AddrPortFrom(w.A.Underlay, lab.GatewayPort), malformedGeneve(t, w.A2)},
		{"WireGuard", w.B.Gateway, netip.AddrPortFrom(w.A.WAN, lab.WireGuardPort), malformedWireGuard},
	} {
		pings := make(chan lab.PingResult, 1)
		go func() { pings <- w.A2.Pod.Ping(to, "-i0.02 -c50 -W5") }()
		start := time.Now()
		if err := sendFlood(flood.from, flood.to, *malformedCount, rand.New(rand.NewPCG(seed, 0)), flood.make); err != nil {
			t.Fatalf("%s: %v", flood.name, err)
		}
		t.Logf("%s: %d datagrams in %v", flood.name, *malformedCount, time.Since(start).Round(time.Millisecond))
		// Many pings fall into a full socket buffer where the machine is busy.
		if r := <-pings; r.Received == 0 {
			t.Errorf("%s: %d of %d pings answered during the flood", flood.name, r.Received, r.Sent)
		}
	}
	for _, n := range []*lab.Node{w.A1, w.A2} {
		wantAnswers(t, n.Pod, to, 3, "")
	}

	after := w.gatewayA.Status().DataPlane
	wantCounted(t, before, after)
	if !w.gatewayA.Running() {
		t.Errorf("the gateway has ended:\n%s", w.gatewayA.Log())
	}
}

// wantCounted compares what was sent with what was counted: each datagram has a
// verdict, or is an overrun of the socket.
func wantCounted(t *testing.T, before, after lab.DataPlaneStatus) {
	t.Helper()
	overruns := func(socket string) uint64 { return after.Sockets[socket].Overruns - before.Sockets[socket].Overruns }

	nodes := overruns("geneve") + after.Egress.Drops() - before.Egress.Drops()
	t.Logf("node tunnels: %d overruns, %v", overruns("geneve"), after.Egress.Verdicts)
	if nodes < uint64(*malformedCount) {
		t.Errorf("node tunnels: %d of %d malformed datagrams are counted", nodes, *malformedCount)
	}
	for _, reason := range []string{"DropEncapsulation", "DropUnknownNode", "DropFrame", "DropMalformed", "DropSpoofedSource"} {
		if after.Egress.Verdicts[reason] == before.Egress.Verdicts[reason] {
			t.Errorf("node tunnels: no datagram was counted as %s: %v", reason, after.Egress.Verdicts)
		}
	}

	peer := overruns("wireguard")
	for _, reason := range []string{"dropMalformed", "dropUnknownSession", "dropRejected", "dropHandshakeLimit", "rxHandshakes"} {
		peer += after.TunnelCounter(reason) - before.TunnelCounter(reason)
	}
	t.Logf("WireGuard: %d overruns, %v", overruns("wireguard"), after.Tunnel)
	if peer < uint64(*malformedCount) {
		t.Errorf("WireGuard: %d of %d malformed datagrams are counted", peer, *malformedCount)
	}
}

// sendFlood sends n datagrams from a host, at most about 200 000 a second: the
// gateway is to read them, not the kernel to drop them.
func sendFlood(from *lab.Host, to netip.AddrPort, n int, r *rand.Rand, next func(*rand.Rand, []byte) []byte) error {
	var conn *net.UDPConn
	err := from.Do(func() (err error) {
		// A low port keeps the lab's hands off the headers; see Node's speakGeneve.
		conn, err = net.DialUDP("udp4", &net.UDPAddr{Port: 1000}, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	const burst = 200
	buf := make([]byte, 2048)
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for i := range n {
		if i%burst == 0 {
			<-pace.C
		}
		// A refused connection is reported by the next write: the gateway has gone.
		if _, err := conn.Write(next(r, buf)); err != nil {
			return fmt.Errorf("datagram %d: %w", i, err)
		}
	}
	return nil
}

// malformedGeneve makes datagrams that a Geneve node sends through its tunnel.
// Each is wrong in one of the ways below, so none may be forwarded.
func malformedGeneve(t *testing.T, n *lab.Node) func(*rand.Rand, []byte) []byte {
	t.Helper()
	gateway, node, err := n.LinkAddresses()
	if err != nil {
		t.Fatal(err)
	}
	vni := uint32(n.VNI)
	header := func(b []byte, vni uint32) []byte { // RFC 8926 section 3.4
		b = append(b[:0], 0, 0, 0x65, 0x58)
		return binary.BigEndian.AppendUint32(b, vni<<8)
	}
	frame := func(b []byte, etherType uint16) []byte {
		b = append(append(b, gateway...), node...)
		return binary.BigEndian.AppendUint16(b, etherType)
	}
	return func(r *rand.Rand, b []byte) []byte {
		good := header(b, vni)
		switch r.IntN(10) {
		case 0: // noise whose version is not 0
			b = noise(r, b[:0], r.IntN(1400))
			if len(b) > 0 {
				b[0] |= 0x40
			}
			return b
		case 1: // options beyond the end
			good[0] = 0x3f
			return noise(r, good, r.IntN(200))
		case 2: // a critical option that nobody knows (section 3.5)
			good[0], good[1] = 1, 0x40
			return frame(append(good, 0xff, 0xff, 0x80, 0), 0x0800)
		case 3: // another tunnel
			return frame(header(b, vni+1+r.Uint32N(1000)), 0x0800)
		case 4: // no whole frame
			return noise(r, good, r.IntN(14))
		case 5: // a frame of nothing we know
			return noise(r, frame(good, 0x88cc), r.IntN(100))
		case 6: // IPv4 whose header length is too small
			b = frame(good, 0x0800)
			return noise(r, append(b, 0x40|byte(r.IntN(5))), 40)
		case 7: // IPv4 that claims to be longer than it is
			b = append(frame(good, 0x0800), 0x45, 0, 0xff, 0xff)
			return noise(r, b, 36)
		case 8: // IPv6 with extension headers without end
			b = append(frame(good, 0x86dd), 0x60, 0, 0, 0, 0, 80, 0, 64)
			b = append(b, make([]byte, 32)...)
			return append(b, make([]byte, 80)...) // ten hop-by-hop headers, each followed by one
		default: // well-formed, but from an address that is not of this cluster
			b = frame(good, 0x0800)
			ip := len(b)
			b = append(b, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, byte(r.IntN(256)), 10, 71, 1, 10)
			sum := uint32(0)
			for i := ip; i < len(b); i += 2 {
				sum += uint32(binary.BigEndian.Uint16(b[i:]))
			}
			binary.BigEndian.PutUint16(b[ip+10:], ^uint16(sum+sum>>16)) // RFC 791 section 3.1
			return append(b, 0, 1, 0, 1, 0, 8, 0, 0)
		}
	}
}

// malformedWireGuard makes datagrams that no session and no key accepts.
func malformedWireGuard(r *rand.Rand, b []byte) []byte {
	b = b[:0]
	switch r.IntN(5) {
	case 0:
		return noise(r, append(b, 0xff), r.IntN(1400)) // no such type
	case 1:
		return noise(r, append(b, 1, 0, 0, 0), 144) // initiation: 148 bytes
	case 2:
		return noise(r, append(b, 2, 0, 0, 0), 88) // response: 92 bytes
	case 3:
		// Transport data. 32 bytes would be a keepalive, which is not counted.
		return noise(r, append(b, 4, 0, 0, 0), 28+16*(1+r.IntN(80)))
	default:
		return noise(r, append(b, byte(1+r.IntN(4)), 0, 0, 0), r.IntN(24)) // too short for any
	}
}

func noise(r *rand.Rand, b []byte, n int) []byte {
	for ; n >= 8; n -= 8 {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	for ; n > 0; n-- {
		b = append(b, byte(r.Uint32()))
	}
	return b
}
