package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// backlog bounds, per listener, the connections that nobody has accepted yet
// and the half-open ones; above it SYN cookies are used.
const backlog = 128

// ListenTCP announces a TCP listener. An unspecified address means every
// address of the stack, later ones included ("::" takes IPv4 as well); port
// zero picks a free one.
func (s *Stack) ListenTCP(addr netip.AddrPort) (net.Listener, error) {
	addr = unmap(addr)
	var wq waiter.Queue
	ep, err := s.bind(tcp.ProtocolNumber, addr, &wq)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: err}
	}
	if err := ep.Listen(backlog); err != nil {
		ep.Close()
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: toError(err)}
	}
	return &listener{TCPListener: gonet.NewTCPListener(s.stack, &wq, ep), stack: s}, nil
}

// ListenUDP opens a UDP socket. Addresses are as in ListenTCP.
func (s *Stack) ListenUDP(addr netip.AddrPort) (net.PacketConn, error) {
	addr = unmap(addr)
	var wq waiter.Queue
	ep, err := s.bind(udp.ProtocolNumber, addr, &wq)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "udp", Addr: net.UDPAddrFromAddrPort(addr), Err: err}
	}
	return &packetConn{UDPConn: gonet.NewUDPConn(&wq, ep), stack: s, is4: addr.Addr().Is4()}, nil
}

// DialTCP connects from laddr to raddr. A zero laddr lets the stack choose; one
// with port zero fixes the address only.
func (s *Stack) DialTCP(ctx context.Context, laddr, raddr netip.AddrPort) (net.Conn, error) {
	laddr, raddr = unmap(laddr), unmap(raddr)
	ep, wq, err := s.connect(ctx, tcp.ProtocolNumber, laddr, raddr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(raddr), Err: err}
	}
	return gonet.NewTCPConn(wq, ep), nil
}

// DialUDP opens a UDP socket from laddr, chosen as in DialTCP, that talks to
// raddr only.
func (s *Stack) DialUDP(laddr, raddr netip.AddrPort) (net.Conn, error) {
	laddr, raddr = unmap(laddr), unmap(raddr)
	ep, wq, err := s.connect(context.Background(), udp.ProtocolNumber, laddr, raddr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "udp", Addr: net.UDPAddrFromAddrPort(raddr), Err: err}
	}
	return gonet.NewUDPConn(wq, ep), nil
}

// DialContext is net.Dialer.DialContext, for net/http and its like. There is no
// resolver: address must be an IP address and a port.
func (s *Stack) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	raddr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.AddrError{Err: "not an IP address and port", Addr: address}}
	}
	raddr = unmap(raddr)
	if strings.HasSuffix(network, "4") && !raddr.Addr().Is4() || strings.HasSuffix(network, "6") && raddr.Addr().Is4() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.AddrError{Err: "address of the other family", Addr: address}}
	}
	switch network {
	case "tcp", "tcp4", "tcp6":
		return s.DialTCP(ctx, netip.AddrPort{}, raddr)
	case "udp", "udp4", "udp6":
		return s.DialUDP(netip.AddrPort{}, raddr)
	default:
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.UnknownNetworkError(network)}
	}
}

// bind returns a new endpoint bound to addr.
func (s *Stack) bind(t tcpip.TransportProtocolNumber, addr netip.AddrPort, wq *waiter.Queue) (tcpip.Endpoint, error) {
	if !addr.Addr().IsValid() {
		return nil, errors.New("no address")
	}
	ep, err := s.stack.NewEndpoint(t, networkProtocol(addr.Addr()), wq)
	if err != nil {
		return nil, toError(err)
	}
	if t == tcp.ProtocolNumber {
		// As the net package does: what is left of connections of a minute ago must not keep a listener from its port.
		ep.SocketOptions().SetReuseAddress(true)
	}
	if err := ep.Bind(fullAddress(addr)); err != nil {
		ep.Close()
		return nil, toError(err)
	}
	return ep, nil
}

