package netstack

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// link is the network interface that gVisor sees: an IP-only wire whose far
// end is a queue. gVisor's own channel endpoint would keep one reference
// counted buffer per queued packet; copying out at once gives the buffer back
// to the goroutine that made it and lets the receiver work in batches.
type link struct {
	mtu           atomic.Uint32
	superSegments bool
	out           *queue

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher // nil before Attach and after removal
}

var (
	_ stack.LinkEndpoint = (*link)(nil)
	_ stack.GSOEndpoint  = (*link)(nil)
)

// deliver hands one packet from the wire to gVisor, which gets a copy of its
// own because it edits headers in place. What is not IP is ignored.
func (l *link) deliver(pkt []byte) {
	var protocol tcpip.NetworkProtocolNumber
	switch header.IPVersion(pkt) {
	case header.IPv4Version:
		protocol = header.IPv4ProtocolNumber
	case header.IPv6Version:
		protocol = header.IPv6ProtocolNumber
	default:
		return
	}
	l.mu.RLock()
	d := l.dispatcher
	l.mu.RUnlock()
	if d == nil {
		return
	}
	pb := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(pkt)})
	d.DeliverNetworkPacket(protocol, pb)
	pb.DecRef()
}

// WritePackets implements stack.LinkWriter. A full queue loses packets, as a
// wire does: an error would reach the socket's user, who has no use for it.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, pkt := range pkts.AsSlice() {
		if l.out.pushBuffer(pkt) {
			n++
		}
	}
	return n, nil
}

// Attach implements stack.NetworkLinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// SupportedGSO implements stack.GSOEndpoint: "host" segmentation is what makes
// gVisor emit whole super-segments with unfinished checksums.
func (l *link) SupportedGSO() stack.SupportedGSO {
	if l.superSegments {
		return stack.HostGSOSupported
	}
	return stack.GSONotSupported
}

// GSOMaxSize implements stack.GSOEndpoint: the largest IPv4 total length
// (RFC 791 section 3.1).
func (*link) GSOMaxSize() uint32 { return 65535 }

// MTU implements stack.NetworkLinkEndpoint.
func (l *link) MTU() uint32 { return l.mtu.Load() }

// SetMTU implements stack.NetworkLinkEndpoint.
func (l *link) SetMTU(mtu uint32) { l.mtu.Store(mtu) }

// The rest of stack.NetworkLinkEndpoint: there is no link layer, hence no link
// address, no header, no address resolution, and no worker to wait for.

// Capabilities implements stack.NetworkLinkEndpoint.
func (*link) Capabilities() stack.LinkEndpointCapabilities { return stack.CapabilityNone }

// MaxHeaderLength implements stack.NetworkLinkEndpoint.
func (*link) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.NetworkLinkEndpoint.
func (*link) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress implements stack.NetworkLinkEndpoint.
func (*link) SetLinkAddress(tcpip.LinkAddress) {}

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (*link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.NetworkLinkEndpoint.
func (*link) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (*link) ParseHeader(*stack.PacketBuffer) bool { return true }

// Wait implements stack.NetworkLinkEndpoint.
func (*link) Wait() {}

// Close implements stack.NetworkLinkEndpoint.
func (*link) Close() {}

// SetOnCloseAction implements stack.NetworkLinkEndpoint.
func (*link) SetOnCloseAction(func()) {}
