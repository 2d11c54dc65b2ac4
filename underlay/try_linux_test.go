package underlay

import (
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// While one waits for the send buffer another sends what goes, and drops what does not.
func TestTryWriteBatchDoesNotWait(t *testing.T) {
	a := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0), GSO: true})
	b := open(t, Config{Addr: netip.AddrPortFrom(loopback4, 0)})
	full, once := make(chan struct{}), sync.Once{}
	a.writers[0].sendmmsg = func(uintptr, []mmsghdr) (int, syscall.Errno) {
		once.Do(func() { close(full) })
		return 0, unix.EAGAIN
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := a.WriteBatch([]Datagram{{Addr: b.LocalAddr(), Body: []byte("waits")}})
		waiting <- err
	}()
	<-full
	ds := to(b.LocalAddr(), 1000, 1000, 7)
	if sent, err := a.TryWriteBatch(ds); sent != len(ds) || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	readN(t, b, newBatch(8, 2048), len(ds))

	a.try.sendmmsg = func(uintptr, []mmsghdr) (int, syscall.Errno) { return 0, unix.EAGAIN }
	if sent, err := a.TryWriteBatch(ds); sent != 0 || err != nil {
		t.Errorf("into a full buffer: sent %d, %v", sent, err)
	}
	if s := a.Stats(); s.WriteErrors != 3 || s.WriteDatagrams != 3 || s.LastWriteError != unix.EAGAIN.Error() {
		t.Errorf("%+v", s)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waiting; err == nil {
		t.Error("the other one ends without an error although the socket was closed")
	}
	if _, err := a.TryWriteBatch(ds); err == nil {
		t.Error("a closed socket sends")
	}
}
