package limit

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socketBuffer is what is asked for each way: as the gateway does.
const socketBuffer = 7 << 20

// mmsghdr is the kernel's struct mmsghdr, recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// control is room for one control message with a word of data, cmsg(3).
type control struct {
	hdr  unix.Cmsghdr
	data [8]byte
}

// socket is a blocking UDP socket.
type socket struct {
	fd     int
	alone  bool // see Config
	closed atomic.Bool
}

// listen opens a socket, with runs of datagrams (GRO) or without.
func listen(addr netip.AddrPort, gro bool) (*socket, error) {
	domain := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: addr.Addr().As16(), Port: int(addr.Port())}
	if addr.Addr().Is4() {
		domain, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	for _, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketBuffer) // as much as the system grants
	}
	if gro {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listen on %v: %w", addr, err)
	}
	return &socket{fd: fd}, nil
}

// shut ends a blocked receive.
func (s *socket) shut() {
	s.closed.Store(true)
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // it says that nothing is connected, and wakes who waits
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// localPort is the port, for a test that asked for any.
func (s *socket) localAddr() netip.AddrPort {
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// sockaddr is room for an address of either family.
type sockaddr = unix.RawSockaddrInet6

// addrPort reads what the kernel wrote into s.
func addrPort(s *sockaddr) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&s.Port))[:]) // at the same place in both families
	if s.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(s)).Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), port)
}

// putSockaddr writes a into s and returns its length.
func putSockaddr(s *sockaddr, a netip.AddrPort) uint32 {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s.Port))[:], a.Port())
	if a.Addr().Is4() {
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(s))
		s4.Family, s4.Addr = unix.AF_INET, a.Addr().As4()
		return unix.SizeofSockaddrInet4
	}
	s.Family, s.Addr = unix.AF_INET6, a.Addr().As16()
	return unix.SizeofSockaddrInet6
}

// call makes a system call that waits if it has to.
//
// Go's scheduler is not told of one that does not wait: it would take the
// processor away and watch over it. Where the process does nothing else, it is
// not told of those that wait either; nothing may have to stop all threads then,
// like a garbage collection.
func (s *socket) call(number uintptr, msgs []mmsghdr, flags uintptr) (int, syscall.Errno) {
	fd, first, count := uintptr(s.fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs))
	for {
		if !s.alone {
			flags |= unix.MSG_DONTWAIT
		}
		n, _, errno := unix.RawSyscall6(number, fd, first, count, flags, 0, 0)
		if errno == unix.EAGAIN {
			n, _, errno = unix.Syscall6(number, fd, first, count, flags&^unix.MSG_DONTWAIT, 0, 0)
		}
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
