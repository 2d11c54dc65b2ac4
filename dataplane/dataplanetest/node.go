package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/dataplane/underlay"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/tunnel"
)

// NodeConfig describes one simulated node of a cluster.
type NodeConfig struct {
	Name string
	// Socket is where the node's tunnel ends, in memory or real. The node
	// closes it.
	Socket tunnel.Socket
	// Gateway is where the gateway receives encapsulated packets.
	Gateway netip.AddrPort
	VNI     geneve.VNI
	// Encapsulation is what the node speaks.
	Encapsulation geneve.Encapsulation
	// Internal and GatewayInternal are the two ends inside the tunnel.
	Internal, GatewayInternal netip.Addr
	MTU                       int
	// SuperSegments lets pods hand over TCP in packets of up to 64 KiB with
	// unfinished checksums, as a kernel does on a virtual link.
	SuperSegments bool
}

// Node is a Kubernetes node in miniature: it routes between its pods, which are
// TCP/IP stacks in memory, and the gateway, to which it speaks the real
// encapsulation.
type Node struct {
	cfg NodeConfig
	mac neighbor.MAC

	mu         sync.Mutex
	gatewayMAC neighbor.MAC
	pods       map[netip.Addr]*netstack.Stack
	stacks     []*netstack.Stack
	ctx        context.Context
	wg         sync.WaitGroup
	observe    func(ip []byte)

	resolved chan struct{}
	once     sync.Once
}

// NewNode builds a node without pods. Run connects it.
func NewNode(cfg NodeConfig) *Node {
	return &Node{
		cfg: cfg, mac: neighbor.StableMAC([]byte("node " + cfg.Name)),
		pods:     make(map[netip.Addr]*netstack.Stack),
		resolved: make(chan struct{}),
	}
}

// AddPod starts a pod with these addresses. It may be called before Run.
func (n *Node) AddPod(addrs ...netip.Addr) (*netstack.Stack, error) {
	pod, err := netstack.New(netstack.Config{MTU: n.cfg.MTU, SuperSegments: n.cfg.SuperSegments})
	if err != nil {
		return nil, err
	}
	if err := pod.SetAddresses(addrs); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		n.pods[a] = pod
	}
	n.stacks = append(n.stacks, pod)
	if n.ctx != nil {
		n.startPodLocked(pod)
	}
	return pod, nil
}

func (n *Node) startPodLocked(pod *netstack.Stack) {
	ctx := n.ctx
	n.wg.Go(func() {
		_ = pod.Run(ctx, n.FromPod)
		pod.Close()
	})
}

// Observe calls f with every IP packet that arrives from the gateway, before
// it is delivered.
func (n *Node) Observe(f func(ip []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observe = f
}

// Run connects the node to the gateway until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.mu.Lock()
	n.ctx = ctx
	for _, pod := range n.stacks {
		n.startPodLocked(pod)
	}
	n.mu.Unlock()
	n.wg.Go(func() {
		<-ctx.Done()
		n.cfg.Socket.Close()
	})
	n.wg.Go(func() { n.resolve(ctx) })
	err := n.receive()
	cancel()
	n.wg.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Ready is closed when the gateway has answered the node for the first time.
func (n *Node) Ready() <-chan struct{} { return n.resolved }

const echoRequest = 8 // RFC 792

// resolve asks for the gateway's MAC until it is known.
func (n *Node) resolve(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if n.cfg.Encapsulation == geneve.GeneveIP {
			// Without Ethernet there is nothing to resolve, but the gateway
			// must hear what the node speaks.
			n.Send(Build(Packet{
				Proto: packet.ProtoICMP, ICMPType: echoRequest,
				Src: netip.AddrPortFrom(n.cfg.Internal, 1), Dst: netip.AddrPortFrom(n.cfg.GatewayInternal, 0),
			}))
		} else {
			n.sendFrame(neighbor.Broadcast, neighbor.EtherTypeARP, neighbor.AppendARP(nil, neighbor.ARP{
				Op: neighbor.ARPRequest, SenderMAC: n.mac, SenderIP: n.cfg.Internal, TargetIP: n.cfg.GatewayInternal,
			}))
		}
		select {
		case <-ctx.Done():
			return
		case <-n.resolved:
			return
		case <-tick.C:
		}
	}
}

