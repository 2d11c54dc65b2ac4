package dataplane_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

// atOnce is the turn of who need not wait.
func atOnce() {}

// A peer sends many flows to a gateway with several loops. Each packet comes to the node once,
// and those of a flow in their order, also while the configuration changes.
func TestIngressLoopsKeepTheOrderOfFlows(t *testing.T) {
	const loops, flows, each = 4, 16, 3000
	session := make(chan struct{}, 1)
	h := newLoopHarness(t, loops, 1, func([]byte) { session <- struct{}{} })
	node := h.network.Listen(nodeAddrs[0])
	h.send(0, 0, 1) // tells where the node is, and makes a session
	<-session
	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { h.reconfigure(done) })
	inFlight := make(chan struct{}, 2000) // what the node's socket has room for
	background.Go(func() {
		for n := range uint32(each) {
			for flow := range flows {
				select {
				case inFlight <- struct{}{}:
				case <-done:
					return
				}
				h.peer.out <- udp(remoteOutside, uint16(flow), localPod, 53, string(binary.BigEndian.AppendUint32(nil, n)))
			}
		}
	})
	end := sync.OnceFunc(func() { close(done); background.Wait() })
	t.Cleanup(end)
	var next [flows]uint32
	deadline := time.AfterFunc(patience, func() { _ = node.Close() })
	for came := 0; came < flows*each; {
		p, ok := packet.Parse(h.read(node, 1)[0].ip())
		if !ok || p.Dst() != localPod {
			continue // a probe of the gateway
		}
		came++
		flow, _ := p.Ports()
		if got := binary.BigEndian.Uint32(p.Transport()[packet.UDPHeaderLen:]); got != next[flow] {
			t.Fatalf("flow %d: packet %d, want %d", flow, got, next[flow])
		}
		next[flow]++
		<-inFlight
	}
	deadline.Stop()
	end()
	h.stop()
	s := h.forwarder.Status()
	if n := s.Nodes[0].TxPackets; n < flows*each || s.Ingress.Packets != flows*each || s.Ingress.Verdicts["Forwarded"] != flows*each {
		t.Errorf("%d packets to the node, %d and %v, want %d", n, s.Ingress.Packets, s.Ingress.Verdicts, flows*each)
	}
}

// What depends on packets before it waits for its turn: sending, fragments by the first of
// their datagram, and what is for the gateway itself. Nothing else does. Counted is what is dropped,
// and what is forwarded once the whole batch is judged.
func TestIngressLoopsWaitForTheirTurn(t *testing.T) {
	answer := dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(unknownIP, 1000), Payload: randomBytes(4, 3000)})
	fragments := packettest.Fragments(answer, 1300)
	plain, nowhere := udpOf(remoteOutside, localPod, 64), udpOf(remoteOutside, netip.MustParseAddr("8.8.8.8"), 64)
	ping := echoRequest(peerTunnelIP, tunnelIP)
	for name, tt := range map[string]struct {
		first, second [][]byte
		written       int // of both
		counted       int // of the second, before its turn
	}{
		"sending":       {[][]byte{plain}, [][]byte{plain, plain}, 3, 2},
		"fragments":     {fragments[:1], slices.Concat([][]byte{plain, nowhere}, fragments[1:], [][]byte{nowhere}), 1 + len(fragments), 1},
		"for ourselves": {[][]byte{ping}, [][]byte{plain, nowhere, ping, nowhere}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplays(t, 2, firstNodeHasAll)
			r.load(udpOf(unknownIP, remoteInside, 64)) // opens a flow
			r.egress()
			r.written = 0
			writers := r.forwarder.Writers()
			turn, waits, ended := make(chan struct{}), make(chan struct{}, 8), make(chan struct{})
			go func() {
				defer close(ended)
				writers[1].WritePackets(headroom(tt.second), nil, offset, func() { waits <- struct{}{}; <-turn })
			}()
			<-waits
			if n := r.forwarder.IngressCounts().Verdicts; n != uint64(tt.counted) || r.written != 0 {
				t.Errorf("%d packets are counted, want %d, and %d sent", n, tt.counted, r.written)
			}
			writers[0].WritePackets(headroom(tt.first), nil, offset, atOnce)
			close(turn)
			<-ended
			want := uint64(len(tt.first) + len(tt.second))
			v := r.forwarder.Status().Ingress.Verdicts
			if r.written != tt.written || v["Forwarded"]+v["Delivered"]+v["DropNoMapping"] != want {
				t.Errorf("%d datagrams, want %d: %v", r.written, tt.written, v)
			}
		})
	}
}

// headroom returns the tunnel's buffers with these packets.
func headroom(packets [][]byte) (bufs [][]byte) {
	for _, p := range packets {
		bufs = append(bufs, append(make([]byte, offset), p...))
	}
	return bufs
}

// Several loops, each with all kinds of packets, allocate as little as one.
func TestIngressLoopsAllocateNothing(t *testing.T) {
	const loops = 3
	r := newReplays(t, loops, func(c *dataplane.Config) { firstNodeHasAll(c); filtered(longChain(10))(c) })
	r.load(udpOf(unknownIP, remoteInside, 64)) // opens a flow
	r.egress()
	answer := dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(unknownIP, 1000), Payload: randomBytes(4, 3000)})
	packets := append([][]byte{
		udpOf(remoteOutside, localPod, 64), udpOf(remoteOutside6, localPod6, 64), udpOf(remoteOutside, mappedHostOut, 64), udpOf(remoteOutside, mappedPodOut, 64),
		tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(1460), 0), udpOf(remoteOutside, localPod, 4000), udpOf(remoteOutside, netip.MustParseAddr("8.8.8.8"), 64),
	}, packettest.Fragments(answer, 1300)...)
	r.written = 0
	var begin [loops]chan struct{}
	var turns [loops + 1]chan struct{} // the first of them is sent to when all begin
	end := make(chan struct{}, loops)
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
	}
	for i, w := range r.forwarder.Writers() {
		begin[i] = make(chan struct{})
		bufs, room := make([][]byte, len(packets)), headroom(packets)
		go func() {
			waited := false
			turn := func() {
				if !waited {
					<-turns[i]
					waited = true
				}
			}
			for range begin[i] {
				for j, p := range packets {
					copy(room[j][offset:], p)
					bufs[j] = room[j]
				}
				w.WritePackets(bufs, nil, offset, turn)
				turn()
				waited = false
				turns[i+1] <- struct{}{}
				end <- struct{}{}
			}
		}()
	}
	const runs = 200
	allocations := testing.AllocsPerRun(runs, func() {
		for _, b := range begin {
			b <- struct{}{}
		}
		turns[0] <- struct{}{}
		for range loops {
			<-end
		}
		<-turns[loops]
	})
	for _, b := range begin {
		close(b)
	}
	s := r.forwarder.Status()
	if want := uint64((runs + 1) * loops * (len(packets) - 1)); s.Ingress.Verdicts["Forwarded"] != want || s.Ingress.Packets != want {
		t.Fatalf("%v, want %d forwarded", s.Ingress.Verdicts, want)
	}
	if n := s.Nodes[0].TxPackets; n != uint64(r.written) {
		t.Errorf("%d packets are counted for the node, of %d", n, r.written)
	}
	checkAllocations(t, allocations)
}
