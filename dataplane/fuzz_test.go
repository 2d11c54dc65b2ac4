package dataplane_test

import (
	"bytes"
	"cmp"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// The oracle of what a Forwarder with harnessConfig may let out: plain lists,
// written down here and not taken from the code.
var (
	mayLeaveFrom = prefixes("10.243.0.0/16", "fd00:243::/48", "10.70.0.0/32", "10.70.0.7/32", "10.70.0.50/32")
	mayLeaveTo   = prefixes("10.243.0.0/16", "fd00:243::/48", "10.70.0.0/16", "169.254.18.2/32")
	mayEnterFrom = prefixes("10.71.0.0/16", "fd00:71::/48", "10.73.0.0/16")
	// Pods, the host of the IP object, and the unknown source's owners.
	mayEnterTo = prefixes("10.243.0.0/16", "fd00:243::/48", "192.168.7.7/32", "10.70.0.0/32", "10.80.0.11/32", "172.30.0.11/32")
	// What the gateway itself answers with: its own addresses, and those of
	// the peer in neighbor discovery.
	mayAnswerFrom = prefixes("10.80.0.1/32", "fd00:80::1/128", "fd00:71::/48")
)

func prefixes(ps ...string) (out []netip.Prefix) {
	for _, p := range ps {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func within(ps []netip.Prefix, a netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// fuzzed is a Forwarder under test that stays the same over all inputs.
type fuzzed struct {
	*replay
	marker  []byte
	answers [][]byte // datagrams to the node, copied
}

const markerPort = 4242

func newFuzzed(tb testing.TB) *fuzzed {
	f := &fuzzed{replay: newReplay(tb, firstNodeHasAll)}
	for i := range f.bufs {
		f.bufs[i] = make([]byte, 65535)
	}
	// Live flows, so that replies to the unknown source find one.
	f.load(udpOf(unknownIP, remoteInside, 64), tcpOf(nodeIPs[0], remoteInside, packet.TCPSyn, nil, 0))
	f.replay.egress()
	f.marker = f.encapsulated(udp(localPod, markerPort, remoteInside, markerPort, ""))
	f.onWrite = func(d underlay.Datagram) {
		f.answers = append(f.answers, append(append([]byte(nil), d.Head...), d.Body...))
	}
	return f
}

// egress carries datagrams through ReadPackets, and a marker behind them, and
// returns what the tunnel gets before the marker.
func (f *fuzzed) egress(datagrams ...[]byte) (out [][]byte) {
	f.answers = f.answers[:0]
	f.datagrams = append(append(f.datagrams[:0], datagrams...), f.marker)
	for {
		n, _, err := f.forwarder.ReadPackets(f.bufs, f.sizes, offset)
		if err != nil {
			f.Fatal(err)
		}
		for i := range n {
			b := f.bufs[i][offset : offset+f.sizes[i]]
			if p, ok := packet.Parse(b); ok && i == n-1 {
				if _, dst := p.Ports(); dst == markerPort && p.Src() == localPod {
					return out
				}
			}
			out = append(out, append([]byte(nil), b...))
		}
	}
}

func sum(verdicts map[string]uint64) (n uint64) {
	for _, v := range verdicts {
		n += v
	}
	return n
}

// checkToPeer checks what the tunnel got because of one packet.
func (f *fuzzed) checkToPeer(out [][]byte, valid bool) {
	for _, b := range out {
		p, ok := packet.Parse(b)
		switch {
		case !ok || len(p.Bytes) != len(b) || !packettest.HeaderValid(b):
			f.Fatalf("tunnel got a malformed packet: %x", b)
		case len(b) > mtu:
			f.Fatalf("tunnel got %d bytes, MTU %d: %s", len(b), mtu, describe(b))
		case !within(mayLeaveFrom, p.Src()) || !within(mayLeaveTo, p.Dst()):
			f.Fatalf("tunnel got %s", describe(b))
		case valid && p.Fragment == packet.Whole && !dataplanetest.ChecksumsValid(b):
			f.Fatalf("checksum was right and is not any more: %s", describe(b))
		}
	}
}

// checkToNode checks what the node got, in whatever it speaks.
func (f *fuzzed) checkToNode(from, to []netip.Prefix, valid bool) {
	for _, b := range f.answers {
		h, inner, err := geneve.Decode(b)
		if err != nil || h.VNI != 7 {
			f.Fatalf("node got %x: %+v, %v", b, h, err)
		}
		if h.Encapsulation != geneve.GeneveIP {
			fr, ok := neighbor.DecodeFrame(inner)
			if !ok {
				f.Fatalf("node got a malformed frame: %x", b)
			}
			if fr.EtherType == neighbor.EtherTypeARP {
				if a, ok := neighbor.DecodeARP(fr.Payload); !ok || a.Op != neighbor.ARPReply {
					f.Fatalf("node got %+v", a)
				}
				continue
			}
			inner = fr.Payload
		}
		p, ok := packet.Parse(inner)
		switch {
		case !ok || !packettest.HeaderValid(inner) || len(p.Bytes) > mtu:
			f.Fatalf("node got a malformed packet: %x", b)
		case !within(from, p.Src()):
			f.Fatalf("node got %s", describe(inner))
		case to != nil && !within(to, p.Dst()):
			f.Fatalf("node got %s", describe(inner))
		case valid && p.Fragment == packet.Whole && !dataplanetest.ChecksumsValid(inner):
			f.Fatalf("node got a wrong checksum: %s", describe(inner))
		}
	}
}

// transportValid tells whether an input's checksums are those that a receiver
// would accept, so that they must be right at the other end as well.
func transportValid(ip []byte) bool {
	p, ok := packet.Parse(ip)
	return ok && p.Fragment == packet.Whole && dataplanetest.ChecksumsValid(p.Bytes)
}

// egressSeeds are datagrams of a node: one for every way through egress.go.
func egressSeeds() (seeds [][]byte) {
	mac := neighbor.MAC{2, 0, 0, 0, 0, 1}
	add := func(et uint16, dst neighbor.MAC, payload []byte) {
		seeds = append(seeds, inGeneve(7, frame(dst, mac, et, payload)))
	}
	group := neighbor.SolicitedNode(gatewayIP6)
	add(neighbor.EtherTypeARP, neighbor.Broadcast, packettest.ARP{Op: neighbor.ARPRequest, SenderMAC: mac, SenderIP: nodeIPs[0], TargetIP: gatewayIP}.Bytes())
	add(neighbor.EtherTypeARP, mac, packettest.ARP{Op: neighbor.ARPReply, SenderMAC: mac, SenderIP: nodeIPs[0], TargetIP: gatewayIP}.Bytes())
	add(neighbor.EtherTypeIPv6, neighbor.MulticastMAC(group), packettest.Solicitation(nodeLinkLocal, group, gatewayIP6, mac))
	add(neighbor.EtherTypeIPv6, mac, packettest.Advertisement(nodeLinkLocal, gatewayIP6, nodeLinkLocal, 0, mac))
	for _, ip := range [][]byte{
		udpOf(localPod, remoteInside, 64), udpOf(unknownIP, remoteInside, 64), udpOf(nodeIPs[0], remoteInside, 64),
		udpOf(mappedHost, remoteInside, 64), udpOf(mappedPod, remoteInside, 64), udpOf(localPod, gatewayIP, 64),
		packettest.Unfinish(udpOf(localPod, remoteInside, 64)), udpOf(localPod, remoteInside, 3000),
		tcpOf(localPod, remoteInside, packet.TCPSyn, mss(1460), 0), superSegment(5000),
		dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoICMP, ICMPType: 3, Src: port(nodeIPs[0], 0), Dst: port(remoteInside, 0), Payload: udpOf(remoteInside, nodeIPs[0], 64)}),
		dataplanetest.Build(dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 2), DontFragment: true, Payload: make([]byte, 1400)}),
		dataplanetest.Build(dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 2), HopLimit: 1}),
		dataplanetest.Build(dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 2), Offset: 800, ID: 7, Payload: []byte("fragment")}),
	} {
		add(neighbor.EtherTypeIPv4, mac, ip)
	}
	add(neighbor.EtherTypeIPv6, mac, udpOf(localPod6, remoteInside6, 100))
	add(neighbor.EtherTypeIPv6, mac, dataplanetest.Build(dataplanetest.Packet{Src: port(localPod6, 1), Dst: port(remoteInside6, 2), Payload: make([]byte, 1400)}))
	return append(seeds,
		packettest.VXLAN(7, frame(mac, mac, neighbor.EtherTypeIPv4, udpOf(localPod, remoteInside, 64))),
		packettest.Geneve(7, neighbor.EtherTypeIPv4, udpOf(localPod, remoteInside, 64)),
		controlPacket(),
		nil,
	)
}

