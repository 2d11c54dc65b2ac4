package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

func echoRequest(src, dst netip.Addr) []byte {
	proto, kind := uint8(packet.ProtoICMP), uint8(8)
	if src.Is6() {
		proto, kind = packet.ProtoICMPv6, 128
	}
	return dataplanetest.Build(dataplanetest.Packet{Proto: proto, ICMPType: kind, Src: port(src, 77), Dst: port(dst, 0), Payload: []byte("ping")})
}

// icmpError builds an ICMP error from src to the source of the offending
// packet, as a router on the way would.
func icmpError(t *testing.T, kind string, src netip.Addr, offending []byte) []byte {
	t.Helper()
	switch kind {
	case "too big":
		return packettest.TooBig(src, 1300, offending)
	case "time exceeded":
		return packettest.TimeExceeded(src, offending)
	case "port unreachable":
		return packettest.PortUnreachable(src, offending)
	}
	t.Fatalf("no error is called %s", kind)
	return nil
}

// quoted parses the packet that an ICMP error quotes and checks its IPv4
// header checksum. The quotation must be whole.
func quoted(t *testing.T, b []byte) packet.Packet {
	t.Helper()
	p, ok := packet.Parse(b)
	if !ok || !p.IsICMPError() {
		t.Fatalf("%s is no ICMP error", describe(b))
	}
	q, ok := packet.Parse(p.Transport()[packet.ICMPHeaderLen:])
	if !ok || !packettest.HeaderValid(q.Bytes) {
		t.Fatalf("%s quotes no valid packet: %x", describe(b), p.Transport())
	}
	return q
}

// sameError compares type, code and the MTU field.
func sameError(a, b []byte) bool {
	p, _ := packet.Parse(a)
	q, _ := packet.Parse(b)
	x, y := p.Transport(), q.Transport()
	return x[0] == y[0] && x[1] == y[1] && bytes.Equal(x[4:8], y[4:8])
}

