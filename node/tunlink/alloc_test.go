package tunlink

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

// runOf is a run of TCP segments as the gateway sends them to the node of h.
func (h *harness) runOf(v6 bool, payload, size int) (run []byte, segment int) {
	whole := tcp(v6, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = make([]byte, payload) })
	segments := packettest.Cut(whole, size)
	for _, b := range segments {
		run = append(run, h.encapsulated(geneve.Geneve, b)...)
	}
	return run, headLen + len(segments[0])
}

func TestToDeviceAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	h := newHarness(t, true, nil)
	run, segment := h.runOf(false, 40000, 1300)
	small := h.encapsulated(geneve.Geneve, tcp(true, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = nil }))
	arp := h.framed(geneve.Geneve, gatewayMAC, h.tunnel.mac, 0x0806, h.arpReply()[headLen:])
	work, buf := append([]byte(nil), run...), make([]byte, 1<<17)
	h.sent.keep = false
	if n := testing.AllocsPerRun(100, func() {
		h.now = h.ep.clock()
		copy(work, run)
		h.fromGateway(work, segment)
		h.fromGateway(small, len(small))
		h.fromGateway(arp, len(arp))
		for {
			if _, err := unix.Read(h.kernel, buf); err != nil {
				break
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if len(h.drops()) != 0 || h.tunnel.count.rxSupers.Load() == 0 {
		t.Errorf("drops %v, %d super-segments", h.drops(), h.tunnel.count.rxSupers.Load())
	}
}

func TestFromDeviceAllocatesNothing(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	h := newHarness(t, true, nil)
	h.sent.keep = false
	var packets [][]byte
	for _, v6 := range []bool{false, true} {
		b := tcp(v6, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = make([]byte, 60000) })
		v := super(t, b, 1300)
		packets = append(packets, withVnet(v, b))
		b = udp(v6, make([]byte, 100), nil)
		packets = append(packets, withVnet(unfinish(t, b), b))
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range packets {
			if _, err := unix.Write(h.kernel, b); err != nil {
				t.Fatal(err)
			}
		}
		h.work([]unix.EpollEvent{{Fd: h.tunnel.device.queues[0].id}})
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if len(h.drops()) != 0 || h.tunnel.count.txSupers.Load() == 0 {
		t.Errorf("drops %v, %d super-segments", h.drops(), h.tunnel.count.txSupers.Load())
	}
}

func withVnet(v vnetHeader, ip []byte) []byte {
	b := make([]byte, vnetLen, vnetLen+len(ip))
	v.put(b)
	return append(b, ip...)
}

// BenchmarkToDevice is what the program itself does for each run; the device takes it for nothing.
func BenchmarkToDevice(b *testing.B) {
	for name, v6 := range map[string]bool{"ipv4": false, "ipv6": true} {
		b.Run(name+"/tcp/1300", func(b *testing.B) {
			h := newHarness(b, true, nil)
			run, segment := h.runOf(v6, 58500, 1300)
			work := append([]byte(nil), run...)
			m := message(work)
			m.Segment = segment
			s := h.ep.snap.Load()
			b.SetBytes(int64(len(run)))
			b.ReportAllocs()
			for b.Loop() {
				copy(work, run)
				h.message(s, m)
				for i := range h.rx.merged.items {
					h.rx.merged.items[i].finish()
				}
				h.rx.merged.reset()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*45), "ns/packet")
		})
	}
}

// BenchmarkFromDevice is the other direction, without the system calls.
func BenchmarkFromDevice(b *testing.B) {
	for name, v6 := range map[string]bool{"ipv4": false, "ipv6": true} {
		b.Run(name+"/tcp/1300", func(b *testing.B) {
			h := newHarness(b, true, nil)
			h.sent.keep = false
			ip := tcp(v6, func(_ *packettest.Spec, s *packettest.Segment) {
				s.Payload, s.Flags = make([]byte, 58500), packet.TCPAck
			})
			in := withVnet(super(b, ip, 1300), ip)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				h.tx.take(h.tunnel, copy(h.tx.space(), in), h.now)
				h.tx.flush()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*45), "ns/packet")
		})
	}
}