// FromPod routes a packet that a pod on this node sends.
func (n *Node) FromPod(b []byte) {
	b = append([]byte(nil), b...) // the stack wants its bytes back
	p, ok := packet.Parse(b)
	if !ok {
		return
	}
	if p.HopLimit() <= 1 {
		reply := make([]byte, 1280)
		if l := packet.TimeExceeded(reply, n.cfg.Internal, p); l > 0 {
			n.toPod(reply[:l])
		}
		return
	}
	p.DecrementHopLimit()
	n.mu.Lock()
	pod := n.pods[p.Dst()]
	n.mu.Unlock()
	if pod != nil {
		pod.Inject(b)
		return
	}
	n.Send(b)
}

// Send encapsulates an IP packet of any origin and sends it to the gateway.
func (n *Node) Send(ip []byte) {
	etherType := neighbor.EtherTypeIPv4
	if len(ip) > 0 && ip[0]>>4 == 6 {
		etherType = neighbor.EtherTypeIPv6
	}
	n.mu.Lock()
	mac := n.gatewayMAC
	n.mu.Unlock()
	n.sendFrame(mac, etherType, ip)
}

func (n *Node) sendFrame(dst neighbor.MAC, etherType uint16, payload []byte) {
	head := make([]byte, geneve.HeaderLen+neighbor.EthernetHeaderLen)
	if n.cfg.Encapsulation == geneve.GeneveIP {
		geneve.PutHeader(head, geneve.GeneveIP, n.cfg.VNI, etherType)
		head = head[:geneve.HeaderLen]
	} else {
		geneve.PutHeader(head, n.cfg.Encapsulation, n.cfg.VNI, geneve.ProtocolEthernet)
		neighbor.PutEthernet(head[geneve.HeaderLen:], dst, n.mac, etherType)
	}
	n.SendDatagram(append(head, payload...))
}

// SendDatagram sends raw UDP payload to the gateway.
func (n *Node) SendDatagram(b []byte) {
	_, _ = n.cfg.Socket.WriteBatch([]underlay.Datagram{{Addr: n.cfg.Gateway, Body: b}})
}

func (n *Node) receive() error {
	const batch = 64
	bufs, sizes, addrs := make([][]byte, batch), make([]int, batch), make([]netip.AddrPort, batch)
	for i := range bufs {
		bufs[i] = make([]byte, 65535)
	}
	for {
		c, err := n.cfg.Socket.ReadBatch(bufs, sizes, addrs)
		if errors.Is(err, underlay.ErrWoken) {
			continue
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", n.cfg.Name, err)
		}
		for i := range c {
			n.fromGateway(bufs[i][:sizes[i]])
		}
	}
}

func (n *Node) fromGateway(b []byte) {
	h, payload, err := geneve.Decode(b)
	if err != nil || h.VNI != n.cfg.VNI || h.Encapsulation != n.cfg.Encapsulation {
		return
	}
	if h.Encapsulation == geneve.GeneveIP {
		n.once.Do(func() { close(n.resolved) })
		n.toPod(payload)
		return
	}
	f, ok := neighbor.DecodeFrame(payload)
	if !ok {
		return
	}
	if f.EtherType == neighbor.EtherTypeARP {
		n.arp(f)
		return
	}
	if f.Dst == n.mac { // as the kernel: only what is addressed to us
		n.toPod(f.Payload)
	}
}

func (n *Node) arp(f neighbor.Frame) {
	a, ok := neighbor.DecodeARP(f.Payload)
	if !ok {
		return
	}
	switch {
	case a.Op == neighbor.ARPReply && a.SenderIP == n.cfg.GatewayInternal:
		n.mu.Lock()
		n.gatewayMAC = a.SenderMAC
		n.mu.Unlock()
		n.once.Do(func() { close(n.resolved) })
	case a.Op == neighbor.ARPRequest && a.TargetIP == n.cfg.Internal:
		n.sendFrame(a.SenderMAC, neighbor.EtherTypeARP, neighbor.AppendARP(nil, neighbor.ARP{
			Op: neighbor.ARPReply, SenderMAC: n.mac, SenderIP: n.cfg.Internal, TargetMAC: a.SenderMAC, TargetIP: a.SenderIP,
		}))
	}
}

func (n *Node) toPod(ip []byte) {
	p, ok := packet.Parse(ip)
	if !ok {
		return
	}
	n.mu.Lock()
	pod, observe := n.pods[p.Dst()], n.observe
	n.mu.Unlock()
	if observe != nil {
		observe(p.Bytes)
	}
	if pod != nil {
		pod.Inject(p.Bytes)
	}
}
