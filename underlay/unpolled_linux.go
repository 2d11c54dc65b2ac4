package underlay

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpolled is a syscall.RawConn that the runtime's poller does not know: waiting
// blocks the thread.
type unpolled struct {
	fd     int
	closed atomic.Bool
	// mu is held for reading while fd is in use.
	mu sync.RWMutex
}

// unpoll takes the socket out of c, which is closed, also on error.
func unpoll(c *net.UDPConn) (*unpolled, error) {
	raw, err := c.SyscallConn()
	u := &unpolled{fd: -1}
	if err == nil {
		// The duplicate shares everything but the registration with the poller.
		ctlErr := raw.Control(func(fd uintptr) { u.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, ctlErr)
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, fmt.Errorf("take the socket from the poller: %w", err)
	}
	return u, nil
}

func (u *unpolled) Control(f func(fd uintptr)) error {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.closed.Load() {
		return net.ErrClosed
	}
	f(uintptr(u.fd))
	return nil
}

func (u *unpolled) Read(f func(fd uintptr) bool) error  { return u.wait(f, unix.POLLIN) }
func (u *unpolled) Write(f func(fd uintptr) bool) error { return u.wait(f, unix.POLLOUT) }

// closedCheck is how long a wait lasts before it looks whether the socket was closed.
const closedCheck = 100 // milliseconds

func (u *unpolled) wait(f func(fd uintptr) bool, events int16) error {
	u.mu.RLock()
	defer u.mu.RUnlock()
	for !u.closed.Load() {
		if f(uintptr(u.fd)) {
			return nil
		}
		fds := [1]unix.PollFd{{Fd: int32(u.fd), Events: events}}
		if _, err := unix.Poll(fds[:], closedCheck); err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("wait for the socket: %w", err)
		}
	}
	return net.ErrClosed
}

func (u *unpolled) Close() error {
	if u.closed.Swap(true) {
		return net.ErrClosed
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return unix.Close(u.fd)
}
