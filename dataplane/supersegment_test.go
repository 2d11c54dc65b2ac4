package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

const (
	mtu = 1340 // of harnessConfig
	// maxInner is the largest packet that a node can put into one datagram.
	maxInner = 65535 - packet.IPv4HeaderLen - packet.UDPHeaderLen - geneve.HeaderLen - neighbor.EthernetHeaderLen
)

// randomBytes returns n bytes that depend on seed only.
func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n+8)
	r := rand.New(rand.NewPCG(seed, seed))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}

// stream puts the TCP segments of one flow together again and checks each.
type stream struct {
	*testing.T
	mtu     int
	next    uint32 // sequence number
	payload []byte
	packets int
}

func (s *stream) add(b []byte) {
	s.Helper()
	p, ok := packet.Parse(b)
	switch {
	case !ok || p.Proto != packet.ProtoTCP:
		s.Fatalf("segment %d is no TCP packet: %x", s.packets, b[:min(len(b), 40)])
	case len(p.Bytes) != len(b) || len(b) > s.mtu:
		s.Fatalf("segment %d has %d bytes, %d in the IP header; MTU %d", s.packets, len(b), len(p.Bytes), s.mtu)
	case !dataplanetest.ChecksumsValid(b):
		s.Fatalf("segment %d has a wrong checksum", s.packets)
	}
	t := p.Transport()
	if seq := binary.BigEndian.Uint32(t[4:]); seq != s.next {
		s.Fatalf("segment %d starts at %d, want %d", s.packets, seq, s.next)
	}
	data := t[t[12]>>4*4:]
	s.next += uint32(len(data))
	s.payload = append(s.payload, data...)
	s.packets++
}

func TestSuperSegmentIsCut(t *testing.T) {
	timestamps := []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2} // RFC 7323
	pods := map[string][2]netip.Addr{"IPv4": {localPod, remoteInside}, "IPv6": {localPod6, remoteInside6}}
	outside := map[string]netip.Addr{"IPv4": remoteOutside, "IPv6": remoteOutside6}
	headers := map[string]int{"IPv4": 40, "IPv6": 60}
	tests := []struct {
		name     string
		payload  int
		options  []byte
		finished bool
	}{
		{name: "64 KiB", payload: maxInner - 60 - 12, options: timestamps},
		{name: "64 KiB with a finished checksum", payload: maxInner - 60 - 12, options: timestamps, finished: true},
		{name: "two bytes more than one packet", payload: mtu - 40 + 2},
		{name: "an exact multiple", payload: 10 * (mtu - 60)},
		{name: "odd lengths", payload: 33333, options: timestamps},
	}
	for _, tt := range tests {
		for _, ip := range []string{"IPv4", "IPv6"} {
			t.Run(tt.name+"/"+ip, func(t *testing.T) {
				h := newHarness(t, nil)
				before := h.forwarder.Status().Egress
				data := randomBytes(uint64(tt.payload), tt.payload)
				b := dataplanetest.Build(dataplanetest.Packet{
					Proto: packet.ProtoTCP, Src: port(pods[ip][0], 1000), Dst: port(pods[ip][1], 80), DontFragment: true, ID: 65530,
					TCPFlags: packet.TCPAck | packet.TCPPsh | packet.TCPFin | packet.TCPCwr, TCPOptions: tt.options, Payload: data,
					TCPSeq: 1<<32 - 5,
				})
				if !tt.finished {
					packettest.Unfinish(b)
				}
				h.ipFromNode(0, b)
				s := &stream{T: t, mtu: mtu, next: 1<<32 - 5}
				got := h.egress()
				for i, seg := range got {
					s.add(seg)
					p, _ := packet.Parse(seg)
					if p.Src() != pods[ip][0] || p.Dst() != outside[ip] || p.HopLimit() != 63 {
						t.Fatalf("segment %d is %s", i, describe(seg))
					}
					last := i == len(got)-1
					want := uint8(packet.TCPAck)
					if i == 0 {
						want |= packet.TCPCwr
					}
					if last {
						want |= packet.TCPPsh | packet.TCPFin
					}
					if p.TCPFlags() != want {
						t.Errorf("segment %d has flags %#x, want %#x", i, p.TCPFlags(), want)
					}
					if p.Version == 4 && p.ID() != uint32(uint16(65530+i)) {
						t.Errorf("segment %d has identification %d, want %d", i, p.ID(), uint16(65530+i))
					}
				}
				if !bytes.Equal(s.payload, data) {
					t.Errorf("%d bytes come out, not the %d that went in", len(s.payload), len(data))
				}
				room := mtu - headers[ip] - len(tt.options)
				if want := (tt.payload + room - 1) / room; s.packets != want {
					t.Errorf("%d segments, want %d", s.packets, want)
				}
				st := h.forwarder.Status().Egress
				// The harness's marker is forwarded, too.
				if st.Segmented != 1 || st.Verdicts["Forwarded"]-before.Verdicts["Forwarded"] != 2 || st.Packets-before.Packets != uint64(s.packets)+1 {
					t.Errorf("counters %+v after %+v, want 1 super-segment and %d packets more", st, before, s.packets+1)
				}
			})
		}
	}
}