func FuzzEgressDatagram(t *testing.F) {
	f := mutate.New(t)
	for _, s := range egressSeeds() {
		f.Add(s)
	}
	z := newFuzzed(f)
	f.Fuzz(func(t *testing.T, datagram []byte) {
		z.TB = t
		if len(datagram) > maxInner {
			return
		}
		before := z.forwarder.EgressCounts()
		out := z.egress(datagram)
		after := z.forwarder.EgressCounts()

		valid := false
		if h, payload, err := geneve.Decode(datagram); err == nil {
			if h.Encapsulation == geneve.GeneveIP {
				valid = transportValid(payload)
			} else if fr, ok := neighbor.DecodeFrame(payload); ok {
				valid = transportValid(fr.Payload)
			}
		}
		z.checkToPeer(out, valid)
		z.checkToNode(mayAnswerFrom, nil, true)
		checkCounters(t, before, after, out, 2)
	})
}

// FuzzEgressMessage feeds what the kernel delivers in one piece: runs, and UDP
// super-segments, with a segment size of anybody's choice.
func FuzzEgressMessage(t *testing.F) {
	f := mutate.New(t)
	r := newReplay(f, nil)
	one := r.encapsulated(udpOf(localPod, remoteInside, 64))
	f.Add(bytes.Repeat(one, 3), uint16(len(one)))
	f.Add(append(bytes.Repeat(one, 2), one[:len(one)-1]...), uint16(len(one)))
	f.Add(r.encapsulated(superUDP(localPod, remoteInside, randomBytes(1, 1000), true)), uint16(300))
	f.Add(r.encapsulated(superUDP(localPod6, remoteInside6, randomBytes(1, 3000), true)), uint16(1200))
	for _, s := range egressSeeds() {
		f.Add(s, uint16(100))
	}
	z := newFuzzed(f)
	f.Fuzz(func(t *testing.T, message []byte, segment uint16) {
		z.TB = t
		if len(message) == 0 || len(message) > maxInner {
			return
		}
		datagrams := uint64(1)
		z.segment = min(len(message), cmp.Or(int(segment), len(message)))
		if n, ok := geneve.DatagramLen(message); !ok || n <= z.segment {
			datagrams = uint64((len(message) + z.segment - 1) / z.segment)
		}
		before := z.forwarder.EgressCounts()
		out := z.egress(message)
		after := z.forwarder.EgressCounts()
		z.checkToPeer(out, false)
		z.checkToNode(mayAnswerFrom, nil, true)
		checkCounters(t, before, after, out, datagrams+1)
	})
}

