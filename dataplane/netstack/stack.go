package netstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	// nicID names the only interface of a stack.
	nicID tcpip.NICID = 1

	// minMTU is what every IPv4 host accepts (RFC 791 section 3.1).
	minMTU = 576
	maxMTU = 65535

	defaultQueueBytes = 2 << 20
	// minQueueBytes holds the largest packet there is.
	minQueueBytes = maxMTU + recordHeader

	defaultTCPBuffer = 1 << 20
	minTCPBuffer     = 16 << 10
	// initialTCPBuffer is what a connection starts with; both ends grow it up
	// to Config.TCPBuffer while the transfer makes use of it.
	initialTCPBuffer = 128 << 10
)

// ErrRunning is returned by Run when the stack is already being run.
var ErrRunning = errors.New("stack is already running")

// Config is what a Stack is made of. Addresses are not part of it: they change
// while it runs (SetAddresses).
type Config struct {
	// MTU is the largest packet that the stack emits, 576 to 65535. IPv6 works
	// from 1280 on (RFC 8200 section 5). Larger packets are accepted.
	MTU int
	// QueueBytes bounds the packets that wait in each direction. Zero means
	// 2 MiB; at least one packet of 64 KiB always fits.
	QueueBytes int
	// TCPBuffer bounds what each direction of a TCP connection buffers. Zero
	// means 1 MiB.
	TCPBuffer int
	// SuperSegments makes TCP emit packets of up to 64 KiB whose checksum
	// field holds the sum of the pseudo-header only. That is what a kernel
	// tunnel device delivers from a local sender: a simulated pod behind such
	// a device sets it. Unset for everything that must be valid on the wire.
	SuperSegments bool
	// Logger is told, at debug level, of addresses that come and go; nil
	// discards.
	Logger *slog.Logger
}

// Stats counts packets since New.
type Stats struct {
	Injected       uint64 // accepted by Inject
	InjectDropped  uint64 // refused by Inject: queue full, stack closed, too long
	Emitted        uint64 // queued for Run's output
	EmitDropped    uint64 // lost because the output did not keep up
	TCPRetransmits uint64 // segments that TCP sent again
	ChecksumErrors uint64 // TCP and UDP packets in with a wrong checksum
}

// Stack is a set of IP addresses and the TCP/IP host behind them. Make one with
// New; it works while Run runs and until Close.
type Stack struct {
	stack *stack.Stack
	link  *link
	in    *queue
	out   *queue
	log   *slog.Logger

	running   atomic.Bool
	closeOnce sync.Once
	observers atomic.Pointer[[]*observer] // never nil; copied on write under mu

	mu        sync.Mutex
	addresses []netip.Addr
}

// New returns a stack without addresses. The TCP implementation keeps a few
// idle goroutines from here on; Close ends them.
func New(c Config) (*Stack, error) {
	if c.MTU < minMTU || c.MTU > maxMTU {
		return nil, fmt.Errorf("mtu %d is not between %d and %d", c.MTU, minMTU, maxMTU)
	}
	if c.QueueBytes == 0 {
		c.QueueBytes = defaultQueueBytes
	}
	if c.TCPBuffer == 0 {
		c.TCPBuffer = defaultTCPBuffer
	}
	if c.TCPBuffer < minTCPBuffer {
		return nil, fmt.Errorf("tcp buffer of %d bytes is below %d", c.TCPBuffer, minTCPBuffer)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Stack{
		in:  newQueue(max(c.QueueBytes, minQueueBytes)),
		out: newQueue(max(c.QueueBytes, minQueueBytes)),
		log: c.Logger,
	}
	s.observers.Store(new([]*observer))
	s.link = &link{superSegments: c.SuperSegments, out: s.out}
	s.link.SetMTU(uint32(c.MTU))
	s.stack = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{
			tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6,
		},
		// Connections between two own addresses stay inside, and packets from
		// outside that claim an own source address are dropped.
		HandleLocal: true,
	})
	if err := s.configure(c); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// configure sets what gVisor does not take as an option of stack.New.
func (s *Stack) configure(c Config) error {
	if err := s.stack.CreateNIC(nicID, s.link); err != nil {
		return fmt.Errorf("create interface: %w", toError(err))
	}
	s.stack.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nicID},
		{Destination: header.IPv6EmptySubnet, NIC: nicID},
	})
	initial := min(initialTCPBuffer, c.TCPBuffer)
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	// A client that opens many short connections to one server would run out
	// of ports with 60 s of TIME-WAIT each; RFC 6191 makes reuse safe.
	reuse := tcpip.TCPTimeWaitReuseGlobal
	// RACK (RFC 8985) takes a busy goroutine for a lost packet: on a loss-free
	// wire it sent segments twice and halved the throughput. Without it SACK
	// (RFC 6675) recovers; on a wire with loss both took the same time.
	recovery := tcpip.TCPRecovery(0)
	for _, opt := range []tcpip.SettableTransportProtocolOption{
		&sack, &moderate, &reuse, &recovery,
		&tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: initial, Max: c.TCPBuffer},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: initial, Max: c.TCPBuffer},
	} {
		if err := s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, opt); err != nil {
			return fmt.Errorf("set TCP option %T: %w", opt, toError(err))
		}
	}
	return nil
}

// SetAddresses makes the stack own exactly these addresses. Sockets bound to an
// address that stays are not touched; those of an address that goes away stay
// open but receive nothing until it comes back. On an error nothing has changed.
func (s *Stack) SetAddresses(addrs []netip.Addr) error {
	c, err := s.Prepare(int(s.link.MTU()), addrs)
	if err == nil {
		c.Commit()
	}
	return err
}

