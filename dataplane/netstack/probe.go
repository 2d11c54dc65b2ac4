package netstack

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// tracePort is where traceroute programs send their first probe; nobody
	// listens there, so that the destination answers Port Unreachable.
	tracePort = 33434
	// hopTimeout is how long Trace waits for the answer of one router.
	hopTimeout = time.Second
)

// Ping sends one ICMP echo request with size bytes of payload and waits for its
// reply, an ICMP error about it (returned as *ICMPError) or the end of ctx.
// With dontFragment the packet is never fragmented: one that exceeds the
// stack's own MTU is refused with syscall.EMSGSIZE and one that exceeds the
// path's is answered by a router. Without, the stack fragments what it must.
func (s *Stack) Ping(ctx context.Context, dst netip.Addr, size int, dontFragment bool) (time.Duration, error) {
	return s.PingFrom(ctx, netip.Addr{}, dst, size, dontFragment)
}

// PingFrom is Ping from one of the stack's addresses; the zero Addr is any.
func (s *Stack) PingFrom(ctx context.Context, src, dst netip.Addr, size int, dontFragment bool) (time.Duration, error) {
	rtt, err := s.ping(ctx, src, dst.Unmap(), size, dontFragment)
	if err != nil {
		return 0, fmt.Errorf("ping %v: %w", dst, err)
	}
	return rtt, nil
}

func (s *Stack) ping(ctx context.Context, src, dst netip.Addr, size int, dontFragment bool) (time.Duration, error) {
	headers := header.IPv4MinimumSize + header.ICMPv4MinimumSize
	if dst.Is6() {
		headers = header.IPv6MinimumSize + header.ICMPv6EchoMinimumSize
	}
	if !dst.IsValid() || size < 0 || headers+size > maxMTU || dontFragment && headers+size > int(s.link.MTU()) {
		return 0, syscall.EMSGSIZE
	}
	request := echoRequest(dst, size)
	return s.echo(ctx, src, dst, dontFragment, request, func(ep tcpip.Endpoint, _ tcpip.FullAddress) error {
		if _, err := ep.Write(bytes.NewReader(request), tcpip.WriteOptions{}); err != nil {
			return toError(err)
		}
		return nil
	})
}