// checkCounters checks that every input has one verdict and every packet out is
// counted with its bytes. One of the inputs is the marker.
func checkCounters(t *testing.T, before, after dataplane.Counts, out [][]byte, inputs uint64) {
	t.Helper()
	if got := after.Verdicts - before.Verdicts; got != inputs {
		t.Fatalf("%d verdicts on %d packets", got, inputs)
	}
	const markerLen = packet.IPv4HeaderLen + packet.UDPHeaderLen
	packets, size := uint64(len(out)+1), uint64(markerLen)
	for _, b := range out {
		size += uint64(len(b))
	}
	if after.Packets-before.Packets != packets || after.Bytes-before.Bytes != size {
		t.Fatalf("counted %d packets and %d bytes, want %d and %d",
			after.Packets-before.Packets, after.Bytes-before.Bytes, packets, size)
	}
}

// ingressSeeds are packets of the peer: one for every way through ingress.go.
func ingressSeeds() [][]byte {
	return [][]byte{
		udpOf(remoteOutside, localPod, 64), udpOf(remoteOutside6, localPod6, 64),
		dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 53), Dst: port(unknownIP, 1000)}),
		dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoTCP, Src: port(remoteOutside, 80), Dst: port(unknownIP, 1000), TCPFlags: packet.TCPSyn | packet.TCPAck}),
		udpOf(remoteOutside, mappedHostOut, 64), udpOf(remoteOutside, mappedPodOut, 64),
		udpOf(remoteOutside, netip.MustParseAddr("10.70.0.99"), 64), udpOf(peerTunnelIP, tunnelIP, 64),
		udpOf(remoteOutside, localPod, 3000), tcpOf(remoteOutside, localPod, packet.TCPSyn, mss(1460), 0),
		dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 1), Dst: port(localPod, 2), DontFragment: true, Payload: make([]byte, 1400)}),
		dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 1), Dst: port(localPod, 2), HopLimit: 1}),
		dataplanetest.Build(dataplanetest.Packet{Src: port(remoteOutside, 1), Dst: port(unknownIP, 2), Offset: 800, ID: 7, Payload: []byte("fragment")}),
		dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoICMP, ICMPType: 3, Src: port(remoteOutside, 0), Dst: port(unknownIP, 0), Payload: udpOf(unknownIP, remoteOutside, 64)}),
		dataplanetest.Build(dataplanetest.Packet{Proto: packet.ProtoICMP, ICMPType: 11, Src: port(peerTunnelIP, 0), Dst: port(localPod, 0), Payload: udpOf(localPod, remoteOutside, 64)}),
		nil,
	}
}

func FuzzIngressPacket(t *testing.F) {
	f := mutate.New(t)
	for _, s := range ingressSeeds() {
		f.Add(s)
	}
	z := newFuzzed(f)
	f.Fuzz(func(t *testing.T, ip []byte) {
		z.TB = t
		valid := transportValid(ip)
		z.answers = z.answers[:0]
		before := z.forwarder.IngressCounts()
		z.forwarder.WritePackets([][]byte{append(make([]byte, offset), ip...)}, nil, offset, func() {})
		after := z.forwarder.IngressCounts()
		z.checkToNode(mayEnterFrom, mayEnterTo, valid)
		if got := after.Verdicts - before.Verdicts; got != 1 {
			t.Fatalf("%d verdicts on one packet", got)
		}
		if forwarded := after.Packets - before.Packets; (forwarded == 1) != (len(z.answers) > 0) {
			t.Fatalf("%d packets counted as forwarded, %d datagrams at the node", forwarded, len(z.answers))
		}
		z.checkToPeer(z.egress(), true) // errors about it
	})
}
