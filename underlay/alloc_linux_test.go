package underlay

import (
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/packettest"
)

func TestBatchesDoNotAllocate(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	for _, addr := range []netip.Addr{loopback4, loopback6, {}} {
		for _, offload := range []bool{false, true} {
			a, b := loopPair(t, addr, offload, offload)
			port := b.LocalAddr().Port()
			dst := addr
			if !addr.IsValid() {
				dst = loopback4
			}
			ds := concat(
				to(netip.AddrPortFrom(dst, port), repeat(45, 1452)...),
				to(netip.AddrPortFrom(dst, port), 32, 1452, 96, 96, 96),
			)
			bufs := newBatch(128, MaxDatagram)
			exchange := func() {
				if sent, err := a.WriteBatch(ds); sent != len(ds) || err != nil {
					t.Fatalf("sent %d, %v", sent, err)
				}
				for got := 0; got < len(ds); {
					n, err := b.ReadBatch(bufs.bufs, bufs.sizes, bufs.from)
					if err != nil {
						t.Fatal(err)
					}
					got += n
				}
			}
			exchange() // makes the spare buffers
			if n := testing.AllocsPerRun(100, exchange); n != 0 {
				t.Errorf("address %v, offloads %v: %v allocations per batch", addr, offload, n)
			}
		}
	}
}

func TestReplaysDoNotAllocate(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	k := &fakeSender{}
	w := newWriter(k)
	w.sendmmsg = func(_ uintptr, msgs []mmsghdr) (int, syscall.Errno) {
		if msgs[0].hdr.Controllen != 0 {
			return 0, unix.ENOBUFS
		}
		return 1, 0
	}
	ds := to(nodeA, repeat(45, 1452)...)
	if n := testing.AllocsPerRun(100, func() {
		if sent, err := write(w, ds); sent != 45 || err != nil {
			t.Fatalf("sent %d, %v", sent, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per replay", n)
	}
}

func TestWakesDoNotAllocateForABusyReader(t *testing.T) {
	if packettest.Race {
		t.Skip("NOT CHECKED under the race detector, which allocates itself; the run without it checks")
	}
	c := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	b := newBatch(1, 100)
	if n := testing.AllocsPerRun(100, func() {
		c.Wake()
		if _, err := c.ReadBatch(b.bufs, b.sizes, b.from); err != ErrWoken {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per wake", n)
	}
}
