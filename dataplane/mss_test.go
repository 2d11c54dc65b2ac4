package dataplane_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
	"github.com/sluice-net/sluice/test/packettest"
)

// mssOf returns the MSS option that a SYN starts with, -1 for none.
func mssOf(b []byte) int {
	p, _ := packet.Parse(b)
	t := p.Transport()
	if len(t) < 24 || t[20] != 2 {
		return -1
	}
	return int(binary.BigEndian.Uint16(t[22:]))
}

func TestMSSIsClampedBothWays(t *testing.T) {
	const syn, synAck = packet.TCPSyn, packet.TCPSyn | packet.TCPAck
	tests := []struct {
		name     string
		v6       bool
		flags    uint8
		mss      int // -1: no option
		wantMSS  int
		unfinish bool
	}{
		{name: "SYN", flags: syn, mss: 1460, wantMSS: mtu - 40},
		{name: "SYN-ACK", flags: synAck, mss: 1460, wantMSS: mtu - 40},
		{name: "SYN in IPv6", v6: true, flags: syn, mss: 1440, wantMSS: mtu - 60},
		{name: "SYN-ACK in IPv6", v6: true, flags: synAck, mss: 1440, wantMSS: mtu - 60},
		{name: "jumbo frames", flags: syn, mss: 65495, wantMSS: mtu - 40},
		{name: "a smaller one is never raised", flags: syn, mss: 536, wantMSS: 536},
		{name: "exactly what fits", flags: syn, mss: mtu - 40, wantMSS: mtu - 40},
		{name: "no option", flags: syn, mss: -1, wantMSS: -1},
		{name: "not a SYN", flags: packet.TCPAck, mss: 1460, wantMSS: 1460},
		{name: "SYN with an unfinished checksum", flags: syn, mss: 1460, wantMSS: mtu - 40, unfinish: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var options []byte
			if tt.mss >= 0 {
				options = mss(uint16(tt.mss))
			}
			pod, remote, outside := localPod, remoteInside, remoteOutside
			if tt.v6 {
				pod, remote, outside = localPod6, remoteInside6, remoteOutside6
			}
			check := func(direction string, got [][]byte, src, dst netip.Addr) {
				t.Helper()
				if len(got) != 1 {
					t.Fatalf("%s: %d packets come out, want 1", direction, len(got))
				}
				p, _ := packet.Parse(got[0])
				if mssOf(got[0]) != tt.wantMSS || p.Src() != src || p.Dst() != dst || !dataplanetest.ChecksumsValid(got[0]) {
					t.Errorf("%s: got MSS %d in %s, want %d", direction, mssOf(got[0]), describe(got[0]), tt.wantMSS)
				}
			}
			h := newHarness(t, nil)
			b := tcpOf(pod, remote, tt.flags, options, 0)
			if tt.unfinish {
				packettest.Unfinish(b)
			}
			h.ipFromNode(0, b)
			check("egress", h.egress(), pod, outside)
			if tt.unfinish {
				return // never in the tunnel
			}
			h.ingress(tcpOf(outside, pod, tt.flags, options, 0))
			var got [][]byte
			for _, e := range h.atNode(0) {
				got = append(got, e.ip())
			}
			check("ingress", got, remote, pod)
		})
	}
}