// TestSuperSegmentsInSmallBatches gives the tunnel's side few buffers at a
// time, as it does when credits are short: nothing may be lost, doubled or
// reordered between the calls.
func TestSuperSegmentsInSmallBatches(t *testing.T) {
	for _, buffers := range []int{1, 2, 7, 45, 128} {
		t.Run(fmt.Sprint(buffers, " buffers"), func(t *testing.T) {
			h := newHarness(t, nil)
			streams := map[netip.Addr]*stream{}
			sent := map[netip.Addr][]byte{}
			seq := map[netip.Addr]uint32{}
			for round := range 5 {
				for host := range 3 {
					dst := netip.AddrFrom4([4]byte{10, 71, 2, byte(20 + host)})
					outside := netip.AddrFrom4([4]byte{10, 243, 2, byte(20 + host)})
					data := randomBytes(uint64(10*round+host), 65000-7*host-8000*round)
					h.ipFromNode(0, packettest.Unfinish(dataplanetest.Build(dataplanetest.Packet{
						Proto: packet.ProtoTCP, Src: port(localPod, 1000), Dst: port(dst, 80), TCPFlags: packet.TCPAck, Payload: data,
						TCPSeq: seq[outside],
					})))
					seq[outside] += uint32(len(data))
					sent[outside] = append(sent[outside], data...)
					streams[outside] = &stream{T: t, mtu: mtu}
				}
				h.ipFromNode(0, udp(localPod, uint16(round), remoteInside, 5, "between them"))
			}
			h.bufs, h.sizes = h.bufs[:buffers], h.sizes[:buffers]
			nextUDP := uint16(0)
			for _, b := range h.egress() {
				p, _ := packet.Parse(b)
				if p.Proto == packet.ProtoUDP {
					if src, _ := p.Ports(); src != nextUDP {
						t.Errorf("got UDP packet %d, want %d", src, nextUDP)
					}
					nextUDP++
					continue
				}
				streams[p.Dst()].add(b)
			}
			for dst, s := range streams {
				if !bytes.Equal(s.payload, sent[dst]) {
					t.Errorf("%s: %d bytes come out, not the %d that went in", dst, len(s.payload), len(sent[dst]))
				}
			}
			if nextUDP != 5 {
				t.Errorf("%d UDP packets come out, want 5", nextUDP)
			}
		})
	}
}

