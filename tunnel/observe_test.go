package tunnel

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/underlay"
)

// observations collects what an observer is shown.
type observations []Observation

func (s *observations) observer() *func(Observation) {
	f := func(x Observation) {
		x.Bytes = slices.Clone(x.Bytes)
		*s = append(*s, x)
	}
	return &f
}

// TestObserveOutside: messages are seen with the addresses of the socket and the other
// end, and what is none with the reason.
func TestObserveOutside(t *testing.T) {
	peer, local := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("127.0.0.1:51820")
	r, _ := newTestReceiver(t, &funcSocket{
		write: func(ds []underlay.Datagram) (int, error) { return len(ds), nil },
		read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
			sizes[0], from[0].Addr = copy(bufs[0], message(typeTransport, 60)), peer
			sizes[1], from[1].Addr = copy(bufs[1], "no message"), peer
			return 2, nil
		},
	})
	var got, drops observations
	r.observer.Store(got.observer())
	r.onDrop = *drops.observer()
	ep, _ := r.ParseEndpoint(peer.String())
	if err := r.SendMarked([][]byte{message(typeTransport, 40), message(typeTransport, 50)}, nil, ep); err != nil {
		t.Fatal(err)
	}
	receiveOnce(t, r)
	type seen struct {
		egress bool
		size   int
		drop   string
	}
	check := func(what string, got observations, want ...seen) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %+v", what, got)
		}
		for i, w := range want {
			if s := got[i]; s.Egress != w.egress || !s.Outside || len(s.Bytes) != w.size || s.Drop != w.drop || s.Local != local || s.Remote != peer {
				t.Errorf("%s, %d: %+v", what, i, s)
			}
		}
	}
	check("seen", got, seen{true, 40, ""}, seen{true, 50, ""}, seen{false, 60, ""}, seen{false, 10, "DropTunnelMalformed"})
	check("dropped", drops, seen{false, 60, "DropTunnelUnknownSession"}, seen{false, 10, "DropTunnelMalformed"})
}

// TestObserveEnds: nobody is shown anything after the end.
func TestObserveEnds(t *testing.T) {
	a, b := newPair(t, newMemNet())
	var all seen
	a.Observe(all.observe)
	cross(t, a, b, 1)
	a.Observe(nil)
	cross(t, a, b, 2)
	if got := all.of(""); !slices.Equal(got, []uint32{1}) {
		t.Errorf("packets %v were seen", got)
	}
}
