package kubernetes

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// snapLength is how much of a frame is kept: all headers, and some of what they
// carry.
const snapLength = 4 << 10

// sniffer keeps the frames that pass a link in a network namespace.
type sniffer struct {
	file *os.File
	done sync.WaitGroup

	mu     sync.Mutex
	frames []frame
}

// frame is what passed, and when it was read.
type frame struct {
	at   time.Time
	data []byte
}

// sniff begins to keep what passes a link, both ways, until the test ends.
func sniff(t *testing.T, in place, device string) *sniffer {
	t.Helper()
	s := new(sniffer)
	err := in.Do(func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8 // in network order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
		if err != nil {
			return err
		}
		s.file = os.NewFile(uintptr(fd), "frames of "+device)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	})
	if err != nil {
		t.Fatalf("capture on %s: %v", device, err)
	}
	s.done.Go(s.run)
	t.Cleanup(func() {
		s.file.Close()
		s.done.Wait()
	})
	return s
}

func (s *sniffer) run() {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.file.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue // the link went down
		}
		s.mu.Lock()
		s.frames = append(s.frames, frame{time.Now(), bytes.Clone(buf[:min(n, snapLength)])})
		s.mu.Unlock()
	}
}

// all are the frames so far.
func (s *sniffer) all() []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames
}

// packets returns the frames so far that want takes.
func (s *sniffer) packets(want func(gopacket.Packet) bool) (found []gopacket.Packet) {
	for _, f := range s.all() {
		if p := gopacket.NewPacket(f.data, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: false, NoCopy: true}); want(p) {
			found = append(found, p)
		}
	}
	return found
}
