package underlay

import (
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/test/source"
)

// listenInNamespace makes two sockets in a fresh network namespace whose loopback
// has the given MTU. They stay in it, whoever uses them, and keep it alive.
func listenInNamespace(t *testing.T, mtu uint32, cfg Config) (a, b *Conn) {
	t.Helper()
	source.NeedRoot(t)
	var errNamespace, errListen error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked, so that the thread ends with this goroutine: it is of no use to others.
		runtime.LockOSThread()
		if errNamespace = unix.Unshare(unix.CLONE_NEWNET); errNamespace != nil {
			return
		}
		if errListen = loopbackUp(mtu); errListen != nil {
			return
		}
		if a, errListen = Listen(cfg); errListen != nil {
			return
		}
		if b, errListen = Listen(cfg); errListen != nil {
			_ = a.Close()
		}
	}()
	<-done
	if errNamespace != nil {
		source.Lacks(t, "it needs the right to make a network namespace: %v", errNamespace)
	}
	if errListen != nil {
		t.Fatal(errListen)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// loopbackUp sets lo up with an MTU in the thread's namespace.
func loopbackUp(mtu uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint32(mtu)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFMTU, ifr); err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOOPBACK)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// Runs whose segments exceed the MTU arrive all the same, fragmented here, and
// do not cost runs whose segments fit the offload.
func TestRunsAboveTheMTU(t *testing.T) {
	for _, addr := range []netip.Addr{loopback4, loopback6} {
		t.Run(addr.String(), func(t *testing.T) {
			a, b := listenInNamespace(t, 1400, Config{Addr: netip.AddrPortFrom(addr, 0), GSO: true, GRO: true})
			testRunsAboveTheMTU(t, a, b)
		})
	}
}

func testRunsAboveTheMTU(t *testing.T, a, b *Conn) {
	bufs := newBatch(128, MaxDatagram)
	exchange := func(ds []Datagram) Stats {
		if sent, err := a.WriteBatch(ds); sent != len(ds) || err != nil {
			t.Errorf("sent %d of %d, %v", sent, len(ds), err)
		}
		got := readN(t, b, bufs, len(ds))
		for i := range got {
			got[i].addr = ds[i].Addr
		}
		if d := diff(got, asReceived(ds)); d != "" {
			t.Errorf("datagrams (-want +got):\n%s", d)
		}
		return a.Stats()
	}

	above, fits := to(b.LocalAddr(), repeat(20, 1452)...), to(b.LocalAddr(), repeat(20, 1300)...)
	if s := exchange(above); s.WriteReplays != 1 || s.WriteRuns != 0 {
		t.Errorf("first run above the MTU: %d replays and %d runs, want 1 and 0", s.WriteReplays, s.WriteRuns)
	}
	if s := exchange(above); s.WriteReplays != 1 {
		t.Errorf("second run above the MTU: %d replays, want no further one", s.WriteReplays)
	}
	if s := exchange(fits); s.WriteRuns != 1 || !s.GSO || s.WriteErrors != 0 {
		t.Errorf("run that fits: %d runs, GSO %v, %d errors, want 1, on, 0", s.WriteRuns, s.GSO, s.WriteErrors)
	}
}