func TestICMPErrorsAreTranslated(t *testing.T) {
	podRouter, podRouter6 := netip.MustParseAddr("10.243.1.1"), netip.MustParseAddr("fd00:243:0:1::1")
	farRouter, farRouterInside := netip.MustParseAddr("10.243.2.1"), netip.MustParseAddr("10.71.2.1")
	farRouter6, farRouterInside6 := netip.MustParseAddr("fd00:243:0:2::1"), netip.MustParseAddr("fd00:71:0:2::1")
	// The unknown-source address of the peer, outside and as this cluster sees it.
	peerExternal, unknownPeer := netip.MustParseAddr("10.70.0.0"), netip.MustParseAddr("10.73.0.0")
	tests := []struct {
		name string
		// before are packets that open flows: from node 0, then from the peer.
		before, beforeIn []byte
		egress           bool
		router           netip.Addr // where the error comes from
		offending        []byte     // as the router saw it
		// what comes out: the error's addresses and the quoted packet's
		src, dst, quotedSrc, quotedDst netip.Addr
	}{
		{
			name: "egress, about UDP from the peer's pod", egress: true, router: podRouter,
			offending: udpOf(remoteInside, localPod, 200),
			src:       podRouter, dst: remoteOutside, quotedSrc: remoteOutside, quotedDst: localPod,
		},
		{
			name: "egress, about TCP", egress: true, router: localPod,
			offending: tcpOf(remoteInside, localPod, packet.TCPAck, nil, 300),
			src:       localPod, dst: remoteOutside, quotedSrc: remoteOutside, quotedDst: localPod,
		},
		{
			name: "egress, about an echo request", egress: true, router: podRouter,
			offending: echoRequest(remoteInside, localPod),
			src:       podRouter, dst: remoteOutside, quotedSrc: remoteOutside, quotedDst: localPod,
		},
		{
			name: "egress, IPv6", egress: true, router: podRouter6,
			offending: udpOf(remoteInside6, localPod6, 200),
			src:       podRouter6, dst: remoteOutside6, quotedSrc: remoteOutside6, quotedDst: localPod6,
		},
		{
			name: "egress, IPv6 echo", egress: true, router: podRouter6,
			offending: echoRequest(remoteInside6, localPod6),
			src:       podRouter6, dst: remoteOutside6, quotedSrc: remoteOutside6, quotedDst: localPod6,
		},
		{
			name: "egress, from the node about a packet to a pod", egress: true, router: nodeIPs[0],
			offending: udpOf(remoteInside, localPod, 200),
			src:       unknownIP, dst: remoteOutside, quotedSrc: remoteOutside, quotedDst: localPod,
		},
		{
			name: "egress, from the node about a packet to itself", egress: true, router: nodeIPs[0],
			offending: udpOf(remoteInside, nodeIPs[0], 200),
			src:       unknownIP, dst: remoteOutside, quotedSrc: remoteOutside, quotedDst: unknownIP,
		},
		{
			name: "egress, about a packet to an IP object's host", egress: true, router: mappedHost,
			offending: udpOf(remoteInside, mappedHost, 200),
			src:       mappedHostOut, dst: remoteOutside, quotedSrc: remoteOutside, quotedDst: mappedHostOut,
		},
		{
			name: "egress, about a packet to an IP object's pod", egress: true, router: mappedPod,
			beforeIn:  udpOf(remoteOutside, mappedPodOut, 100),
			offending: udpOf(remoteInside, mappedPod, 200),
			src:       mappedPodOut, dst: remoteOutside, quotedSrc: remoteOutside, quotedDst: mappedPodOut,
		},
		{
			name: "egress, to the peer's unknown source", egress: true, router: localPod,
			offending: udpOf(unknownPeer, localPod, 200),
			src:       localPod, dst: peerExternal, quotedSrc: peerExternal, quotedDst: localPod,
		},
		{
			name: "ingress, about UDP", router: farRouter,
			offending: udpOf(localPod, remoteOutside, 200),
			src:       farRouterInside, dst: localPod, quotedSrc: localPod, quotedDst: remoteInside,
		},
		{
			name: "ingress, about TCP", router: remoteOutside,
			offending: tcpOf(localPod, remoteOutside, packet.TCPAck, nil, 300),
			src:       remoteInside, dst: localPod, quotedSrc: localPod, quotedDst: remoteInside,
		},
		{
			name: "ingress, about an echo request", router: farRouter,
			offending: echoRequest(localPod, remoteOutside),
			src:       farRouterInside, dst: localPod, quotedSrc: localPod, quotedDst: remoteInside,
		},
		{
			name: "ingress, IPv6", router: farRouter6,
			offending: udpOf(localPod6, remoteOutside6, 200),
			src:       farRouterInside6, dst: localPod6, quotedSrc: localPod6, quotedDst: remoteInside6,
		},
		{
			name: "ingress, IPv6 echo", router: farRouter6,
			offending: echoRequest(localPod6, remoteOutside6),
			src:       farRouterInside6, dst: localPod6, quotedSrc: localPod6, quotedDst: remoteInside6,
		},
		{
			name: "ingress, to an IP object's host", router: farRouter,
			offending: udpOf(mappedHostOut, remoteOutside, 200),
			src:       farRouterInside, dst: mappedHost, quotedSrc: mappedHost, quotedDst: remoteInside,
		},
		{
			name: "ingress, to an IP object's pod", router: farRouter,
			offending: udpOf(mappedPodOut, remoteOutside, 200),
			src:       farRouterInside, dst: mappedPod, quotedSrc: mappedPod, quotedDst: remoteInside,
		},
		{
			name: "ingress, to the unknown source of a node", router: farRouter,
			before:    udpOf(nodeIPs[0], remoteInside, 100),
			offending: udpOf(unknownIP, remoteOutside, 200),
			src:       farRouterInside, dst: nodeIPs[0], quotedSrc: nodeIPs[0], quotedDst: remoteInside,
		},
		{
			name: "ingress, to the unknown source, echo request", router: farRouter,
			before:    echoRequest(unknownIP, remoteInside),
			offending: echoRequest(unknownIP, remoteOutside),
			src:       farRouterInside, dst: unknownIP, quotedSrc: unknownIP, quotedDst: remoteInside,
		},
		{
			name: "ingress, from the gateway of the peer", router: peerExternal,
			offending: udpOf(localPod, remoteOutside, 200),
			src:       unknownPeer, dst: localPod, quotedSrc: localPod, quotedDst: remoteInside,
		},
	}
	for _, tt := range tests {
		for _, kind := range []string{"too big", "time exceeded", "port unreachable"} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				// What routes say about hosts of IP objects is not the point here.
				h := newHarness(t, firstNodeHasAll)
				if tt.before != nil {
					h.ipFromNode(0, tt.before)
					h.egress()
				}
				if tt.beforeIn != nil {
					h.ingress(tt.beforeIn)
				}
				h.atNode(0)
				in := icmpError(t, kind, tt.router, tt.offending)
				var got [][]byte
				if tt.egress {
					h.ipFromNode(0, in)
					got = h.egress()
				} else {
					h.ingress(in)
					for _, e := range h.atNode(0) {
						got = append(got, e.ip())
					}
				}
				if len(got) != 1 {
					t.Fatalf("%d packets come out: %v, %v", len(got), h.egressVerdicts(), h.ingressVerdicts())
				}
				p, _ := packet.Parse(got[0])
				q := quoted(t, got[0])
				if p.Src() != tt.src || p.Dst() != tt.dst || q.Src() != tt.quotedSrc || q.Dst() != tt.quotedDst {
					t.Errorf("got  %s > %s quoting %s > %s\nwant %s > %s quoting %s > %s",
						p.Src(), p.Dst(), q.Src(), q.Dst(), tt.src, tt.dst, tt.quotedSrc, tt.quotedDst)
				}
				if !dataplanetest.ChecksumsValid(got[0]) || !dataplanetest.ChecksumsValid(q.Bytes) {
					t.Errorf("checksums: error %v, quotation %v, want both right", dataplanetest.ChecksumsValid(got[0]), dataplanetest.ChecksumsValid(q.Bytes))
				}
				if !sameError(in, got[0]) {
					t.Errorf("type, code or MTU changed: %x became %x", in, got[0])
				}
				s, d := q.Ports()
				w, _ := packet.Parse(tt.offending)
				if ws, wd := w.Ports(); s != ws || d != wd {
					t.Errorf("quoted ports changed from %d, %d to %d, %d", ws, wd, s, d)
				}
			})
		}
	}
}