// connect returns a new endpoint connected to raddr.
func (s *Stack) connect(ctx context.Context, t tcpip.TransportProtocolNumber, laddr, raddr netip.AddrPort) (tcpip.Endpoint, *waiter.Queue, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if !raddr.IsValid() || laddr.Addr().IsValid() && laddr.Addr().Is4() != raddr.Addr().Is4() {
		return nil, nil, fmt.Errorf("no way from %v to %v", laddr, raddr)
	}
	wq := new(waiter.Queue)
	ep, err := s.stack.NewEndpoint(t, networkProtocol(raddr.Addr()), wq)
	if err != nil {
		return nil, nil, toError(err)
	}
	// Registered before Connect, which is always asynchronous for TCP.
	entry, writable := waiter.NewChannelEntry(waiter.WritableEvents)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	if laddr.IsValid() {
		if err := ep.Bind(fullAddress(laddr)); err != nil {
			ep.Close()
			return nil, nil, toError(err)
		}
	}
	err = ep.Connect(fullAddress(raddr))
	if _, started := err.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ctx.Done():
			ep.Close()
			return nil, nil, ctx.Err()
		case <-writable:
		}
		err = ep.LastError()
	}
	if err != nil {
		ep.Close()
		return nil, nil, toError(err)
	}
	return ep, wq, nil
}

// listener is gVisor's with the errors of the net package.
type listener struct {
	*gonet.TCPListener
	stack  *Stack
	closed atomic.Bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil && (l.closed.Load() || l.stack.isClosed()) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	return c, err
}

// Close implements net.Listener.
func (l *listener) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.Shutdown() // wakes Accept
	return l.TCPListener.Close()
}

// packetConn is gVisor's with the errors and the address forms of the net
// package.
type packetConn struct {
	*gonet.UDPConn
	stack  *Stack
	is4    bool
	closed atomic.Bool
}

// ReadFrom implements net.PacketConn. A datagram longer than b is cut.
func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, addr, err := c.UDPConn.ReadFrom(b)
	if err != nil && (c.closed.Load() || c.stack.isClosed()) {
		return 0, nil, &net.OpError{Op: "read", Net: "udp", Source: c.LocalAddr(), Err: net.ErrClosed}
	}
	return n, addr, err
}

// WriteTo implements net.PacketConn.
func (c *packetConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	if c.closed.Load() || c.stack.isClosed() {
		return 0, &net.OpError{Op: "write", Net: "udp", Addr: addr, Err: net.ErrClosed}
	}
	ua, ok := addr.(*net.UDPAddr)
	if !ok || ua == nil || !ua.AddrPort().IsValid() {
		return 0, &net.OpError{Op: "write", Net: "udp", Addr: addr, Err: net.InvalidAddrError("not a UDP address")}
	}
	to := *ua
	// gVisor wants four bytes on an IPv4 socket and sixteen on an IPv6 one.
	if c.is4 {
		if to.IP = ua.IP.To4(); to.IP == nil {
			return 0, &net.OpError{Op: "write", Net: "udp", Addr: addr, Err: net.InvalidAddrError("IPv6 address on an IPv4 socket")}
		}
	} else {
		to.IP = ua.IP.To16()
	}
	return c.UDPConn.WriteTo(b, &to)
}

// Close implements net.PacketConn.
func (c *packetConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.UDPConn.Close()
}

// fullAddress is addr for gVisor, which writes the unspecified address as none.
func fullAddress(addr netip.AddrPort) tcpip.FullAddress {
	full := tcpip.FullAddress{Port: addr.Port()}
	if !addr.Addr().IsUnspecified() {
		full.Addr = toAddress(addr.Addr())
	}
	if addr.Addr().Is6() && header.IsV6LinkLocalUnicastAddress(full.Addr) {
		full.NIC = nicID // link-local addresses are nothing without an interface
	}
	return full
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