// PingWhole is PingFrom for a packet of exactly size bytes, headers included, that
// leaves in one piece even where it exceeds the stack's own MTU; its answer comes
// back in pieces then. It finds out what a path carries that nobody has been
// asked to use. IPv4 only.
func (s *Stack) PingWhole(ctx context.Context, src, dst netip.Addr, size int) (time.Duration, error) {
	dst = dst.Unmap()
	const headers = header.IPv4MinimumSize + header.ICMPv4MinimumSize
	if !dst.Is4() || size < headers || size > maxMTU {
		return 0, fmt.Errorf("ping %v: %w", dst, syscall.EMSGSIZE)
	}
	request := echoRequest(dst, size-headers)
	rtt, err := s.echo(ctx, src, dst, false, request, func(_ tcpip.Endpoint, local tcpip.FullAddress) error {
		if !s.SendPacket(wholeEcho(local, dst, request)) {
			return syscall.ENOBUFS
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("ping %v: %w", dst, err)
	}
	return rtt, nil
}

// wholeEcho is the packet that carries an echo message as the endpoint with the
// address local would send it.
func wholeEcho(local tcpip.FullAddress, dst netip.Addr, message []byte) []byte {
	b := make([]byte, header.IPv4MinimumSize+len(message))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: local.Addr, DstAddr: toAddress(dst),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(b[header.IPv4MinimumSize:])
	copy(icmp, message)
	icmp.SetIdent(local.Port)
	icmp.SetChecksum(header.ICMPv4Checksum(icmp, 0))
	return b
}

// echo opens an ICMP endpoint, has send send the echo message request from src to dst, and
// waits for the reply.
func (s *Stack) echo(ctx context.Context, src, dst netip.Addr, dontFragment bool, request []byte, send func(tcpip.Endpoint, tcpip.FullAddress) error) (time.Duration, error) {
	transport := icmp.ProtocolNumber4
	if dst.Is6() {
		transport = icmp.ProtocolNumber6
	}
	var wq waiter.Queue
	entry, readable := waiter.NewChannelEntry(waiter.ReadableEvents)
	wq.EventRegister(&entry)
	ep, local, err := s.pingSocket(transport, src, netip.AddrPortFrom(dst, 0), &wq, dontFragment)
	if err != nil {
		return 0, err
	}
	defer ep.Close()

	failed := make(chan *ICMPError, 1)
	defer s.ObserveICMP(func(pkt []byte) {
		e, q, ok := parseICMPError(pkt)
		if !ok || q.transport != transport || q.dst != dst || binary.BigEndian.Uint16(q.head[4:]) != local.Port {
			return
		}
		select {
		case failed <- &e:
		default: // one is enough
		}
	})()

	sent := time.Now()
	if err := send(ep, local); err != nil {
		return 0, err
	}
	for {
		var reply bytes.Buffer
		_, err := ep.Read(&reply, tcpip.ReadOptions{})
		if err == nil {
			// The echo header is eight bytes in both families.
			if r := reply.Bytes(); len(r) == len(request) && bytes.Equal(r[8:], request[8:]) {
				return time.Since(sent), nil
			}
			continue // not what was sent: as if it were lost
		}
		if _, ok := err.(*tcpip.ErrWouldBlock); !ok {
			return 0, toError(err)
		}
		select {
		case <-readable:
		case e := <-failed:
			return 0, e
		case <-s.in.closed:
			return 0, net.ErrClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// pingSocket returns an ICMP endpoint that talks from src to dst, and its address: the
// port is the echo identifier that the stack chose.
func (s *Stack) pingSocket(t tcpip.TransportProtocolNumber, src netip.Addr, dst netip.AddrPort, wq *waiter.Queue, dontFragment bool) (tcpip.Endpoint, tcpip.FullAddress, error) {
	ep, err := s.stack.NewEndpoint(t, networkProtocol(dst.Addr()), wq)
	if err != nil {
		return nil, tcpip.FullAddress{}, toError(err)
	}
	strategy := tcpip.PMTUDiscoveryDont
	if dontFragment {
		strategy = tcpip.PMTUDiscoveryProbe
	}
	var local tcpip.FullAddress
	if src.IsValid() {
		err = ep.Bind(fullAddress(netip.AddrPortFrom(src, 0)))
	}
	if err == nil {
		err = ep.SetSockOptInt(tcpip.MTUDiscoverOption, int(strategy))
	}
	if err == nil {
		if err = ep.Connect(fullAddress(dst)); err == nil {
			local, err = ep.GetLocalAddress()
		}
	}
	if err != nil {
		ep.Close()
		return nil, tcpip.FullAddress{}, toError(err)
	}
	return ep, local, nil
}

// echoRequest is an echo message with sequence number 1; the stack fills in
// identifier and checksum. The payload counts bytes, so that a reassembly in
// the wrong order shows.
func echoRequest(dst netip.Addr, size int) []byte {
	b := make([]byte, header.ICMPv4MinimumSize+size)
	b[0] = byte(header.ICMPv4Echo)
	if dst.Is6() {
		b[0] = byte(header.ICMPv6EchoRequest)
	}
	binary.BigEndian.PutUint16(b[6:], 1)
	for i := range b[8:] {
		b[8+i] = byte(i + i>>8)
	}
	return b
}

// Hop is one line of a traceroute.
type Hop struct {
	TTL     int
	Addr    netip.Addr // who answered; the zero Addr when nobody did in time
	RTT     time.Duration
	Reached bool // Addr is the destination
}

// Trace finds the routers towards dst as traceroute does: UDP packets with a
// growing TTL to ports where nobody listens, one per hop, one second of
// patience each. It returns the hops up to the destination, or up to maxHops.
// An error other than Time Exceeded and Port Unreachable ends the trace and is
// returned as *ICMPError; so does the end of ctx. Hops found until then are
// returned as well.
func (s *Stack) Trace(ctx context.Context, dst netip.Addr, maxHops int) ([]Hop, error) {
	dst = dst.Unmap()
	local := netip.IPv4Unspecified()
	option := tcpip.IPv4TTLOption
	if dst.Is6() {
		local, option = netip.IPv6Unspecified(), tcpip.IPv6HopLimitOption
	}
	var wq waiter.Queue
	// A real socket, so that no connection of ours gets the same port.
	ep, err := s.bind(udp.ProtocolNumber, netip.AddrPortFrom(local, 0), &wq)
	if err != nil {
		return nil, fmt.Errorf("trace %v: %w", dst, err)
	}
	defer ep.Close()
	bound, tcpErr := ep.GetLocalAddress()
	if tcpErr != nil {
		return nil, fmt.Errorf("trace %v: %w", dst, toError(tcpErr))
	}

	var hops []Hop
	for ttl := 1; ttl <= min(maxHops, 255); ttl++ {
		if err := ep.SetSockOptInt(option, ttl); err != nil {
			return hops, fmt.Errorf("trace %v: set TTL: %w", dst, toError(err))
		}
		p := tracer{stack: s, ep: ep, srcPort: bound.Port, dst: netip.AddrPortFrom(dst, uint16(tracePort+ttl-1))}
		hop, err := p.probe(ctx)
		hop.TTL = ttl
		if err == nil || hop.Addr.IsValid() {
			hops = append(hops, hop)
		}
		if err != nil {
			return hops, fmt.Errorf("trace %v: %w", dst, err)
		}
		if hop.Reached {
			break
		}
	}
	return hops, nil
}

// tracer sends one probe of a trace; the destination port tells probes apart.
type tracer struct {
	stack   *Stack
	ep      tcpip.Endpoint
	srcPort uint16
	dst     netip.AddrPort
}

func (t tracer) probe(ctx context.Context) (Hop, error) {
	answer := make(chan *ICMPError, 1)
	defer t.stack.ObserveICMP(func(pkt []byte) {
		e, q, ok := parseICMPError(pkt)
		if !ok || q.transport != udp.ProtocolNumber || q.dst != t.dst.Addr() ||
			binary.BigEndian.Uint16(q.head[0:]) != t.srcPort || binary.BigEndian.Uint16(q.head[2:]) != t.dst.Port() {
			return
		}
		select {
		case answer <- &e:
		default:
		}
	})()
	timeout := time.NewTimer(hopTimeout)
	defer timeout.Stop()
	to := fullAddress(t.dst)
	sent := time.Now()
	if _, err := t.ep.Write(bytes.NewReader(make([]byte, 32)), tcpip.WriteOptions{To: &to}); err != nil {
		return Hop{}, toError(err)
	}
	select {
	case e := <-answer:
		hop := Hop{Addr: e.From, RTT: time.Since(sent), Reached: e.PortUnreachable() && e.From == t.dst.Addr()}
		if !hop.Reached && !e.TimeExceeded() {
			return hop, e
		}
		return hop, nil
	case <-timeout.C:
		return Hop{}, nil
	case <-t.stack.in.closed:
		return Hop{}, net.ErrClosed
	case <-ctx.Done():
		return Hop{}, ctx.Err()
	}
}
