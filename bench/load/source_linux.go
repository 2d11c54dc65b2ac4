package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Source sends UDP to Port of an address. Its packets are numbered in their first
// eight bytes, in this machine's order, from 1.
type Source struct {
	cfg     SourceConfig
	sockets []int
	super   []byte // one super-packet
	next    uint64 // number of the next packet
}

// SourceConfig says what a Source sends.
type SourceConfig struct {
	To netip.Addr
	// Size is the payload of a packet, at least MinSize.
	Size int
	// Flows is how many there are, by source port, which take turns by super-packets.
	Flows int
	// Window is the most that is under way, in packets.
	Window int
}

// MinSize keeps a packet's payload larger than a tunnel's header; see Sink.
const MinSize = 64

const (
	// maxSegments is what every kernel with UDP_SEGMENT takes (UDP_MAX_SEGMENTS).
	maxSegments = 64
	// maxSuper is a UDP datagram's longest payload in IPv4.
	maxSuper = 65507
	// pause is how long the Source sleeps when the window is full: short against the
	// time in which the path empties it, long against what waking up costs.
	pause = 200 * time.Microsecond
	// stall without anything arriving means that all that is under way is lost.
	stall = 10 * time.Millisecond
)

// NewSource makes the sockets in the calling thread's namespace.
func NewSource(cfg SourceConfig) (*Source, error) {
	if cfg.Size < MinSize || cfg.Size > maxSuper || !cfg.To.Is4() {
		return nil, fmt.Errorf("source: payload of %d bytes to %s: want IPv4 and %d to %d bytes", cfg.Size, cfg.To, MinSize, maxSuper)
	}
	s := &Source{cfg: cfg, super: make([]byte, min(maxSegments, maxSuper/cfg.Size)*cfg.Size), next: 1}
	for range max(1, cfg.Flows) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			s.sockets = append(s.sockets, fd)
			err = errors.Join(
				unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, cfg.Size),
				unix.Connect(fd, &unix.SockaddrInet4{Port: Port, Addr: cfg.To.As4()}))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("source to %s: %w", cfg.To, err), s.Close())
		}
	}
	return s, nil
}

// Close closes the sockets.
func (s *Source) Close() (err error) {
	for _, fd := range s.sockets {
		err = errors.Join(err, unix.Close(fd))
	}
	s.sockets = nil
	return err
}

// Flow is what a Source has done.
type Flow struct {
	Sent, Arrived uint64 // packets
	Elapsed       time.Duration
	// CPU is what the sending thread took, with what the kernel did in its system
	// calls: that is the way to the first queue.
	CPU time.Duration
	// Stalls is how often nothing arrived for so long that all that was under way
	// was given up, and as much was sent once more.
	Stalls int
}

// Run sends for a while, as much as arrives at the sink. It is not for two
// goroutines at once.
func (s *Source) Run(sink *Sink, duration time.Duration) (f Flow, err error) {
	runtime.LockOSThread() // for its processor time
	defer runtime.UnlockOSThread()
	used, start := threadCPU(), time.Now()
	arrived, first := sink.Packets(), s.next
	w := newWindow(s.cfg.Window, len(s.super)/s.cfg.Size, s.next, arrived)
	for turn := 0; ; {
		now := time.Now()
		if now.Sub(start) >= duration {
			break
		}
		if !w.open(s.next, sink, now) {
			if err := unix.Nanosleep(&unix.Timespec{Nsec: int64(pause)}, nil); err != nil && !errors.Is(err, unix.EINTR) {
				return f, err
			}
			continue
		}
		if err := s.send(s.sockets[turn]); err != nil {
			return f, err
		}
		turn = (turn + 1) % len(s.sockets)
	}
	return Flow{Sent: s.next - first, Arrived: sink.Packets() - arrived, Elapsed: time.Since(start), CPU: threadCPU() - used, Stalls: w.stalls}, nil
}

// send sends one super-packet.
func (s *Source) send(fd int) error {
	for at := 0; at < len(s.super); at += s.cfg.Size {
		binary.NativeEndian.PutUint64(s.super[at:], s.next)
		s.next++
	}
	for {
		_, err := unix.Write(fd, s.super)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
			return nil // an ICMP error about an earlier packet, which did not arrive
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOBUFS):
			return nil // dropped on this host, which is a loss like any other
		default:
			return err
		}
	}
}

// threadCPU is the processor time of the calling thread.
func threadCPU() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