// What the gateway itself has to say must reach the sender in both families,
// also where nobody gave the gateway an address of the family.
func TestOwnErrors(t *testing.T) {
	big := make([]byte, 1400)
	noIPv6 := func(c *dataplane.Config) { c.Internal = c.Internal[:1] }
	tests := []struct {
		name   string
		config func(*dataplane.Config)
		egress bool
		in     dataplanetest.Packet
		kind   [2]uint8 // type and code
		mtu    uint32
		src    netip.Addr // of the error
	}{
		{name: "egress, too big", egress: true, in: dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 2), DontFragment: true, Payload: big}, kind: [2]uint8{3, 4}, mtu: mtu, src: gatewayIP},
		{name: "egress, expired", egress: true, in: dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 2), HopLimit: 1}, kind: [2]uint8{11, 0}, src: gatewayIP},
		{name: "egress, IPv6, too big", egress: true, in: dataplanetest.Packet{Src: port(localPod6, 1), Dst: port(remoteInside6, 2), Payload: big}, kind: [2]uint8{2, 0}, mtu: mtu, src: gatewayIP6},
		{name: "egress, IPv6, expired", egress: true, in: dataplanetest.Packet{Src: port(localPod6, 1), Dst: port(remoteInside6, 2), HopLimit: 1}, kind: [2]uint8{3, 0}, src: gatewayIP6},
		{
			name: "egress, IPv6 over an IPv4-only internal CIDR", config: noIPv6, egress: true,
			in:   dataplanetest.Packet{Src: port(localPod6, 1), Dst: port(remoteInside6, 2), Payload: big},
			kind: [2]uint8{2, 0}, mtu: mtu, src: netip.MustParseAddr("fd00:243::"),
		},
		{name: "ingress, too big", in: dataplanetest.Packet{Src: port(remoteOutside, 1), Dst: port(localPod, 2), DontFragment: true, Payload: big}, kind: [2]uint8{3, 4}, mtu: mtu, src: unknownIP},
		{name: "ingress, expired", in: dataplanetest.Packet{Src: port(remoteOutside, 1), Dst: port(localPod, 2), HopLimit: 1}, kind: [2]uint8{11, 0}, src: unknownIP},
		{
			name: "ingress, IPv6 without an external CIDR", in: dataplanetest.Packet{Src: port(remoteOutside6, 1), Dst: port(localPod6, 2), Payload: big},
			kind: [2]uint8{2, 0}, mtu: mtu, src: netip.MustParseAddr("fd00:243::"),
		},
		{
			name: "ingress, IPv6 with an external CIDR",
			config: func(c *dataplane.Config) {
				c.LocalExternal = append(c.LocalExternal, netip.MustParsePrefix("fd00:70::/48"))
			},
			in:   dataplanetest.Packet{Src: port(remoteOutside6, 1), Dst: port(localPod6, 2), HopLimit: 1},
			kind: [2]uint8{3, 0}, src: netip.MustParseAddr("fd00:70::"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, tt.config)
			offending := dataplanetest.Build(tt.in)
			var got [][]byte
			if tt.egress {
				h.ipFromNode(0, offending)
				h.egress()
				for _, e := range h.atNode(0) {
					got = append(got, e.ip())
				}
			} else {
				h.ingress(offending)
				got = h.egress()
			}
			if len(got) != 1 {
				t.Fatalf("%d packets come back, want one error: %v, %v", len(got), h.egressVerdicts(), h.ingressVerdicts())
			}
			p, _ := packet.Parse(got[0])
			icmp := p.Transport()
			if p.Src() != tt.src || p.Dst() != tt.in.Src.Addr() || [2]uint8(icmp) != tt.kind || binary.BigEndian.Uint32(icmp[4:]) != tt.mtu {
				t.Errorf("got %s type %d code %d field %d, want type %d code %d field %d from %s",
					describe(got[0]), icmp[0], icmp[1], binary.BigEndian.Uint32(icmp[4:]), tt.kind[0], tt.kind[1], tt.mtu, tt.src)
			}
			if !bytes.HasPrefix(offending, icmp[8:]) {
				t.Errorf("quotes %x, want the start of what the sender sent, %x", icmp[8:], offending)
			}
			if !dataplanetest.ChecksumsValid(got[0]) {
				t.Error("checksum is wrong")
			}
		})
	}
}

