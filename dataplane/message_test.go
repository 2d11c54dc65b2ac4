package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// took returns copies of the n packets that the last egress put out.
func (r *replay) took(n int) (out [][]byte) {
	for i := range n {
		out = append(out, bytes.Clone(r.bufs[i][offset:][:r.sizes[i]]))
	}
	return out
}

// superUDP is a UDP super-segment as the kernel of a node on this machine hands it
// over: its checksum is that of the pseudo-header.
func superUDP(src, dst netip.Addr, payload []byte, dontFragment bool) []byte {
	return packettest.Unfinish(dataplanetest.Build(dataplanetest.Packet{
		Proto: packet.ProtoUDP, Src: port(src, 7), Dst: port(dst, 9), ID: 65534, DontFragment: dontFragment, Payload: payload,
	}))
}

// What a pod sends with UDP_SEGMENT comes as one packet, and leaves as the datagrams
// that it stands for.
func TestUDPSuperSegmentIsCut(t *testing.T) {
	for name, pod := range map[string]struct{ src, dst, outside netip.Addr }{
		"IPv4": {localPod, remoteInside, remoteOutside}, "IPv6": {localPod6, remoteInside6, remoteOutside6},
	} {
		for _, size := range []int{1, 64, 1200} {
			for _, total := range []int{size + 1, 3 * size, 60*size/2 + 1} {
				payload := randomBytes(uint64(size+total), total)
				r := newReplay(t, nil)
				r.load(superUDP(pod.src, pod.dst, payload, true))
				r.segment = size
				var got []byte
				want := (total + size - 1) / size
				out := r.took(r.egress())
				if len(out) < want {
					t.Fatalf("%s, %d bytes in pieces of %d: %d packets, want %d", name, total, size, len(out), want)
				}
				for i, b := range out[:want] { // the next read returns the same again
					p, ok := packet.Parse(b)
					if !ok || p.Proto != packet.ProtoUDP || !dataplanetest.ChecksumsValid(b) || p.Src() != pod.src || p.Dst() != pod.outside || p.HopLimit() != 63 {
						t.Fatalf("%s, packet %d: %s", name, i, describe(b))
					}
					if p.Version == 4 && p.ID() != uint32(uint16(65534+i)) {
						t.Errorf("packet %d has identification %d", i, p.ID())
					}
					data := p.Transport()[packet.UDPHeaderLen:]
					if len(data) != min(size, total-len(got)) || int(binary.BigEndian.Uint16(p.Transport()[4:])) != len(p.Transport()) {
						t.Fatalf("%s, packet %d carries %d bytes, want %d", name, i, len(data), min(size, total-len(got)))
					}
					got = append(got, data...)
				}
				if !bytes.Equal(got, payload) {
					t.Errorf("%s, %d bytes in pieces of %d: others come out", name, total, size)
				}
			}
		}
	}
}

// A run of datagrams is taken apart, also where the last one is shorter.
func TestRunIsTakenApart(t *testing.T) {
	for _, sizes := range [][]int{{100, 100}, {100, 100, 1}, {1200, 1200, 1200, 1199}, {0, 0, 0}} {
		r := newReplay(t, nil)
		var run []byte
		for i, size := range sizes {
			b := r.encapsulated(udp(localPod, uint16(i), remoteInside, 9, string(randomBytes(1, size))))
			run = append(run, b...)
			if i == 0 {
				r.segment = len(b)
			}
		}
		r.datagrams = [][]byte{run}
		for i, b := range r.took(r.egress())[:len(sizes)] {
			p, ok := packet.Parse(b)
			if !ok || !dataplanetest.ChecksumsValid(b) || len(p.Transport()) != packet.UDPHeaderLen+sizes[i] {
				t.Fatalf("%v, datagram %d: %s", sizes, i, describe(b))
			}
			if src, _ := p.Ports(); int(src) != i {
				t.Errorf("%v: datagram %d comes as number %d", sizes, src, i)
			}
		}
	}
}

// What a run begins with decides nothing about what follows: the rest of a run that
// begins with rubbish is forwarded.
func TestRunWithRubbish(t *testing.T) {
	r := newReplay(t, nil)
	good := r.encapsulated(udp(localPod, 1, remoteInside, 9, "good"))
	r.datagrams, r.segment = [][]byte{append(make([]byte, len(good)), good...)}, len(good)
	before := r.forwarder.Status().Egress.Verdicts
	r.egress()
	after := r.forwarder.Status().Egress.Verdicts
	bad, ok := after["DropEncapsulation"]-before["DropEncapsulation"], after["Forwarded"]-before["Forwarded"]
	if bad == 0 || bad != ok {
		t.Errorf("%d were dropped and %d forwarded, want as many", bad, ok)
	}
}

// Datagrams that no kernel would have put together, because they do not fit the link,
// are refused as one packet that is too big, and the sender is told.
func TestUDPSuperSegmentOfTooLargeDatagrams(t *testing.T) {
	for _, dontFragment := range []bool{false, true} {
		r := newReplay(t, nil)
		told := 0
		r.onWrite = func(underlay.Datagram) { told++ }
		r.load(superUDP(localPod, remoteInside, randomBytes(1, 4000), dontFragment), udp(localPod, 1, remoteInside, 9, "the end"))
		r.segment = mtu - packet.IPv4HeaderLen - packet.UDPHeaderLen + 1
		r.egress()
		if v := r.forwarder.Status().Egress.Verdicts; v["DropTooBig"] == 0 || told == 0 {
			t.Errorf("DF %t: verdicts %v, told %d times", dontFragment, v, told)
		}
	}
}
