package plane

import (
	"errors"
	"net"
	"net/rpc"
	"sync"
)

// Serve lends control planes to those who connect, until the listener closes; then it
// ends all of them, also those that are being reset.
func (p *Pool) Serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		go p.serve(conn)
	}
	p.mu.Lock()
	p.close() // under the lock: no reset begins after it
	p.mu.Unlock()
	p.wg.Wait()
	for _, pl := range p.planes {
		pl.Stop()
	}
}

// serve lends one control plane to one who connected, as long as the connection lasts.
func (p *Pool) serve(conn net.Conn) {
	s := &session{pool: p}
	server := rpc.NewServer()
	if err := server.RegisterName(service, s); err != nil {
		panic(err) // the methods of session are not what net/rpc wants
	}
	server.ServeConn(conn)
	s.mu.Lock() // a call may still run
	defer s.mu.Unlock()
	if s.plane != nil {
		p.giveBack(s.plane)
	}
}

const service = "ControlPlane"

// session is what one connection may call.
type session struct {
	pool *Pool

	mu    sync.Mutex
	plane *Plane
}

var errNotLent = errors.New("no control plane is lent")

// Lease lends a control plane.
func (s *session) Lease(b Baseline, reply *Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane != nil {
		return errors.New("a connection is lent one control plane")
	}
	pl, err := s.pool.lease(b)
	if err == nil {
		s.plane, *reply = pl, pl.Access
	}
	return err
}

// StopAPIServer kills the kube-apiserver.
func (s *session) StopAPIServer(struct{}, *struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane == nil {
		return errNotLent
	}
	s.plane.StopAPIServer()
	return nil
}

// StartAPIServer starts it again.
func (s *session) StartAPIServer(struct{}, *struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plane == nil {
		return errNotLent
	}
	return s.plane.RestartAPIServer()
}

// Lease is a control plane that was lent. Close gives it back.
type Lease struct {
	Access
	*rpc.Client
}

// Dial is lent a control plane by the pool at a socket.
func Dial(socket string, b Baseline) (*Lease, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	l := &Lease{Client: rpc.NewClient(conn)}
	if err := l.Call(service+".Lease", b, &l.Access); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// StopAPIServer kills the kube-apiserver.
func (l *Lease) StopAPIServer() error {
	return l.Call(service+".StopAPIServer", struct{}{}, new(struct{}))
}

// StartAPIServer starts it again with the same data, address and certificates, and
// waits until it is ready.
func (l *Lease) StartAPIServer() error {
	return l.Call(service+".StartAPIServer", struct{}{}, new(struct{}))
}
