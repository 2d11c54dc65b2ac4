package limit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
)

// headLen is the length of what stands before an IP packet towards the node.
const headLen = geneve.HeaderLen + neighbor.EthernetHeaderLen

// Gateway is two loops between two sockets.
type Gateway struct {
	cfg     Config
	table   *nat.Table
	mac     neighbor.MAC // our own in the node's tunnel
	node    *socket
	tunnel  *socket
	learned atomic.Uint64 // the node's MAC and above it the encapsulation it speaks; 0: unknown

	Stats Stats
}

// Stats count what did not pass. Each is written by one thread.
type Stats struct {
	// DroppedEgress and DroppedIngress are packets that were no good or had no way.
	DroppedEgress, DroppedIngress atomic.Uint64
	// Refused are messages that the kernel did not send.
	Refused atomic.Uint64
}

// New opens the sockets.
func New(cfg Config) (*Gateway, error) {
	table, err := nat.NewTable(cfg.Translation)
	if err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, table: table, mac: neighbor.StableMAC([]byte(cfg.Internal.String()))}
	// A super-segment of UDP comes whole only with GRO, see egress.
	if g.node, err = listen(cfg.NodeListen, true); err != nil {
		return nil, fmt.Errorf("towards the node: %w", err)
	}
	if g.tunnel, err = listen(cfg.TunnelListen, true); err != nil {
		g.node.close()
		return nil, fmt.Errorf("towards the peer: %w", err)
	}
	g.node.alone, g.tunnel.alone = cfg.Alone, cfg.Alone
	return g, nil
}

// Run carries packets until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	done := make(chan error, 2)
	loop := func(f func() error) {
		runtime.LockOSThread() // one thread is one direction: the kernel's scheduler knows it
		defer runtime.UnlockOSThread()
		done <- f()
	}
	go loop(newEgress(g).run)
	go loop(newIngress(g).run)
	g.ask()
	running := 2
	var err error
	select {
	case <-ctx.Done():
	case err = <-done:
		running--
	}
	g.node.shut()
	g.tunnel.shut()
	for range running {
		err = errors.Join(err, <-done)
	}
	g.node.close()
	g.tunnel.close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// write sends one message outside the loops' batches.
func write(s *socket, b []byte, to netip.AddrPort) {
	var sa unix.Sockaddr
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	} else {
		sa = &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	}
	_ = unix.Sendto(s.fd, b, unix.MSG_DONTWAIT, sa) // lost like any datagram
}

// learn remembers how the node is reached.
func (g *Gateway) learn(mac neighbor.MAC, e geneve.Encapsulation) {
	v := uint64(e+1) << 48
	for i, b := range mac {
		v |= uint64(b) << (8 * i)
	}
	if g.learned.Load() != v { // the other thread reads the cache line
		g.learned.Store(v)
	}
}

// head writes what stands before packets for the node, false while that is unknown.
func (g *Gateway) head(b *[headLen]byte) bool {
	v := g.learned.Load()
	if v == 0 {
		return false
	}
	var mac neighbor.MAC
	for i := range mac {
		mac[i] = byte(v >> (8 * i))
	}
	geneve.PutHeader(b[:], geneve.Encapsulation(v>>48-1), g.cfg.VNI, geneve.ProtocolEthernet)
	neighbor.PutEthernet(b[geneve.HeaderLen:], mac, g.mac, neighbor.EtherTypeIPv4)
	return true
}

// ask asks the node for its MAC address in both encapsulations.
func (g *Gateway) ask() {
	for _, e := range []geneve.Encapsulation{geneve.VXLAN, geneve.Geneve} {
		g.writeARP(e, neighbor.Broadcast, neighbor.ARP{
			Op: neighbor.ARPRequest, SenderMAC: g.mac, SenderIP: g.cfg.Internal, TargetIP: g.cfg.NodeInternal,
		})
	}
}

// answer takes an ARP packet from the node.
func (g *Gateway) answer(e geneve.Encapsulation, b []byte) {
	a, ok := neighbor.DecodeARP(b)
	if !ok {
		return
	}
	g.learn(a.SenderMAC, e)
	if a.Op == neighbor.ARPRequest && a.TargetIP == g.cfg.Internal {
		g.writeARP(e, a.SenderMAC, neighbor.ARP{
			Op: neighbor.ARPReply, SenderMAC: g.mac, SenderIP: a.TargetIP, TargetMAC: a.SenderMAC, TargetIP: a.SenderIP,
		})
	}
}

func (g *Gateway) writeARP(e geneve.Encapsulation, dst neighbor.MAC, a neighbor.ARP) {
	b := make([]byte, headLen)
	geneve.PutHeader(b, e, g.cfg.VNI, geneve.ProtocolEthernet)
	neighbor.PutEthernet(b[geneve.HeaderLen:], dst, g.mac, neighbor.EtherTypeARP)
	write(g.node, neighbor.AppendARP(b, a), g.cfg.Node)
}
