package dataplane_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

// superSegment is a TCP super-segment as a node's kernel hands it over.
func superSegment(payload int) []byte {
	return packettest.Unfinish(dataplanetest.Build(dataplanetest.Packet{
		Proto: packet.ProtoTCP, Src: port(localPod, 1000), Dst: port(remoteInside, 80),
		TCPFlags: packet.TCPAck, DontFragment: true, Payload: randomBytes(1, payload),
	}))
}

func udpOf(src, dst netip.Addr, size int) []byte {
	header := packet.IPv4HeaderLen
	if src.Is6() {
		header = packet.IPv6HeaderLen
	}
	return dataplanetest.Build(dataplanetest.Packet{
		Src: port(src, 1000), Dst: port(dst, 53), Payload: randomBytes(2, max(0, size-header-packet.UDPHeaderLen)),
	})
}

func tcpOf(src, dst netip.Addr, flags uint8, options []byte, size int) []byte {
	return dataplanetest.Build(dataplanetest.Packet{
		Proto: packet.ProtoTCP, Src: port(src, 1000), Dst: port(dst, 80), TCPFlags: flags, TCPOptions: options, Payload: randomBytes(3, size),
	})
}

// mss is a TCP option.
func mss(n uint16) []byte { return binary.BigEndian.AppendUint16([]byte{2, 4}, n) }

func TestEgressAllocatesNothing(t *testing.T) {
	tests := map[string][][]byte{
		"small UDP":        {udpOf(localPod, remoteInside, 64)},
		"TCP data":         {tcpOf(localPod, remoteInside, packet.TCPAck, nil, 1300)},
		"TCP SYN":          {tcpOf(localPod, remoteInside, packet.TCPSyn, mss(1460), 0)},
		"super-segment":    {superSegment(64000)},
		"IPv6":             {udpOf(localPod6, remoteInside6, 1300)},
		"unknown source":   {udpOf(unknownIP, remoteInside, 64)},
		"the node itself":  {udpOf(nodeIPs[0], remoteInside, 64)},
		"IP mapping":       {udpOf(mappedHost, remoteInside, 64)},
		"pod with mapping": {udpOf(mappedPod, remoteInside, 64)},
		"fragmentation":    {udpOf(localPod, remoteInside, 4000)},
		"unfinished":       {packettest.Unfinish(udpOf(localPod, remoteInside, 500))},
		"dropped":          {udpOf(netip.MustParseAddr("8.8.8.8"), remoteInside, 64), udpOf(localPod, remoteInside, 64)},
		"mixed":            {superSegment(20000), udpOf(localPod, remoteInside, 64), udpOf(localPod6, remoteInside6, 64), udpOf(unknownIP, remoteInside, 64)},
	}
	for name, ips := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReplay(t, nil)
			r.load(ips...)
			packets := 0
			allocations := testing.AllocsPerRun(200, func() { packets += r.egress() })
			if packets < 200 {
				t.Fatalf("only %d packets came out: %v", packets, r.forwarder.Status().Egress.Verdicts)
			}
			checkAllocations(t, allocations)
		})
	}
}

func TestIngressAllocatesNothing(t *testing.T) {
	big := udpOf(remoteOutside, localPod, 4000)
	tests := map[string]struct {
		ips     [][]byte
		written int // datagrams to nodes
		verdict dataplane.Verdict
	}{
		"small UDP":       {ips: [][]byte{udpOf(remoteOutside, localPod, 64)}, written: 1},
		"TCP data":        {ips: [][]byte{tcpOf(remoteOutside, localPod, packet.TCPAck, nil, 1300)}, written: 1},
		"TCP SYN":         {ips: [][]byte{tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(1460), 0)}, written: 1},
		"IPv6":            {ips: [][]byte{udpOf(remoteOutside6, localPod6, 1300)}, written: 1},
		"unknown source":  {ips: [][]byte{dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(unknownIP, 1000)})}, written: 1},
		"IP mapping":      {ips: [][]byte{udpOf(remoteOutside, mappedHostOut, 64)}, written: 1},
		"mapped pod":      {ips: [][]byte{udpOf(remoteOutside, mappedPodOut, 64)}, written: 1},
		"without a route": {ips: [][]byte{udpOf(remoteOutside, netip.MustParseAddr("10.243.200.1"), 64)}, written: 1},
		"fragmentation":   {ips: [][]byte{big}, written: 4},
		"fragments":       {ips: packettest.Fragments(big, 1300), written: 4},
		"dropped":         {ips: [][]byte{udpOf(remoteOutside, netip.MustParseAddr("8.8.8.8"), 64)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReplay(t, firstNodeHasAll)         // the other's MAC is not known
			r.load(udpOf(unknownIP, remoteInside, 64)) // opens a flow
			r.egress()
			write := r.ingressBatch(tt.ips...)
			r.written = 0
			allocations := testing.AllocsPerRun(200, write)
			if want := 201 * tt.written; r.written != want { // AllocsPerRun warms up once
				t.Fatalf("nodes got %d datagrams, want %d: %v", r.written, want, r.forwarder.Status().Ingress.Verdicts)
			}
			checkAllocations(t, allocations)
		})
	}
}

func checkAllocations(t *testing.T, allocations float64) {
	t.Helper()
	if packettest.Race {
		t.Skipf("NOT CHECKED: %v allocations per run, but the race detector allocates itself", allocations)
	}
	if allocations != 0 {
		t.Errorf("%v allocations per run, want none", allocations)
	}
}

// A long chain allocates as little: one that nothing matches but the last rule,
// and one behind the translation of the source.
func TestFilterAllocatesNothing(t *testing.T) {
	for name, change := range map[string]func(*dataplane.Config){
		"100 rules": filtered(longChain(100)),
		"late":      filtered(chainAt(filter.Postrouting, 100, ruleFor(filter.Accept, filter.Match{Proto: packet.ProtoUDP}))),
		"clamp":     filtered(forwardChain(filter.Rule{Action: filter.ClampMSS, MSS: 1000, Counter: true})),
		"drop":      filtered(forwardChain(ruleFor(filter.Drop, filter.Match{Src: only(unknownIP)}), ruleFor(filter.Drop, filter.Match{Dst: only(unknownIP)}))),
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplay(t, change)
			r.load(
				udpOf(localPod, remoteInside, 64), udpOf(localPod6, remoteInside6, 64), superSegment(20000),
				udpOf(unknownIP, remoteInside, 64), udpOf(mappedPod, remoteInside, 64), udpOf(nodeIPs[0], remoteInside, 64),
				tcpOf(localPod, remoteInside, packet.TCPSyn, mss(1460), 0),
			)
			write := r.ingressBatch(
				udpOf(remoteOutside, localPod, 64), udpOf(remoteOutside6, localPod6, 64), udpOf(remoteOutside, mappedPodOut, 64),
				tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(1460), 0),
			)
			checkAllocations(t, testing.AllocsPerRun(200, func() { r.egress(); write() }))
		})
	}
}
