package tunlink

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

func TestToDevice(t *testing.T) {
	tests := []struct {
		name string
		wire func(h *harness, ip []byte) []byte
		drop string // ""  : delivered
	}{
		{name: "Geneve", wire: func(h *harness, ip []byte) []byte { return h.encapsulated(geneve.Geneve, ip) }},
		{name: "Geneve without Ethernet", wire: func(h *harness, ip []byte) []byte { return h.encapsulated(geneve.GeneveIP, ip) }},
		{name: "VXLAN", wire: func(h *harness, ip []byte) []byte { return h.encapsulated(geneve.VXLAN, ip) }},
		{name: "padding behind the packet", wire: func(h *harness, ip []byte) []byte {
			return append(h.encapsulated(geneve.Geneve, ip), 0, 0, 0)
		}},
		{name: "other VNI", drop: "DropUnknownTunnel", wire: func(h *harness, ip []byte) []byte {
			b := h.encapsulated(geneve.Geneve, ip)
			b[6]++
			return b
		}},
		{name: "nothing", drop: "DropEncapsulation", wire: func(*harness, []byte) []byte { return []byte{0} }},
		{name: "control packet", drop: "DropControl", wire: func(h *harness, ip []byte) []byte {
			b := h.encapsulated(geneve.Geneve, ip)
			b[1] |= 0x80
			return b
		}},
		{name: "frame to another station", drop: "DropFrame", wire: func(h *harness, ip []byte) []byte {
			return h.framed(geneve.Geneve, gatewayMAC, neighbor.MAC{2, 9}, etherTypeOf(ip), ip)
		}},
		{name: "frame to all stations", drop: "DropFrame", wire: func(h *harness, ip []byte) []byte {
			return h.framed(geneve.Geneve, gatewayMAC, neighbor.Broadcast, etherTypeOf(ip), ip)
		}},
		{name: "frame from ourselves", drop: "DropFrame", wire: func(h *harness, ip []byte) []byte {
			return h.framed(geneve.Geneve, h.tunnel.mac, h.tunnel.mac, etherTypeOf(ip), ip)
		}},
		{name: "other EtherType", drop: "DropFrame", wire: func(h *harness, ip []byte) []byte {
			return h.framed(geneve.Geneve, gatewayMAC, h.tunnel.mac, 0x88cc, ip)
		}},
		{name: "half a packet", drop: "DropMalformed", wire: func(h *harness, ip []byte) []byte {
			return h.encapsulated(geneve.Geneve, ip[:len(ip)-1])
		}},
		{name: "no packet", drop: "DropMalformed", wire: func(h *harness, ip []byte) []byte { return h.encapsulated(geneve.Geneve, nil) }},
	}
	for _, tt := range tests {
		for version := 4; version <= 6; version += 2 {
			t.Run(fmt.Sprintf("%s/ipv%d", tt.name, version), func(t *testing.T) {
				h := newHarness(t, true, nil)
				ip := tcp(version == 6, nil)
				h.fromGateway(tt.wire(h, ip), headLen+len(ip)+100)
				want, wantDrops := []delivered{{ip: ip}}, map[string]uint64{}
				if tt.drop != "" {
					want, wantDrops = nil, map[string]uint64{tt.drop: 1}
				}
				if diff := cmp.Diff(want, h.atKernel(), cmp.AllowUnexported(delivered{}, vnetHeader{})); diff != "" {
					t.Errorf("packets (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(wantDrops, h.drops()); diff != "" {
					t.Errorf("drops (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func etherTypeOf(ip []byte) uint16 {
	if ip[0]>>4 == 6 {
		return neighbor.EtherTypeIPv6
	}
	return neighbor.EtherTypeIPv4
}

// TestForeignSender: only the gateway is listened to.
func TestForeignSender(t *testing.T) {
	h := newHarness(t, true, nil)
	h.fromGateway(h.encapsulated(geneve.Geneve, tcp(false, nil)), 2000) // the last tunnel is remembered
	m := message(h.encapsulated(geneve.Geneve, tcp(false, nil)))
	m.Addr = netip.AddrPortFrom(gateway.Next(), geneve.DefaultPort)
	h.message(h.ep.snap.Load(), m)
	h.deliver()
	if got := h.atKernel(); len(got) != 1 {
		t.Errorf("%d packets, want 1", len(got))
	}
	if diff := cmp.Diff(map[string]uint64{"DropUnknownTunnel": 1}, h.drops()); diff != "" {
		t.Errorf("drops (-want +got):\n%s", diff)
	}
}

// TestRun: what the kernel received as one piece is taken apart and put together again.
func TestRun(t *testing.T) {
	h := newHarness(t, true, nil)
	whole := tcp(false, func(_ *packettest.Spec, s *packettest.Segment) { s.Payload = make([]byte, 4500) })
	segments := packettest.Cut(whole, 1000)
	var run []byte
	for _, b := range segments {
		run = append(run, h.encapsulated(geneve.Geneve, b)...)
	}
	h.fromGateway(run, headLen+len(segments[0]))
	got := h.atKernel()
	if len(got) != 1 {
		t.Fatalf("%d packets at the kernel, want 1", len(got))
	}
	if diff := cmp.Diff(normals(segments), normals(cutAsKernel(t, got[0]))); diff != "" {
		t.Errorf("segments (-want +got):\n%s", diff)
	}
	if c := h.tunnel.count; c.rxPackets.Load() != 5 || c.rxSupers.Load() != 1 || c.rxBytes.Load() != 5*40+4500 {
		t.Errorf("counted %d packets, %d bytes, %d super-segments", c.rxPackets.Load(), c.rxBytes.Load(), c.rxSupers.Load())
	}
}

// TestSuperSegmentFromKernel: the gateway's kernel, on this very machine, sends what it would
// leave to a network card.
func TestSuperSegmentFromKernel(t *testing.T) {
	for _, tt := range []struct {
		name     string
		finished bool
		udp      int // size of the datagrams of a UDP super-segment
		noUSO    bool
		spoil    bool
		packets  int
	}{
		{name: "TCP", packets: 1},
		{name: "TCP with a checksum", finished: true, packets: 1},
		{name: "TCP with a wrong checksum", finished: true, spoil: true},
		{name: "UDP", udp: 1000, packets: 1},
		{name: "UDP to a kernel that takes none", udp: 1000, noUSO: true, packets: 9},
	} {
		for version := 4; version <= 6; version += 2 {
			t.Run(fmt.Sprintf("%s/ipv%d", tt.name, version), func(t *testing.T) {
				h := newHarness(t, true, nil)
				if tt.noUSO {
					h.tunnel.device.offloads = offloadSteps[1]
				}
				size, segment := testMTU-52, headLen+9052
				ip := tcp(version == 6, func(_ *packettest.Spec, s *packettest.Segment) {
					s.Payload, s.Options = make([]byte, 9000), bytes.Repeat([]byte{1}, 12)
				})
				if version == 6 {
					size, segment = size-20, segment+20
				}
				if tt.udp > 0 {
					ip, size, segment = udp(version == 6, make([]byte, 9000), nil), tt.udp, tt.udp
				}
				b := bytes.Clone(ip)
				if !tt.finished {
					unfinish(t, b)
				}
				if tt.spoil {
					b[len(b)-1]++
				}
				want := packettest.Cut(ip, size)
				h.fromGateway(h.encapsulated(geneve.Geneve, b), segment)
				got := h.atKernel()
				if len(got) != tt.packets {
					t.Fatalf("%d packets at the kernel, want %d", len(got), tt.packets)
				}
				var all [][]byte
				for _, d := range got {
					all = append(all, cutAsKernel(t, d)...)
				}
				if tt.packets == 0 {
					want = nil
				}
				if diff := cmp.Diff(normals(want), normals(all)); diff != "" {
					t.Errorf("segments (-want +got):\n%.2000s", diff)
				}
			})
		}
	}
}

// TestUnfinishedChecksum: a small packet of a kernel on this machine is delivered with its
// checksum left to the kernel, whatever that kernel can do.
func TestUnfinishedChecksum(t *testing.T) {
	for _, offloads := range offloadSteps {
		for _, b := range [][]byte{tcp(false, nil), tcp(true, nil), udp(false, make([]byte, 100), nil), udp(true, make([]byte, 100), nil)} {
			h := newHarness(t, true, nil)
			h.tunnel.device.offloads = offloads
			wire := bytes.Clone(b)
			want := unfinish(t, wire)
			h.fromGateway(h.encapsulated(geneve.Geneve, wire), 0)
			got := h.atKernel()
			if len(got) != 1 || got[0].vnet != want || !bytes.Equal(cutAsKernel(t, got[0])[0], b) {
				t.Errorf("offloads %#x: delivered %+v, want %+v and %x", offloads, got, want, b)
			}
		}
	}
}

// TestARP: the node answers for its own address and believes its gateway.
func TestARP(t *testing.T) {
	const request, reply = neighbor.ARPRequest, neighbor.ARPReply
	for _, tt := range []struct {
		name     string
		arp      packettest.ARP
		answered bool // we answer
		learned  bool // the gateway is known afterwards
		drop     bool
	}{
		{name: "request of the gateway", arp: packettest.ARP{Op: request, SenderIP: gatewayIP, TargetIP: nodeIP}, answered: true, learned: true},
		{name: "request of somebody else", arp: packettest.ARP{Op: request, SenderIP: remote4, TargetIP: nodeIP}, answered: true},
		{name: "request for another address", arp: packettest.ARP{Op: request, SenderIP: gatewayIP, TargetIP: remote4}, drop: true},
		{name: "answer of the gateway", arp: packettest.ARP{Op: reply, SenderIP: gatewayIP, TargetIP: nodeIP}, learned: true},
		{name: "answer of somebody else", arp: packettest.ARP{Op: reply, SenderIP: remote4, TargetIP: nodeIP}, drop: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, false, nil)
			tt.arp.SenderMAC = gatewayMAC
			h.fromGateway(h.framed(geneve.VXLAN, gatewayMAC, neighbor.Broadcast, neighbor.EtherTypeARP, tt.arp.Bytes()), 1000)
			sent := h.inners()
			if (len(sent) == 1) != tt.answered || (h.tunnel.gatewayMAC() == gatewayMAC) != tt.learned || (h.drops()["DropFrame"] == 1) != tt.drop {
				t.Fatalf("answered %d times, knows %v, drops %v", len(sent), h.tunnel.gatewayMAC(), h.drops())
			}
			if tt.answered {
				want := packettest.ARP{Op: reply, SenderMAC: h.tunnel.mac, SenderIP: nodeIP, TargetMAC: gatewayMAC, TargetIP: tt.arp.SenderIP}
				if !bytes.Equal(sent[0], want.Bytes()) {
					t.Errorf("answered %x, want %x: %+v", sent[0], want.Bytes(), want)
				}
			}
			if e := geneve.Encapsulation(h.tunnel.learned.encapsulation.Load()); !tt.drop && e != geneve.VXLAN {
				t.Errorf("heard %v", e)
			}
		})
	}
}

// TestNeighborDiscovery: the same with an IPv6 internal network.
func TestNeighborDiscovery(t *testing.T) {
	v6 := func(c *Tunnel) { c.Internal, c.GatewayInternal = nodeIP6, gatewayIP6 }
	group := neighbor.SolicitedNode(nodeIP6)
	for _, tt := range []struct {
		name              string
		packet            []byte
		dst               func(h *harness) neighbor.MAC
		answered, learned bool
		drop              bool
	}{
		{name: "question of the gateway", answered: true, learned: true,
			packet: packettest.Solicitation(gatewayIP6, group, nodeIP6, gatewayMAC)},
		{name: "question for another address", drop: true, learned: true, // from the frame
			packet: packettest.Solicitation(gatewayIP6, group, pod6, gatewayMAC)},
		{name: "answer of the gateway", learned: true,
			packet: packettest.Advertisement(gatewayIP6, nodeIP6, gatewayIP6, packettest.Solicited|packettest.Override, gatewayMAC)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, false, v6)
			h.fromGateway(h.framed(geneve.Geneve, gatewayMAC, neighbor.MulticastMAC(group), neighbor.EtherTypeIPv6, tt.packet), 1000)
			sent := h.inners()
			if (len(sent) == 1) != tt.answered || (h.tunnel.gatewayMAC() == gatewayMAC) != tt.learned || (h.drops()["DropFrame"] == 1) != tt.drop {
				t.Fatalf("answered %d times, knows %v, drops %v", len(sent), h.tunnel.gatewayMAC(), h.drops())
			}
			if tt.answered {
				const flags = packettest.Router | packettest.Solicited | packettest.Override
				if want := packettest.Advertisement(nodeIP6, gatewayIP6, nodeIP6, flags, h.tunnel.mac); !bytes.Equal(sent[0], want) {
					t.Errorf("answered %x, want %x", sent[0], want)
				}
			}
			if got := h.atKernel(); len(got) != 0 {
				t.Errorf("the kernel got %d packets", len(got))
			}
		})
	}
}

// TestQuestion: what announces the node is what a gateway answers.
func TestQuestion(t *testing.T) {
	h := newHarness(t, false, nil)
	d := h.tunnel.question()
	f, _ := neighbor.DecodeFrame(d.Body[geneve.HeaderLen:])
	want := packettest.ARP{Op: neighbor.ARPRequest, SenderMAC: h.tunnel.mac, SenderIP: nodeIP, TargetIP: gatewayIP}.Bytes()
	if !bytes.Equal(f.Payload, want) || !f.Dst.IsBroadcast() {
		t.Errorf("asked %x to %v, want %x", f.Payload, f.Dst, want)
	}
	h = newHarness(t, false, func(c *Tunnel) { c.Internal, c.GatewayInternal = nodeIP6, gatewayIP6 })
	f, _ = neighbor.DecodeFrame(h.tunnel.question().Body[geneve.HeaderLen:])
	if want := packettest.Solicitation(nodeIP6, neighbor.SolicitedNode(gatewayIP6), gatewayIP6, h.tunnel.mac); !bytes.Equal(f.Payload, want) {
		t.Errorf("asked %x, want %x", f.Payload, want)
	}
}

// TestUpkeep: who does not answer is asked ever less often, who is heard is not asked, and
// a new link-layer address is asked about at once.
func TestUpkeep(t *testing.T) {
	h := newHarness(t, false, nil)
	const second = int64(1e9)
	var asked []int64
	for now := int64(1); now < 100*second; now += second {
		if h.tunnel.due(now) {
			asked = append(asked, now/second)
		}
	}
	if diff := cmp.Diff([]int64{0, 1, 3, 7, 15, 31, 63, 95}, asked); diff != "" {
		t.Errorf("asked at seconds (-want +got):\n%s", diff)
	}
	h.now = 100 * second
	h.fromGateway(h.arpReply(), 1000)
	if h.tunnel.due(h.now + second) {
		t.Error("asked again after the answer")
	}
	forged := neighbor.MAC{2, 0, 0, 0, 0, 9}
	h.fromGateway(h.framed(geneve.Geneve, forged, h.tunnel.mac, neighbor.EtherTypeIPv4, tcp(false, nil)), 1500)
	if h.tunnel.gatewayMAC() != gatewayMAC {
		t.Errorf("believes %v", h.tunnel.gatewayMAC())
	}
	if !h.tunnel.due(h.now+second) || h.tunnel.due(h.now+second) {
		t.Error("a new address: want one question at once")
	}
	if !h.tunnel.due(h.now + 40*second) {
		t.Error("not asked after a long silence")
	}
}

// TestSameAgain: another MTU forgets nothing, another gateway does.
func TestSameAgain(t *testing.T) {
	h := newHarness(t, true, nil)
	before := h.tunnel
	before.count.rxPackets.Store(5)
	cfg := before.Tunnel
	cfg.MTU = 1300
	if n := newTunnel(cfg, 6091, before.device, before.waiting, before); n.gatewayMAC() != gatewayMAC || n.count != before.count || n.mac != before.mac {
		t.Error("another MTU made it forget")
	}
	cfg.Gateway = gateway.Next()
	if n := newTunnel(cfg, 6091, before.device, before.waiting, before); !n.gatewayMAC().IsZero() || n.count != before.count {
		t.Error("another gateway did not make it forget, or lost the counters")
	}
}

// FuzzFromWire: whatever the gateway sends, the kernel gets well-formed packets and headers that
// fit them, and nothing is lost without a name.
func FuzzFromWire(t *testing.F) {
	f := mutate.New(t)
	h := newHarness(f, true, nil)
	for _, v6 := range []bool{false, true} {
		for _, e := range []geneve.Encapsulation{geneve.Geneve, geneve.GeneveIP, geneve.VXLAN} {
			b := h.encapsulated(e, tcp(v6, nil))
			f.Add(b, uint16(len(b)))
			f.Add(append(b, b...), uint16(len(b)))
			b = h.encapsulated(e, udp(v6, make([]byte, 3000), nil))
			f.Add(b, uint16(1000))
		}
	}
	f.Add(h.arpReply(), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, segment uint16) {
		if len(b) == 0 || len(b) > 65535 {
			return
		}
		h := h.again(t)
		h.fromGateway(bytes.Clone(b), int(segment))
		for _, d := range h.atKernel() {
			_, ok := packet.Parse(d.ip)
			if !ok || !packettest.HeaderValid(d.ip) {
				t.Fatalf("not a packet: %x", d.ip)
			}
			if d.vnet.flags&vnetNeedsChecksum != 0 && int(d.vnet.checkStart)+int(d.vnet.checkOffset)+2 > len(d.ip) {
				t.Fatalf("checksum outside of the packet: %+v", d.vnet)
			}
			if d.vnet.gsoType != vnetNone && (d.vnet.size == 0 || int(d.vnet.headersLen) > len(d.ip)) {
				t.Fatalf("wrong header: %+v of %d bytes", d.vnet, len(d.ip))
			}
		}
	})
}

// TestDropNames: every drop has a name of its own.
func TestDropNames(t *testing.T) {
	seen := map[string]bool{"": true}
	for _, d := range Drops() {
		if seen[d.String()] {
			t.Errorf("drop %d is called %q", d, d)
		}
		seen[d.String()] = true
	}
}
