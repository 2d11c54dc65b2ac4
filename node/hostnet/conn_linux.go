package hostnet

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Conn changes and reads the network namespace in which it was opened. Its
// methods may be called from any goroutine and any thread.
type Conn struct {
	namespace *os.File // of Open; nil where /proc is not mounted
	lock      int      // the socket that is the lock, or -1
	announcer announcer
	nft       *nft // guarded by mu

	mu sync.Mutex
	// nl carries requests, one batch at a time: guarded by mu.
	nl *netlink.Conn
	// unknown holds kinds that the kernel does not know: a dump by such a kind
	// would be one of everything. Guarded by mu.
	unknown map[Kind]bool

	// pid is the address of nl: notifications of our own changes carry it.
	pid uint32
	// ours are our links, as far as known: what Watch tells our addresses by.
	ours indexes
}

// indexes is a set of interface indexes.
type indexes struct {
	mu  sync.Mutex
	set map[int]bool
}

func (s *indexes) has(index int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set[index]
}

func (s *indexes) add(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = make(map[int]bool)
	}
	s.set[index] = true
}

func (s *indexes) replace(set map[int]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = set
}

// Open makes a Conn for the network namespace of the calling thread, and takes
// the lock of that namespace: two agents would undo each other's work. The error
// is ErrNotPermitted or ErrInUse where that is the reason.
func Open() (*Conn, error) {
	c, err := open()
	if err != nil {
		return nil, err
	}
	if err := c.checkPrivilege(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.takeLock(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// OpenReadOnly makes a Conn that reads without a privilege, also while an agent
// runs. Apply fails.
func OpenReadOnly() (*Conn, error) { return open() }

// requestBuffer holds the acknowledgements of a batch, with room to spare.
const requestBuffer = 1 << 20

// dumpBuffer is twice what the kernel puts into one datagram at most; it takes
// the size as an invitation.
const dumpBuffer = 64 << 10

func open() (*Conn, error) {
	// The thread must not change under us: what is opened here belongs together.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	nl, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{MessageBufferSize: dumpBuffer})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	c := &Conn{nl: nl, lock: -1, announcer: openAnnouncer(), nft: openNFT(), unknown: make(map[Kind]bool)}
	// Both are improvements that an older kernel may lack: texts in errors, and
	// dumps that the kernel filters. What it does not filter is filtered here.
	_ = nl.SetOption(netlink.ExtendedAcknowledge, true)
	_ = nl.SetOption(netlink.GetStrictCheck, true)
	_ = nl.SetReadBuffer(requestBuffer)
	if c.pid, err = portID(nl); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.namespace, _ = os.Open("/proc/thread-self/ns/net")
	return c, nil
}

// portID is the netlink address of a socket.
func portID(nl *netlink.Conn) (uint32, error) {
	rc, err := nl.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find address of netlink socket: %w", err)
	}
	var sa unix.Sockaddr
	if ctlErr := rc.Control(func(fd uintptr) { sa, err = unix.Getsockname(int(fd)) }); ctlErr != nil {
		err = ctlErr
	}
	if err != nil {
		return 0, fmt.Errorf("find address of netlink socket: %w", err)
	}
	return sa.(*unix.SockaddrNetlink).Pid, nil
}

// Close ends the Conn and gives the lock back. Everything that was applied stays.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.nl.Close()
	err = errors.Join(err, c.nft.close())
	c.announcer.close()
	if c.lock >= 0 {
		err = errors.Join(err, unix.Close(c.lock))
		c.lock = -1
	}
	if c.namespace != nil {
		err = errors.Join(err, c.namespace.Close())
		c.namespace = nil
	}
	return err
}

// checkPrivilege asks for a change of a link that does not exist: the kernel
// looks at the caller's capabilities first.
func (c *Conn) checkPrivilege() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const noIndex = 1<<31 - 1
	err := c.request(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_SETLINK, Flags: netlink.Request | netlink.Acknowledge},
		Data:   linkHeader(noIndex, 0, 0),
	})
	if errors.Is(err, unix.EPERM) {
		return errPermission
	}
	return nil
}

var errPermission = fmt.Errorf("%w: grant the capability NET_ADMIN (securityContext.capabilities.add: [NET_ADMIN], or run as root)", ErrNotPermitted)

func (c *Conn) takeLock() error {
	return c.inNamespace(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("take lock: %w", err)
		}
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: Lock})
		if err == nil {
			c.lock = fd
			return nil
		}
		_ = unix.Close(fd)
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("%w: stop it first (ss -xlp | grep %s shows it)", ErrInUse, Lock)
		}
		return fmt.Errorf("take lock %s: %w", Lock, err)
	})
}

// inNamespace calls f on a thread that is in the namespace of the Conn. In an
// agent every thread is, and then no privilege is needed for it.
func (c *Conn) inNamespace(f func() error) error {
	runtime.LockOSThread()
	if c.namespace == nil || sameNamespace(c.namespace) {
		defer runtime.UnlockOSThread()
		return f()
	}
	runtime.UnlockOSThread()

	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with this goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(c.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// sameNamespace tells whether ns is the calling thread's.
func sameNamespace(ns *os.File) bool {
	var want, have unix.Stat_t
	if unix.Fstat(int(ns.Fd()), &want) != nil || unix.Stat("/proc/thread-self/ns/net", &have) != nil {
		return true
	}
	return want.Dev == have.Dev && want.Ino == have.Ino
}
