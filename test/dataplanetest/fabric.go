package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/dataplane/netstack"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/tunnel"
)

// The addressing of a Fabric. Both clusters use the same CIDRs; A sees B's as
// RemappedB, B sees A's as RemappedA.
var (
	PodCIDR        = netip.MustParsePrefix("10.243.0.0/16")
	PodCIDR6       = netip.MustParsePrefix("fd00:243::/48")
	ExternalCIDR   = netip.MustParsePrefix("10.70.0.0/16")
	RemappedA      = netip.MustParsePrefix("10.72.0.0/16")
	RemappedA6     = netip.MustParsePrefix("fd00:72::/48")
	ExternalA      = netip.MustParsePrefix("10.74.0.0/16")
	RemappedB      = netip.MustParsePrefix("10.71.0.0/16")
	RemappedB6     = netip.MustParsePrefix("fd00:71::/48")
	ExternalB      = netip.MustParsePrefix("10.73.0.0/16")
	GatewayAddress = netip.MustParseAddr("10.80.0.1") // towards the nodes, in both clusters
)

// Options describe a Fabric. The zero value is two clusters of one Geneve node
// each with an MTU of 1340.
type Options struct {
	// NodesA and NodesB are what the nodes of each cluster speak.
	NodesA, NodesB []geneve.Encapsulation
	MTU            int
	SuperSegments  bool // see NodeConfig
	// Sockets is how many sockets each gateway has towards its nodes. Zero is one.
	Sockets int
	Logger  *slog.Logger
}

// Fabric is two clusters with overlapping CIDRs, joined by two gateways, all in
// memory. Only wireguard-go and the TCP/IP stacks of the pods are not ours.
type Fabric struct {
	Network *Network
	A, B    *Cluster

	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

// Cluster is one side of a Fabric.
type Cluster struct {
	Gateway *dataplane.Forwarder
	// Config is what the gateway was last given by the fabric.
	Config dataplane.Config
	Nodes  []*Node
	// Node sockets' addresses, and the gateway's own.
	NodeAddrs   []netip.AddrPort
	GatewayAddr netip.AddrPort

	index int     // 0: A, 1: B
	links []*Link // of Nodes
}

// NewFabric builds and starts a fabric. Close ends it.
func NewFabric(o Options) (*Fabric, error) {
	if o.MTU == 0 {
		o.MTU = dataplane.DefaultMTU
	}
	o.Sockets = max(1, o.Sockets)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fabric{Network: NewNetwork(), cancel: cancel}
	keyA, keyB := tunnel.GeneratePrivateKey(), tunnel.GeneratePrivateKey()
	var err error
	if f.A, err = f.newCluster(0, o, o.NodesA, keyA, keyB.Public()); err != nil {
		return nil, err
	}
	if f.B, err = f.newCluster(1, o, o.NodesB, keyB, keyA.Public()); err != nil {
		return nil, err
	}
	for _, c := range []*Cluster{f.A, f.B} {
		f.run(func() error { return c.Gateway.Run(ctx) })
		for _, n := range c.Nodes {
			f.run(func() error { return n.Run(ctx) })
		}
	}
	return f, nil
}

func (f *Fabric) run(fn func() error) {
	f.wg.Go(func() {
		if err := fn(); err != nil {
			f.mu.Lock()
			f.errs = append(f.errs, err)
			f.mu.Unlock()
		}
	})
}

// Close stops everything, waits for it, and returns what went wrong on the way.
func (f *Fabric) Close() error {
	f.cancel()
	f.wg.Wait()
	return errors.Join(f.errs...)
}

// wan is where the gateways meet; A is the server.
func wan(index int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + index)}), 51840)
}

