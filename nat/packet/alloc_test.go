package packet_test

import (
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

func TestViewDoesNotAllocate(t *testing.T) {
	if packettest.Race {
		t.Skip("the race detector allocates")
	}
	for _, s := range []packettest.Spec{
		spec4(packet.ProtoTCP, syn), spec6(packet.ProtoTCP, syn),
		unreachable(spec4(packet.ProtoUDP, udp), 28), unreachable(spec6(packet.ProtoUDP, udp), 48),
	} {
		b := s.Bytes()
		// Everything that the tests call on a packet, hop limit and all.
		if n := testing.AllocsPerRun(100, func() { exercise(b) }); n != 0 {
			t.Errorf("%+v: %v allocations", s, n)
		}
	}
}
