package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
	"github.com/sluice-net/sluice/tunnel"
	"github.com/sluice-net/sluice/underlay"
)

// NodeConfig describes one simulated node of a cluster.
type NodeConfig struct {
	Name string
	// Socket is where the node's tunnels end, in memory or real. The node
	// closes it.
	Socket tunnel.Socket
	MTU    int
	// SuperSegments lets pods hand over TCP in packets of up to 64 KiB with
	// unfinished checksums, as a kernel does on a virtual link.
	SuperSegments bool
	// CNI takes packets to addresses that are neither of a pod of this node nor
	// behind a gateway. They are its own. Nil drops them.
	CNI func(ip []byte)
}

// Node is a Kubernetes node in miniature: it routes between its pods, which are
// TCP/IP stacks in memory, and gateways, to which it speaks the real
// encapsulation.
type Node struct {
	cfg NodeConfig
	mac neighbor.MAC

	mu      sync.Mutex
	pods    map[netip.Addr]*netstack.Stack
	stacks  map[*netstack.Stack]context.CancelFunc // nil: not started yet
	links   []*Link
	ctx     context.Context // of Run; nil before
	wg      sync.WaitGroup
	observe func(ip []byte)
}

// NewNode builds a node without pods and without gateways. Run connects it.
func NewNode(cfg NodeConfig) *Node {
	return &Node{
		cfg: cfg, mac: neighbor.StableMAC([]byte("node " + cfg.Name)),
		pods: make(map[netip.Addr]*netstack.Stack), stacks: make(map[*netstack.Stack]context.CancelFunc),
	}
}

// AddPod starts a pod with these addresses. It may be called before Run.
func (n *Node) AddPod(addrs ...netip.Addr) (*netstack.Stack, error) {
	pod, err := netstack.New(netstack.Config{MTU: n.cfg.MTU, SuperSegments: n.cfg.SuperSegments})
	if err != nil {
		return nil, err
	}
	if err := pod.SetAddresses(addrs); err != nil {
		pod.Close()
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		n.pods[a] = pod
	}
	n.stacks[pod] = nil
	if n.ctx != nil {
		n.startPodLocked(pod)
	}
	return pod, nil
}

// RemovePod ends a pod.
func (n *Node) RemovePod(pod *netstack.Stack) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a, p := range n.pods {
		if p == pod {
			delete(n.pods, a)
		}
	}
	if cancel := n.stacks[pod]; cancel != nil {
		cancel()
	} else {
		pod.Close()
	}
	delete(n.stacks, pod)
}

func (n *Node) startPodLocked(pod *netstack.Stack) {
	ctx, cancel := context.WithCancel(n.ctx)
	n.stacks[pod] = cancel
	n.wg.Go(func() {
		_ = pod.Run(ctx, n.FromPod)
		pod.Close()
	})
}

// Observe calls f with every IP packet that arrives from a gateway, before it is
// delivered.
func (n *Node) Observe(f func(ip []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observe = f
}

// Run connects the node to its gateways until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.mu.Lock()
	n.ctx = ctx
	for pod := range n.stacks {
		n.startPodLocked(pod)
	}
	for _, l := range n.links {
		n.startLinkLocked(l)
	}
	n.mu.Unlock()
	n.wg.Go(func() {
		<-ctx.Done()
		n.cfg.Socket.Close()
	})
	err := n.receive()
	cancel()
	n.wg.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Connect adds the tunnel to a gateway. It may be called before Run.
func (n *Node) Connect(cfg LinkConfig) *Link {
	l := &Link{cfg: cfg, node: n, resolved: make(chan struct{}), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links = append(n.links, l)
	if n.ctx != nil {
		n.startLinkLocked(l)
	}
	return l
}

func (n *Node) startLinkLocked(l *Link) {
	ctx := n.ctx
	n.wg.Go(func() { l.resolve(ctx) })
}

// FromPod routes a packet that a pod on this node sends.
func (n *Node) FromPod(b []byte) {
	b = slices.Clone(b) // the stack wants its bytes back
	p, ok := packet.Parse(b)
	if !ok {
		return
	}
	n.mu.Lock()
	pod, link := n.pods[p.Dst()], n.linkLocked(p.Dst())
	n.mu.Unlock()
	if p.HopLimit() <= 1 {
		if link != nil && link.cfg.Internal.Is4() == p.Src().Is4() && !p.IsICMPError() {
			n.Deliver(packettest.TimeExceeded(link.cfg.Internal, b))
		}
		return
	}
	if p.Version == 4 {
		b[8]--
		packettest.FinishHeader(b)
	} else {
		b[7]--
	}
	switch {
	case pod != nil:
		pod.Inject(b)
	case link != nil:
		link.Send(b)
	case n.cfg.CNI != nil:
		n.cfg.CNI(b)
	}
}

// linkLocked returns the gateway behind which an address is, by the longest
// prefix, or nil.
func (n *Node) linkLocked(dst netip.Addr) (link *Link) {
	longest := -1
	for _, l := range n.links {
		if bits := l.covers(dst); bits > longest {
			link, longest = l, bits
		}
	}
	return link
}

func (n *Node) receive() error {
	const batch = 64
	bufs, sizes, from := make([][]byte, batch), make([]int, batch), make([]underlay.Origin, batch)
	for i := range bufs {
		bufs[i] = make([]byte, 65535)
	}
	for {
		c, err := n.cfg.Socket.ReadBatch(bufs, sizes, from)
		if errors.Is(err, underlay.ErrWoken) {
			continue
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", n.cfg.Name, err)
		}
		for i := range c {
			n.fromGateway(from[i].Addr.Addr(), bufs[i][:sizes[i]])
		}
	}
}

// fromGateway takes a datagram of a tunnel: as the kernel, only from the tunnel's
// other end.
func (n *Node) fromGateway(from netip.Addr, b []byte) {
	h, payload, err := geneve.Decode(b)
	if err != nil {
		return
	}
	n.mu.Lock()
	i := slices.IndexFunc(n.links, func(l *Link) bool {
		return h.VNI == l.cfg.VNI && h.Encapsulation == l.cfg.Encapsulation && from == l.cfg.Gateway.Addr()
	})
	var l *Link
	if i >= 0 {
		l = n.links[i]
	}
	n.mu.Unlock()
	if l != nil {
		l.receive(payload)
	}
}

// Deliver gives a packet to the pod of this node that it is for, and reports
// whether there is one.
func (n *Node) Deliver(ip []byte) bool {
	p, ok := packet.Parse(ip)
	if !ok {
		return false
	}
	n.mu.Lock()
	pod := n.pods[p.Dst()]
	n.mu.Unlock()
	if pod != nil {
		pod.Inject(p.Bytes)
	}
	return pod != nil
}

// arrived takes an IP packet from a gateway.
func (n *Node) arrived(ip []byte) {
	p, ok := packet.Parse(ip)
	if !ok {
		return
	}
	n.mu.Lock()
	observe := n.observe
	n.mu.Unlock()
	if observe != nil {
		observe(p.Bytes)
	}
	if !n.Deliver(p.Bytes) && n.cfg.CNI != nil {
		n.cfg.CNI(slices.Clone(p.Bytes))
	}
}
