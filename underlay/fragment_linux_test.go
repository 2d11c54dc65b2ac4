package underlay

import (
	"net/netip"
	"testing"
)

// With Don't Fragment a datagram that is too large for the link does not leave, and
// without it leaves in pieces, as from the start.
func TestDontFragment(t *testing.T) {
	for _, listen := range []netip.Addr{loopback4, loopback6, {}} {
		t.Run(listen.String(), func(t *testing.T) {
			a, b := listenInNamespace(t, 1400, Config{Addr: netip.AddrPortFrom(listen, 0), GSO: true})
			bufs, sizes, from := [][]byte{make([]byte, MaxDatagram)}, make([]int, 1), make([]Origin, 1)
			write := func(to netip.Addr, size int) int {
				t.Helper()
				sent, err := a.WriteBatch([]Datagram{{Addr: netip.AddrPortFrom(to, b.LocalAddr().Port()), Body: make([]byte, size)}})
				if err != nil {
					t.Fatal(err)
				}
				for range sent {
					if n, err := b.ReadBatch(bufs, sizes, from); n != 1 || err != nil || sizes[0] != size {
						t.Fatalf("%d datagrams of %d bytes, %v; want one of %d", n, sizes[0], err, size)
					}
				}
				return sent
			}
			to := []netip.Addr{listen}
			if !listen.IsValid() {
				to = []netip.Addr{loopback4, loopback6}
			}
			for _, on := range []bool{false, true, false} {
				if err := a.SetDontFragment(on); err != nil {
					t.Fatal(err)
				}
				for _, to := range to {
					if sent := write(to, 1300); sent != 1 {
						t.Errorf("to %v, Don't Fragment %v: a small datagram does not leave: %+v", to, on, a.Stats())
					}
					want := 1
					if on {
						want = 0
					}
					if sent := write(to, 3000); sent != want {
						t.Errorf("to %v, Don't Fragment %v: %d large datagrams left, want %d: %+v", to, on, sent, want, a.Stats())
					}
				}
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if err := a.SetDontFragment(true); err == nil {
				t.Error("no error after Close")
			}
		})
	}
}
