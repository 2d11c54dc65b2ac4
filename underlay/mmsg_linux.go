package underlay

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxMessages is how many messages one system call carries at most. wireguard-go's
	// batches are of this size; the kernel's limit is 1024 (UIO_MAXIOV).
	maxMessages = 128

	// controlLen holds the control messages that can arrive or be sent with one message: the
	// size of segments, an IPv6 address of ours, and a traffic class.
	controlLen = 96

	nameLen = unix.SizeofSockaddrInet6 // the larger of the two families
)

// mmsghdr is the kernel's struct mmsghdr, recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32 // bytes received or sent
}

// mmsgFunc is recvmmsg or sendmmsg: it returns how many of msgs, which are not empty, were
// transferred, or why not even the first was. A function value, so that tests
// can stand in for a kernel that errs.
type mmsgFunc func(fd uintptr, msgs []mmsghdr) (int, syscall.Errno)

// Neither recvmmsg nor sendmmsg tells the runtime of the system call. It would take the
// processor away from a goroutine that makes many long ones, hand it to another thread,
// and watch for that every 20 microseconds: a fifth of what a gateway spends on a
// stream. They never wait, and what the kernel does meanwhile takes less than a garbage
// collector may be kept waiting.

func recvmmsg(fd uintptr, msgs []mmsghdr) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

func sendmmsg(fd uintptr, msgs []mmsghdr) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
