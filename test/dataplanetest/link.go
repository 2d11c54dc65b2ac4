package dataplanetest

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/underlay"
)

// LinkConfig describes a node's end of the tunnel to one gateway.
type LinkConfig struct {
	// Gateway is where the gateway receives encapsulated packets.
	Gateway netip.AddrPort
	VNI     geneve.VNI
	// Encapsulation is what the node speaks.
	Encapsulation geneve.Encapsulation
	// Internal and GatewayInternal are the two ends inside the tunnel.
	Internal, GatewayInternal netip.Addr
	// Routes are what is behind the gateway. Nil: everything.
	Routes []netip.Prefix
}

// Link is a node's end of the tunnel to one gateway.
type Link struct {
	cfg      LinkConfig
	node     *Node
	resolved chan struct{} // closed by once
	once     sync.Once
	closed   chan struct{} // closed by Close

	mu  sync.Mutex
	mac neighbor.MAC // the gateway's
}

// Ready is closed when the gateway has answered for the first time.
func (l *Link) Ready() <-chan struct{} { return l.resolved }

// Close removes the tunnel from its node. It must be called once at most; a node
// that ends needs none.
func (l *Link) Close() {
	close(l.closed)
	l.node.mu.Lock()
	defer l.node.mu.Unlock()
	l.node.links = slices.DeleteFunc(l.node.links, func(o *Link) bool { return o == l })
}

// covers returns the length of the longest route to an address, -1 for none.
func (l *Link) covers(dst netip.Addr) int {
	if l.cfg.Routes == nil {
		return 0
	}
	longest := -1
	for _, r := range l.cfg.Routes {
		if r.Contains(dst) {
			longest = max(longest, r.Bits())
		}
	}
	return longest
}

const echoRequest = 8 // RFC 792

// resolve asks for the gateway's MAC until it is known.
func (l *Link) resolve(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if l.cfg.Encapsulation == geneve.GeneveIP {
			// Without Ethernet there is nothing to resolve, but the gateway
			// must hear what the node speaks.
			l.Send(Build(Packet{
				Proto: packet.ProtoICMP, ICMPType: echoRequest,
				Src: netip.AddrPortFrom(l.cfg.Internal, 1), Dst: netip.AddrPortFrom(l.cfg.GatewayInternal, 0),
			}))
		} else {
			l.sendFrame(neighbor.Broadcast, neighbor.EtherTypeARP, packettest.ARP{
				Op: neighbor.ARPRequest, SenderMAC: l.node.mac, SenderIP: l.cfg.Internal, TargetIP: l.cfg.GatewayInternal,
			}.Bytes())
		}
		select {
		case <-ctx.Done():
			return
		case <-l.closed:
			return
		case <-l.resolved:
			return
		case <-tick.C:
		}
	}
}

// Send encapsulates an IP packet of any origin and sends it to the gateway.
func (l *Link) Send(ip []byte) {
	etherType := neighbor.EtherTypeIPv4
	if len(ip) > 0 && ip[0]>>4 == 6 {
		etherType = neighbor.EtherTypeIPv6
	}
	l.mu.Lock()
	mac := l.mac
	l.mu.Unlock()
	l.sendFrame(mac, etherType, ip)
}

func (l *Link) sendFrame(dst neighbor.MAC, etherType uint16, payload []byte) {
	vni, frame := uint32(l.cfg.VNI), packettest.Ethernet(dst, l.node.mac, etherType, nil)
	var head []byte
	switch l.cfg.Encapsulation {
	case geneve.GeneveIP:
		head = packettest.Geneve(vni, etherType, nil)
	case geneve.VXLAN:
		head = packettest.VXLAN(vni, frame)
	default:
		head = packettest.Geneve(vni, packettest.TransparentEthernet, frame)
	}
	_, _ = l.node.cfg.Socket.WriteBatch([]underlay.Datagram{{Addr: l.cfg.Gateway, Head: head, Body: payload}})
}

// receive takes what was inside the encapsulation.
func (l *Link) receive(payload []byte) {
	if l.cfg.Encapsulation == geneve.GeneveIP {
		l.once.Do(func() { close(l.resolved) })
		l.node.arrived(payload)
		return
	}
	f, ok := neighbor.DecodeFrame(payload)
	if !ok {
		return
	}
	if f.EtherType == neighbor.EtherTypeARP {
		l.arp(f)
		return
	}
	if f.Dst == l.node.mac { // as the kernel: only what is addressed to us
		l.node.arrived(f.Payload)
	}
}

func (l *Link) arp(f neighbor.Frame) {
	a, ok := neighbor.DecodeARP(f.Payload)
	if !ok {
		return
	}
	switch {
	case a.Op == neighbor.ARPReply && a.SenderIP == l.cfg.GatewayInternal:
		l.mu.Lock()
		l.mac = a.SenderMAC
		l.mu.Unlock()
		l.once.Do(func() { close(l.resolved) })
	case a.Op == neighbor.ARPRequest && a.TargetIP == l.cfg.Internal:
		l.sendFrame(a.SenderMAC, neighbor.EtherTypeARP, packettest.ARP{
			Op: neighbor.ARPReply, SenderMAC: l.node.mac, SenderIP: l.cfg.Internal, TargetMAC: a.SenderMAC, TargetIP: a.SenderIP,
		}.Bytes())
	}
}