func TestUnfinishedChecksumsAreCompleted(t *testing.T) {
	for _, src := range []netip.Addr{localPod, nodeIPs[0]} {
		for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP} {
			for _, size := range []int{0, 1, 100, 1299} {
				h := newHarness(t, nil)
				in := dataplanetest.Packet{Proto: proto, Src: port(src, 1000), Dst: port(remoteInside, 80), Payload: randomBytes(1, size)}
				h.ipFromNode(0, packettest.Unfinish(dataplanetest.Build(in)))
				got := h.egress()
				if len(got) != 1 || !dataplanetest.ChecksumsValid(got[0]) || !bytes.HasSuffix(got[0], in.Payload) {
					t.Errorf("protocol %d from %s with %d bytes: tunnel got %s", proto, src, size, describeAll(got))
				}
				if n := h.forwarder.Status().Egress.Repaired; n != 1 {
					t.Errorf("counted %d repaired checksums, want 1", n)
				}
			}
		}
	}
	h := newHarness(t, nil)
	h.ipFromNode(0, packettest.Unfinish(dataplanetest.Build(dataplanetest.Packet{Src: port(localPod6, 1000), Dst: port(remoteInside6, 80), Payload: []byte("six")})))
	if got := h.egress(); len(got) != 1 || !dataplanetest.ChecksumsValid(got[0]) {
		t.Errorf("IPv6: tunnel got %s", describeAll(got))
	}
}

// A checksum that is neither right nor unfinished is the receiver's business.
func TestWrongChecksumStaysWrong(t *testing.T) {
	h := newHarness(t, nil)
	b := udp(localPod, 1000, remoteInside, 53, "damaged")
	b[len(b)-1] ^= 1
	h.ipFromNode(0, b)
	if got := h.egress(); len(got) != 1 || dataplanetest.ChecksumsValid(got[0]) {
		t.Errorf("tunnel got %s, want one packet, still damaged", describeAll(got))
	}
}

// reassemble puts the fragments of one IPv4 datagram together (RFC 791 section
// 3.2) and returns the whole packet.
func reassemble(t *testing.T, mtu int, frags [][]byte) []byte {
	t.Helper()
	if len(frags) == 0 {
		t.Fatal("no fragments")
	}
	var payload []byte
	for i, b := range frags {
		p, ok := packet.Parse(b)
		last := i == len(frags)-1
		field := binary.BigEndian.Uint16(b[6:])
		switch {
		case !ok || p.Version != 4 || !packettest.HeaderValid(b):
			t.Fatalf("fragment %d is no valid packet: %x", i, b[:20])
		case len(b) > mtu:
			t.Fatalf("fragment %d has %d bytes, MTU %d", i, len(b), mtu)
		case int(field&0x1fff)*8 != len(payload) || field&0x2000 == 0 != last || field&0x4000 != 0:
			t.Fatalf("fragment %d has offset field %#x after %d bytes", i, field, len(payload))
		case !bytes.Equal(b[4:6], frags[0][4:6]) || !bytes.Equal(b[8:10], frags[0][8:10]) || !bytes.Equal(b[12:20], frags[0][12:20]):
			t.Fatalf("fragment %d is of another datagram", i)
		}
		payload = append(payload, b[20:]...)
	}
	whole := append(append([]byte(nil), frags[0][:20]...), payload...)
	binary.BigEndian.PutUint16(whole[2:], uint16(len(whole)))
	whole[6], whole[7] = 0, 0
	return packettest.FinishHeader(whole)
}

func TestBigUDPWithoutDFIsFragmented(t *testing.T) {
	for _, size := range []int{mtu - 28 + 1, 4000, maxInner - 28} {
		for _, finished := range []bool{true, false} {
			h := newHarness(t, nil)
			in := dataplanetest.Packet{Src: port(localPod, 1000), Dst: port(remoteInside, 53), ID: 99, Payload: randomBytes(2, size)}
			b := dataplanetest.Build(in)
			if !finished {
				packettest.Unfinish(b)
			}
			h.bufs, h.sizes = h.bufs[:4], h.sizes[:4]
			h.ipFromNode(0, b)
			whole := reassemble(t, mtu, h.egress())
			in.Dst, in.HopLimit = port(remoteOutside, 53), 63
			if want := dataplanetest.Build(in); !bytes.Equal(whole, want) {
				t.Errorf("%d bytes, finished checksum %v: reassembles to %s, want %s", size, finished, describe(whole), describe(want))
			}
			if n := h.forwarder.Status().Egress.Fragmented; n != 1 {
				t.Errorf("counted %d fragmented packets, want 1", n)
			}
		}
	}
}