func (f *Fabric) newCluster(index int, o Options, speaks []geneve.Encapsulation, key tunnel.PrivateKey, peer tunnel.PublicKey) (*Cluster, error) {
	if len(speaks) == 0 {
		speaks = []geneve.Encapsulation{geneve.Geneve}
	}
	c := &Cluster{
		index:       index,
		GatewayAddr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, byte(index), 2}), geneve.DefaultPort),
		Config:      clusterConfig(index, o.MTU, key, peer),
	}
	for i, e := range speaks {
		c.addNode(f.Network, i, e, o)
	}
	var err error
	c.Gateway, err = dataplane.New(dataplane.Options{
		Underlays: Underlays(f.Network.ListenShared(c.GatewayAddr, o.Sockets)),
		Logger:    o.Logger,
		Tunnel: tunnel.Options{
			Logger: o.Logger,
			Listen: func(port uint16) (tunnel.Socket, error) {
				return f.Network.Listen(netip.AddrPortFrom(wan(index).Addr(), port)), nil
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return c, c.Gateway.Apply(c.Config)
}

// Underlays are sockets as dataplane.Options wants them.
func Underlays(sockets []*Socket) (out []dataplane.Underlay) {
	for _, s := range sockets {
		out = append(out, s)
	}
	return out
}

// clusterConfig is what a controller would make of the objects of one side.
func clusterConfig(index, mtu int, key tunnel.PrivateKey, peer tunnel.PublicKey) dataplane.Config {
	cfg := dataplane.Config{
		MTU:            mtu,
		TunnelAddr:     netip.AddrFrom4([4]byte{169, 254, 18, byte(1 + index)}),
		PeerTunnelAddr: netip.AddrFrom4([4]byte{169, 254, 18, byte(2 - index)}),
		Internal:       []netip.Addr{GatewayAddress},
		LocalPods:      []netip.Prefix{PodCIDR, PodCIDR6},
		LocalExternal:  []netip.Prefix{ExternalCIDR},
		Remote: []nat.Mapping{
			{Inside: RemappedB, Outside: PodCIDR},
			{Inside: RemappedB6, Outside: PodCIDR6},
			{Inside: ExternalB, Outside: ExternalCIDR},
		},
	}
	if index == 1 {
		cfg.Remote[0].Inside, cfg.Remote[1].Inside, cfg.Remote[2].Inside = RemappedA, RemappedA6, ExternalA
	}
	cfg.Tunnel = tunnel.Config{
		PrivateKey: key, PeerKey: peer, ListenPort: wan(index).Port(), MTU: mtu,
		AllowedIPs: []netip.Prefix{PodCIDR, PodCIDR6, ExternalCIDR, netip.PrefixFrom(cfg.PeerTunnelAddr, 32)},
	}
	if index == 1 {
		cfg.Tunnel.Endpoint = wan(0).String()
	}
	return cfg
}

func (c *Cluster) addNode(network *Network, i int, e geneve.Encapsulation, o Options) {
	name := fmt.Sprintf("node-%c%d", 'a'+rune(c.index), i+1)
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, byte(c.index), byte(11 + i)}), geneve.DefaultPort)
	internal := netip.AddrFrom4([4]byte{10, 80, 0, byte(11 + i)})
	vni := geneve.VNI(0x100*(c.index+1) + i)
	node := NewNode(NodeConfig{Name: name, Socket: network.Listen(addr), MTU: o.MTU, SuperSegments: o.SuperSegments})
	c.links = append(c.links, node.Connect(LinkConfig{
		Gateway: c.GatewayAddr, VNI: vni, Encapsulation: e, Internal: internal, GatewayInternal: GatewayAddress,
	}))
	c.Nodes = append(c.Nodes, node)
	c.NodeAddrs = append(c.NodeAddrs, addr)
	c.Config.Nodes = append(c.Config.Nodes, dataplane.Node{
		Name: name, Underlay: []netip.Addr{addr.Addr()}, VNI: vni, Internal: []netip.Addr{internal},
	})
	c.Config.Routes = append(c.Config.Routes,
		dataplane.Route{Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 243, byte(i + 1), 0}), 24), Node: name},
		dataplane.Route{Dst: podSubnet6(i), Node: name})
}

func podSubnet6(node int) netip.Prefix {
	a := PodCIDR6.Addr().As16()
	a[7] = byte(node + 1)
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// PodAddr returns the address of a pod on a node, counted from 0, in its own
// cluster.
func PodAddr(node, pod int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 243, byte(node + 1), byte(10 + pod)})
}

// PodAddr6 is PodAddr for IPv6.
func PodAddr6(node, pod int) netip.Addr {
	a := podSubnet6(node).Addr().As16()
	a[15] = byte(10 + pod)
	return netip.AddrFrom16(a)
}

// Through returns how a host of the other cluster is addressed: the host bits
// of a in the prefix.
func Through(prefix netip.Prefix, a netip.Addr) netip.Addr {
	out, host := prefix.Addr().AsSlice(), a.AsSlice()
	for i := range out {
		if bits := prefix.Bits() - 8*i; bits <= 0 {
			out[i] = host[i]
		} else if bits < 8 {
			out[i] |= host[i] & (0xff >> bits)
		}
	}
	r, _ := netip.AddrFromSlice(out)
	return r
}

// AddPod starts the pod PodAddr(node, pod), with its IPv6 address as well.
func (c *Cluster) AddPod(node, pod int) (*netstack.Stack, error) {
	return c.Nodes[node].AddPod(PodAddr(node, pod), PodAddr6(node, pod))
}

// WaitReady waits until every node has found its gateway and the gateways have
// found each other: a ping of the far gateway is answered.
func (f *Fabric) WaitReady(ctx context.Context) error {
	for _, c := range []*Cluster{f.A, f.B} {
		for _, l := range c.links {
			select {
			case <-l.Ready():
			case <-ctx.Done():
				return fmt.Errorf("node %s has not found its gateway: %w", l.node.cfg.Name, ctx.Err())
			}
		}
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := f.B.Gateway.Ping(attempt, f.B.Config.PeerTunnelAddr) // B is the client
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("gateways have not found each other: %w", err)
		}
	}
}