// No error about an error, a later fragment or what comes from no single host
// (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4).
func TestOwnErrorsThatMustNotBeSent(t *testing.T) {
	h := newHarness(t, nil)
	expiring := func(p dataplanetest.Packet) []byte {
		p.HopLimit = 1
		return dataplanetest.Build(p)
	}
	egress := [][]byte{
		expiring(dataplanetest.Packet{
			Proto: packet.ProtoICMP, ICMPType: 3, Src: port(localPod, 0), Dst: port(remoteInside, 0), Payload: udpOf(remoteInside, localPod, 100),
		}),
		expiring(dataplanetest.Packet{Src: port(localPod, 1), Dst: port(remoteInside, 2), Offset: 8, ID: 1, Payload: []byte("fragment")}),
	}
	for _, b := range egress {
		h.ipFromNode(0, b)
	}
	h.egress()
	if got := h.atNode(0); len(got) != 0 {
		t.Errorf("node got %s", describe(got[0].ip()))
	}
	if got := h.egressVerdicts()["DropHopLimit"]; got != uint64(len(egress)) {
		t.Errorf("%d packets expired, want %d: %v", got, len(egress), h.egressVerdicts())
	}
	h.ingress(expiring(dataplanetest.Packet{
		Proto: packet.ProtoICMP, ICMPType: 11, Src: port(remoteOutside, 0), Dst: port(localPod, 0), Payload: udpOf(localPod, remoteOutside, 100),
	}))
	if got := h.egress(); len(got) != 0 {
		t.Errorf("tunnel got %s", describeAll(got))
	}
}

// Errors are limited for each source, each way, and what is left out is still counted
// as dropped. The clock stands still, so that nothing is refilled.
func TestOwnErrorsAreLimited(t *testing.T) {
	const burst, packets = 20, 1000
	h := newHarness(t, nil)
	h.forwarder.StopClock()
	for _, kind := range []struct {
		name    string
		verdict string
		of      func(src, dst netip.Addr) []byte
	}{
		{"time exceeded", "DropHopLimit", expiring},
		{"too big", "DropTooBig", oversized},
	} {
		errors := 0
		for range packets / 50 {
			for range 50 {
				h.ipFromNode(0, kind.of(localPod, remoteInside))
			}
			h.egress()
			for n := len(h.atNode(0)); n > 0; n = len(h.atNode(0)) {
				errors += n
			}
		}
		if errors != burst {
			t.Errorf("%d errors %s about %d packets, want %d", errors, kind.name, packets, burst)
		}
		if got := h.egressVerdicts()[kind.verdict]; got != packets {
			t.Errorf("%d packets counted as %s, want %d", got, kind.verdict, packets)
		}
		errors = 0
		for range packets {
			h.ingress(kind.of(remoteOutside, localPod))
			errors += len(h.egress())
		}
		if errors != burst {
			t.Errorf("%d errors %s to the peer about %d packets, want %d", errors, kind.name, packets, burst)
		}
		if got := h.ingressVerdicts()[kind.verdict]; got != packets {
			t.Errorf("%d packets of the peer counted as %s, want %d", got, kind.verdict, packets)
		}
	}
}

