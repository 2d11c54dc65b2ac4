package load

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// exchangeTimeout bounds every wait for the other end.
const exchangeTimeout = 5 * time.Second

// Server answers requests of an Exchange.
type Server struct {
	fd   int
	work sync.WaitGroup
}

// NewServer listens on a port in the calling thread's namespace. Sockets here
// block, for waking up by way of Go's poller would be a good part of what is
// measured.
func NewServer(port uint16) (*Server, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}),
		unix.Listen(fd, unix.SOMAXCONN))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on TCP port %d: %w", port, err), unix.Close(fd))
	}
	s := &Server{fd: fd}
	s.work.Go(s.accept)
	return s, nil
}

// Close ends the server when the conversations have ended.
func (s *Server) Close() error {
	err := unix.Shutdown(s.fd, unix.SHUT_RDWR) // which wakes accept
	s.work.Wait()
	return errors.Join(err, unix.Close(s.fd))
}

func (s *Server) accept() {
	for {
		fd, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		case err != nil:
			return
		default:
			s.work.Go(func() { answer(fd) })
		}
	}
}

// The first byte of a request says whether more will follow.
const (
	more byte = iota
	last
)

// answer echoes requests of one connection. The server closes first, so that it is
// not the client whose ports have to wait.
func answer(fd int) {
	defer unix.Close(fd)
	if setUp(fd) != nil {
		return
	}
	b := make([]byte, 1)
	for {
		if n, err := read(fd, b); err != nil || n == 0 {
			return
		}
		if write(fd, b) != nil || b[0] == last {
			return
		}
	}
}

// Exchange is requests and responses of one byte over TCP.
type Exchange struct {
	To netip.AddrPort
	// Clients do it at the same time, at least one.
	Clients int
	// Reconnect makes a connection for each.
	Reconnect bool
	Duration  time.Duration
}

// Exchanged is what an Exchange has done.
type Exchanged struct {
	PerSecond float64
	// Took is how long each took, in ascending order.
	Took []time.Duration
}

// Run takes the client's side. inside runs a function on a thread of its own in
// the client's namespace.
func (e Exchange) Run(inside func(func() error) error) (Exchanged, error) {
	var mu sync.Mutex // guards what follows
	var took []time.Duration
	var failure error
	var work sync.WaitGroup
	start := time.Now()
	for range max(1, e.Clients) {
		work.Go(func() {
			var mine []time.Duration
			err := inside(func() (err error) {
				mine, err = e.client(start.Add(e.Duration))
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			took, failure = append(took, mine...), errors.Join(failure, err)
		})
	}
	work.Wait()
	elapsed := time.Since(start)
	if failure != nil {
		return Exchanged{}, fmt.Errorf("exchange with %s: %w", e.To, failure)
	}
	slices.Sort(took)
	return Exchanged{PerSecond: float64(len(took)) / elapsed.Seconds(), Took: took}, nil
}

// client exchanges until end, at least once, and returns how long each took.
func (e Exchange) client(end time.Time) (took []time.Duration, err error) {
	fd := -1
	defer func() {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for start := time.Now(); len(took) == 0 || start.Before(end); {
		if fd < 0 {
			if fd, err = dial(e.To); err != nil {
				return took, err
			}
			if !e.Reconnect {
				start = time.Now()
			}
		}
		if err := ask(fd, e.Reconnect); err != nil {
			return took, err
		}
		if e.Reconnect {
			if err := unix.Close(fd); err != nil {
				return took, err
			}
			fd = -1
		}
		now := time.Now()
		took, start = append(took, now.Sub(start)), now
	}
	return took, nil
}

// ask makes one exchange. The last of a connection ends with the server's end.
func ask(fd int, isLast bool) error {
	b := []byte{more}
	if isLast {
		b[0] = last
	}
	if err := write(fd, b); err != nil {
		return err
	}
	if n, err := read(fd, b); err != nil || n == 0 {
		return errors.Join(errors.New("no response"), err)
	}
	if isLast {
		if n, err := read(fd, b); err != nil || n != 0 {
			return errors.Join(errors.New("no end of the connection"), err)
		}
	}
	return nil
}

func dial(to netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	address := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	if err := errors.Join(setUp(fd), unix.Connect(fd, address)); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// setUp sets a connection up: it sends at once and waits for exchangeTimeout.
func setUp(fd int) error {
	limit := unix.NsecToTimeval(int64(exchangeTimeout))
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
}

func read(fd int, b []byte) (n int, err error) {
	for {
		if n, err = unix.Read(fd, b); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func write(fd int, b []byte) error {
	for {
		if _, err := unix.Write(fd, b); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