// Change is a change of a stack that cannot fail any more. One of Commit and Cancel
// has to be called; until then nobody else changes the stack.
type Change struct {
	stack *Stack
	mtu   int
	want  []netip.Addr
	added []netip.Addr // of want
}

// Prepare begins to change the largest packet that the stack emits, and its addresses
// to exactly these. Addresses that are new are the stack's already when it returns, so
// that a source address is there all the time. On an error nothing has changed.
func (s *Stack) Prepare(mtu int, addrs []netip.Addr) (*Change, error) {
	if mtu < minMTU || mtu > maxMTU {
		return nil, fmt.Errorf("mtu %d is not between %d and %d", mtu, minMTU, maxMTU)
	}
	want := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		a = a.Unmap()
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" {
			return nil, fmt.Errorf("%v cannot be an address of the stack", a)
		}
		if !slices.Contains(want, a) {
			want = append(want, a)
		}
	}
	s.mu.Lock()
	c := &Change{stack: s, mtu: mtu, want: want}
	for _, a := range want {
		if slices.Contains(s.addresses, a) {
			continue
		}
		if err := s.stack.AddProtocolAddress(nicID, protocolAddress(a), stack.AddressProperties{}); err != nil {
			c.Cancel()
			return nil, fmt.Errorf("add address %v: %w", a, toError(err))
		}
		s.addresses = append(s.addresses, a)
		c.added = append(c.added, a)
		s.log.Debug("own address added", "address", a)
	}
	return c, nil
}

// Commit makes the change.
func (c *Change) Commit() {
	s := c.stack
	defer s.mu.Unlock()
	s.removeLocked(func(a netip.Addr) bool { return !slices.Contains(c.want, a) })
	// It fails only without the interface, which is there as long as the stack.
	_ = s.stack.SetNICMTU(nicID, uint32(c.mtu))
}

// Cancel leaves the stack as it was.
func (c *Change) Cancel() {
	defer c.stack.mu.Unlock()
	c.stack.removeLocked(func(a netip.Addr) bool { return slices.Contains(c.added, a) })
}

// removeLocked takes addresses from the stack. The caller holds mu.
func (s *Stack) removeLocked(which func(netip.Addr) bool) {
	s.addresses = slices.DeleteFunc(s.addresses, func(a netip.Addr) bool {
		if !which(a) {
			return false
		}
		// It fails only for an address that is not there.
		_ = s.stack.RemoveAddress(nicID, toAddress(a))
		s.log.Debug("own address removed", "address", a)
		return true
	})
}

// Addresses returns the stack's addresses.
func (s *Stack) Addresses() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.addresses)
}

// Inject gives the stack one IP packet from outside. The packet is copied, and
// nothing is waited for: it reports false when the packet was dropped because
// the queue is full. Any bytes are safe to inject.
func (s *Stack) Inject(pkt []byte) bool { return s.in.push(pkt) }

// SendPacket sends one raw IP packet, as it is, to Run's output: neither
// checked nor completed nor fragmented. It reports false when it was dropped
// because the queue is full. It is how a simulated pod misbehaves.
func (s *Stack) SendPacket(pkt []byte) bool { return s.out.push(pkt) }

// Run moves packets until ctx ends or the stack is closed; then it returns nil.
// It calls output with every packet that the stack emits, in order, from one
// goroutine; the slice is output's to modify but valid only during the call.
// An output that blocks makes the stack lose packets, nothing worse.
func (s *Stack) Run(ctx context.Context, output func(pkt []byte)) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer s.running.Store(false)
	var wg sync.WaitGroup
	wg.Go(func() { s.in.drain(ctx, s.receive) })
	s.out.drain(ctx, output)
	wg.Wait()
	return nil
}

// receive is the way in of one packet, on Run's second goroutine.
func (s *Stack) receive(pkt []byte) {
	if obs := *s.observers.Load(); len(obs) > 0 && isICMP(pkt) {
		for _, o := range obs {
			o.f(pkt)
		}
	}
	s.link.deliver(pkt)
}

// Stats returns the counters.
func (s *Stack) Stats() Stats {
	g := s.stack.Stats()
	return Stats{
		Injected:       s.in.sent.Load(),
		InjectDropped:  s.in.drops.Load(),
		Emitted:        s.out.sent.Load(),
		EmitDropped:    s.out.drops.Load(),
		TCPRetransmits: g.TCP.Retransmits.Value(),
		ChecksumErrors: g.TCP.ChecksumErrors.Value() + g.UDP.ChecksumErrors.Value(),
	}
}

// Close aborts every connection, closes every socket and ends the stack's
// goroutines and Run, without waiting for the latter. It may be called twice.
func (s *Stack) Close() {
	s.closeOnce.Do(func() {
		s.in.close()
		s.stack.Destroy()
		s.out.close() // last: the resets of aborted connections went there
	})
}

func (s *Stack) isClosed() bool {
	select {
	case <-s.in.closed:
		return true
	default:
		return false
	}
}

func protocolAddress(a netip.Addr) tcpip.ProtocolAddress {
	return tcpip.ProtocolAddress{
		Protocol: networkProtocol(a),
		// A host prefix: a wider one would make its broadcast addresses ours.
		AddressWithPrefix: toAddress(a).WithPrefix(),
	}
}

func networkProtocol(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return header.IPv4ProtocolNumber
	}
	return header.IPv6ProtocolNumber
}

func toAddress(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func fromAddress(a tcpip.Address) netip.Addr {
	b, _ := netip.AddrFromSlice(a.AsSlice())
	return b
}
