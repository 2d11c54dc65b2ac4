package tunnel

import (
	"net/netip"
	"slices"
	"testing"

	"golang.zx2c4.com/wireguard/conn"

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

// TestObserveInside: what is admitted is seen as it goes in, what is not with the
// reason, and what comes from the peer as it comes out.
func TestObserveInside(t *testing.T) {
	overlay := fullBatches(1)
	overlay.read = func(bufs [][]byte, sizes []int, offset int) (int, int, error) {
		for i := range bufs {
			sizes[i] = 1 + copy(bufs[i][offset:], []byte{byte(i), 1, 2, 3})
		}
		sizes[len(bufs)-1] = 0 // nothing
		return len(bufs), 1, nil
	}
	overlay.write = func(bufs [][]byte, offset int) { clear(bufs[0][offset:]) }
	d := newTestTun(t, overlay)
	d.egress.setReachable()
	var got, drops observations
	d.observer.Store(got.observer())
	d.onDrop = *drops.observer()
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	n, err := d.Read(bufs, sizes, 16) // as many as go without a session
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != n-1 {
		t.Errorf("%d observations of %d packets, one of which is empty", len(got), n)
	}
	for i, s := range got {
		if !s.Egress || s.Outside || s.Drop != "" || s.Time.IsZero() || !slices.Equal(s.Bytes, []byte{byte(i), 1, 2, 3, 0}) {
			t.Fatalf("packet %d: %+v", i, s)
		}
	}
	replaceTaken(bufs, sizes[:n])

	got = nil
	n, err = d.Read(bufs, sizes, 16)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range got {
		want := "DropTunnelNoSession"
		if i < 2 { // the gateway's own packet, and a probe
			want = ""
		}
		if !s.Egress || s.Outside || s.Drop != want || !slices.Equal(s.Bytes, []byte{byte(i), 1, 2, 3, 0}) {
			t.Fatalf("packet %d: %+v", i, s)
		}
	}
	if len(got) != n-1 {
		t.Errorf("%d observations of %d packets, one of which is empty", len(got), n)
	}

	if len(drops) != 1 || !drops[0].Egress || drops[0].Drop != "DropTunnelNoSession" || !slices.Equal(drops[0].Bytes, []byte{2, 1, 2, 3, 0}) {
		t.Errorf("of what was dropped: %+v", drops)
	}

	got, drops = nil, nil
	if _, err := d.Read(bufs, sizes, 16); err != nil { // nothing has replaced the buffers: no peer has taken them
		t.Fatal(err)
	}
	if len(drops) == 0 || !drops[0].Egress || drops[0].Drop != dropNoPeer {
		t.Errorf("of what no peer claims: %+v", drops)
	}

	got = nil
	if _, err := d.Write([][]byte{append(make([]byte, 16), 1, 2, 3)}, 16); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Egress || got[0].Outside || !slices.Equal(got[0].Bytes, []byte{1, 2, 3}) {
		t.Errorf("from the peer: %+v", got)
	}
}

// TestObserveOutside: messages are seen with the addresses of the socket and the other
// end, and what is none with the reason.
func TestObserveOutside(t *testing.T) {
	peer, local := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("127.0.0.1:51820")
	b, receive := newTestBind(t, &funcSocket{
		write: func(ds []underlay.Datagram) (int, error) { return len(ds), nil },
		read: func(bufs [][]byte, sizes []int, from []underlay.Origin) (int, error) {
			sizes[0], from[0].Addr = copy(bufs[0], message(typeTransport, 60)), peer
			sizes[1], from[1].Addr = copy(bufs[1], "no message"), peer
			return 2, nil
		},
	})
	var got, drops observations
	b.observer.Store(got.observer())
	b.onDrop = *drops.observer()
	ep, _ := b.ParseEndpoint(peer.String())
	if err := b.Send([][]byte{message(typeTransport, 40), message(typeTransport, 50)}, ep); err != nil {
		t.Fatal(err)
	}
	bufs, sizes := batchBuffers(), make([]int, BatchSize)
	if _, err := receive(bufs, sizes, make([]conn.Endpoint, BatchSize)); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		egress bool
		size   int
		drop   string
	}{{true, 40, ""}, {true, 50, ""}, {false, 60, ""}, {false, 10, "DropTunnelMalformed"}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if s := got[i]; s.Egress != w.egress || !s.Outside || len(s.Bytes) != w.size || s.Drop != w.drop || s.Local != local || s.Remote != peer || s.Time.IsZero() {
			t.Errorf("message %d: %+v", i, s)
		}
	}

	if _, err := receive(bufs, sizes, make([]conn.Endpoint, BatchSize)); err != nil { // nobody has taken the first
		t.Fatal(err)
	}
	for i, w := range []struct {
		size int
		drop string
	}{{10, dropMalformed}, {60, dropUnknownSession}, {10, dropMalformed}} {
		if len(drops) != 3 {
			t.Fatalf("dropped: %+v", drops)
		}
		if s := drops[i]; s.Egress || !s.Outside || len(s.Bytes) != w.size || s.Drop != w.drop || s.Local != local || s.Remote != peer {
			t.Errorf("dropped %d: %+v", i, s)
		}
	}
}

// TestObserveEnds: nobody is shown anything after the end.
func TestObserveEnds(t *testing.T) {
	tun, err := New(Options{Overlay: fullBatches(0), Listen: newMemNet().listen("192.0.2.1"), MaxInFlight: testInFlight})
	if err != nil {
		t.Fatal(err)
	}
	tun.egress.setReachable()
	var got observations
	tun.Observe(*got.observer())
	if tun.tun.observer.Load() == nil || tun.bind.observer.Load() == nil {
		t.Error("there is no observer")
	}
	tun.Observe(nil)
	if _, err := tun.tun.Read(batchBuffers(), make([]int, BatchSize), 16); err != nil || len(got) > 0 {
		t.Errorf("%d observations, %v", len(got), err)
	}
	if tun.tun.observer.Load() != nil || tun.bind.observer.Load() != nil {
		t.Error("there is a observer")
	}
}