// expiring is a packet that the gateway answers by Time Exceeded, and oversized one
// that it answers by Fragmentation Needed.
func expiring(src, dst netip.Addr) []byte {
	return dataplanetest.Build(dataplanetest.Packet{Src: port(src, 1), Dst: port(dst, 2), HopLimit: 1})
}

func oversized(src, dst netip.Addr) []byte {
	return dataplanetest.Build(dataplanetest.Packet{Src: port(src, 1), Dst: port(dst, 2), DontFragment: true, Payload: make([]byte, 1400)})
}

// What one pod has sent back to it takes nothing from another, and what has it sent
// Time Exceeded takes nothing from what it is to know about the size of its packets.
func TestAbuseOfErrors(t *testing.T) {
	other := netip.MustParseAddr("10.243.1.66")
	// others asks for errors about a packet of each of sixteen other pods. One in a thousand
	// shares the budget of the pod that floods, by chance.
	others := func(t *testing.T, errors func(i byte, of func(src, dst netip.Addr) []byte) int) {
		t.Helper()
		for _, of := range []func(src, dst netip.Addr) []byte{expiring, oversized} {
			told := 0
			for i := range byte(16) {
				told += errors(i, of)
			}
			if told < 13 || told > 16 {
				t.Errorf("16 other pods get %d errors about their packets", told)
			}
		}
	}
	for _, flood := range []struct {
		name string
		of   func(src, dst netip.Addr) []byte
	}{{"expiring packets", expiring}, {"packets that are too big", oversized}} {
		t.Run("of a local pod: "+flood.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.forwarder.StopClock()
			for range 20 {
				for range 50 {
					h.ipFromNode(0, flood.of(other, remoteInside))
				}
				h.egress()
				h.atNode(0)
			}
			others(t, func(i byte, of func(src, dst netip.Addr) []byte) int {
				h.ipFromNode(0, of(netip.AddrFrom4([4]byte{10, 243, 1, 100 + i}), remoteInside))
				h.egress()
				return len(h.atNode(0))
			})
		})
		t.Run("of a pod of the peer: "+flood.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.forwarder.StopClock()
			for range 20 {
				for range 50 {
					h.ingress(flood.of(hostilePod, localPod))
				}
				h.egress()
			}
			others(t, func(i byte, of func(src, dst netip.Addr) []byte) int {
				h.ingress(of(netip.AddrFrom4([4]byte{10, 243, 1, 100 + i}), localPod))
				return len(h.egress())
			})
		})
	}
	t.Run("who is told that packets are too big", func(t *testing.T) {
		h := newHarness(t, nil)
		h.forwarder.StopClock()
		for range 100 {
			h.ipFromNode(0, expiring(localPod, remoteInside))
		}
		h.egress()
		h.atNode(0)
		h.ipFromNode(0, oversized(localPod, remoteInside))
		h.egress()
		if got := h.atNode(0); len(got) != 1 {
			t.Errorf("the pod gets %d errors about a packet that is too big, want 1", len(got))
		}
	})
}

// Errors to the peer do not keep the gateway's own pings from going out, however many
// pods of the peer ask for them, and there is a bound for all of them together.
func TestErrorsLeaveRoomForPings(t *testing.T) {
	h := newHarness(t, nil)
	h.forwarder.StopClock()
	pod := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 243, 100 + byte(i>>8), byte(i)}) }
	for i := range 200 {
		h.ingress(expiring(pod(i), localPod))
	}
	h.forwarder.SendOwn(echoRequest(tunnelIP, peerTunnelIP))
	pings, errors := 0, 0
	for _, b := range h.egress() {
		if p, _ := packet.Parse(b); p.IsEcho() {
			pings++
		} else {
			errors++
		}
	}
	if pings != 1 || errors == 0 {
		t.Errorf("%d pings and %d errors go out, want 1 and some", pings, errors)
	}
	for i := range 3000 {
		h.ingress(expiring(pod(i), localPod))
		errors += len(h.egress())
	}
	if errors > 1000 {
		t.Errorf("%d errors in a moment, want at most 1000", errors)
	}
}