// A fragment that is too big itself is cut again, and a fragment of a TCP
// segment is not taken for a super-segment.
func TestBigFragmentIsFragmented(t *testing.T) {
	for _, proto := range []uint8{packet.ProtoUDP, packet.ProtoTCP} {
		h := newHarness(t, func(c *dataplane.Config) {
			c.MTU = 576
			c.Remote = c.Remote[:1]
			c.LocalPods = c.LocalPods[:1]
			c.Routes = c.Routes[:3]
		})
		in := dataplanetest.Packet{
			Proto: proto, Src: port(localPod, 1000), Dst: port(remoteInside, 53), ID: 5, Payload: randomBytes(3, 3200-8),
		}
		if proto == packet.ProtoTCP {
			in.Payload = in.Payload[:3200-20]
		}
		for _, b := range packettest.Fragments(dataplanetest.Build(in), 1620) {
			h.ipFromNode(0, b)
		}
		whole := reassemble(t, 576, h.egress())
		in.Dst, in.HopLimit = port(remoteOutside, 53), 63
		if want := dataplanetest.Build(in); !bytes.Equal(whole, want) {
			t.Errorf("protocol %d: reassembles to %s, want %s", proto, describe(whole), describe(want))
		}
	}
}

// A peer with a larger MTU sends what does not fit the way to the node.
func TestBigPacketsFromThePeerAreFragmented(t *testing.T) {
	for _, proto := range []uint8{packet.ProtoUDP, packet.ProtoTCP} {
		h := newHarness(t, nil)
		in := dataplanetest.Packet{Proto: proto, Src: port(remoteOutside, 53), Dst: port(localPod, 1000), ID: 4, Payload: randomBytes(4, 8000)}
		h.ingress(dataplanetest.Build(in), udp(remoteOutside, 1, localPod, 2, "behind it"))
		got := h.atNode(0)
		if len(got) < 2 {
			t.Fatalf("node got %d packets: %v", len(got), h.ingressVerdicts())
		}
		var frags [][]byte
		for _, g := range got[:len(got)-1] {
			frags = append(frags, g.ip())
		}
		whole := reassemble(t, mtu, frags)
		in.Src, in.HopLimit = port(remoteInside, 53), 63
		if want := dataplanetest.Build(in); !bytes.Equal(whole, want) {
			t.Errorf("protocol %d: reassembles to %s, want %s", proto, describe(whole), describe(want))
		}
		if want := "10.71.2.20:1 > 10.243.1.10:2 proto 17 ttl 63 len 37 valid true"; describe(got[len(got)-1].ip()) != want {
			t.Errorf("behind the fragments came %s, want %s", describe(got[len(got)-1].ip()), want)
		}
		if n := h.forwarder.Status().Ingress.Fragmented; n != 1 {
			t.Errorf("counted %d fragmented packets, want 1", n)
		}
	}
}

// Many big packets in one batch use the space for fragments up several times.
func TestManyBigPacketsFromThePeer(t *testing.T) {
	h := newHarness(t, nil)
	var batch [][]byte
	for i := range 30 {
		batch = append(batch, dataplanetest.Build(dataplanetest.Packet{
			Src: port(remoteOutside, uint16(i)), Dst: port(localPod, 1000), ID: uint16(i), Payload: randomBytes(uint64(i), 60000),
		}))
	}
	var frags [][]byte
	h.ingress(batch...)
	for got := h.atNode(0); len(got) > 0; got = h.atNode(0) {
		for _, g := range got {
			frags = append(frags, g.ip())
		}
	}
	perPacket := len(frags) / 30
	for i := range 30 {
		whole := reassemble(t, mtu, frags[i*perPacket:(i+1)*perPacket])
		if !dataplanetest.ChecksumsValid(whole) || !bytes.Equal(whole[28:], randomBytes(uint64(i), 60000)) {
			t.Errorf("packet %d does not reassemble to what was sent", i)
		}
	}
}
