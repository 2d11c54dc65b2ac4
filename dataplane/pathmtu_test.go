package dataplane_test

import (
	"encoding/binary"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/dataplanetest"
)

// Somebody behind the peer's gateway cannot take what the tunnel can. The sender
// is told, but its kernel goes on handing over super-segments, which look the
// same as before.
func TestSuperSegmentsFitTheReportedPathMTU(t *testing.T) {
	for _, tt := range []struct {
		name     string
		reported uint16
		want     int // the largest packet afterwards
	}{
		{"smaller than the tunnel's", 1200, 1200},
		{"larger than the tunnel's", 1400, 1340},
		{"smaller than any link's", 68, 1340},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, nil)
			segment := dataplanetest.Build(dataplanetest.Packet{
				Proto: packet.ProtoTCP, Src: port(localPod, 1000), Dst: port(remoteInside, 80),
				DontFragment: true, TCPFlags: packet.TCPAck, Payload: make([]byte, 20000),
			})
			h.ipFromNode(0, segment)
			sent := h.egress()
			if got := largest(sent); got != 1340 {
				t.Fatalf("the largest of %d packets has %d bytes, want 1340", len(sent), got)
			}

			e := dataplanetest.Build(dataplanetest.Packet{
				Proto: packet.ProtoICMP, ICMPType: 3, Src: port(remoteOutside, 0), Dst: port(localPod, 0),
				Payload: sent[0][:28],
			})
			setFragmentationNeeded(e, tt.reported)
			h.ingress(e)
			h.ipFromNode(0, segment)
			if got := largest(h.egress()); got != tt.want {
				t.Errorf("the largest packet has %d bytes, want %d", got, tt.want)
			}
		})
	}
}

func largest(packets [][]byte) (n int) {
	for _, p := range packets {
		n = max(n, len(p))
	}
	return n
}

// setFragmentationNeeded turns an ICMP message without options into the error.
func setFragmentationNeeded(b []byte, mtu uint16) {
	icmp := b[packet.IPv4HeaderLen:]
	icmp[1] = 4
	binary.BigEndian.PutUint16(icmp[6:], mtu)
	binary.BigEndian.PutUint16(icmp[2:], 0)
	binary.BigEndian.PutUint16(icmp[2:], ^packet.Sum(icmp, 0))
}
