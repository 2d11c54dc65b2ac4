package load

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Port is where a Source sends to: discard (RFC 863).
const Port = 9

// Sink counts the packets of a Source at a device and drops them. What else comes
// in there passes.
type Sink struct {
	counters *counters
	memory   []byte
	fds      []int
}

// counters are shared with the kernel.
type counters struct {
	packets  uint64 // that arrived
	position uint64 // one above the number of the last
}

// NewSink starts to count at a device of the calling thread's namespace.
// tunnelPort is the UDP port of tunnels that may be around the packets.
func NewSink(device string, tunnelPort uint16) (s *Sink, err error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("sink at %s: %w", device, err)
	}
	s = &Sink{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("sink at %s: %w", device, err), s.Close())
		}
	}()
	array, err := newArray(uint32(unsafe.Sizeof(counters{})))
	if err != nil {
		return s, err
	}
	s.fds = append(s.fds, array)
	if s.memory, err = unix.Mmap(array, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return s, fmt.Errorf("map the counters: %w", err)
	}
	s.counters = (*counters)(unsafe.Pointer(&s.memory[0]))
	program, err := loadProgram(sinkProgram(array, tunnelPort))
	if err != nil {
		return s, err
	}
	s.fds = append(s.fds, program)
	attached, err := attach(program, link.Index)
	if err != nil {
		return s, err
	}
	s.fds = append(s.fds, attached)
	return s, nil
}

// Packets is how many packets have arrived.
func (s *Sink) Packets() uint64 { return atomic.LoadUint64(&s.counters.packets) }

// position is one above the number of the packet that arrived last.
func (s *Sink) position() uint64 { return atomic.LoadUint64(&s.counters.position) }

// Close stops counting. The device passes everything again.
func (s *Sink) Close() (err error) {
	for _, fd := range s.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	if s.memory != nil {
		err = errors.Join(err, unix.Munmap(s.memory))
	}
	s.fds, s.memory = nil, nil
	return err
}
