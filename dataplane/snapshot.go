package dataplane

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/dataplane/neighbor"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
)

// snapshot is everything the packet path reads: built from a Config off the
// path, immutable, swapped with one atomic store. The zero snapshot is valid
// and drops everything.
type snapshot struct {
	cfg Config
	// pathMTU is the largest packet for the peer: cfg.MTU, or what SetPathMTU says if that
	// is less.
	pathMTU int
	// ends are the peer's addresses inside the tunnels by ours, and ours by the peer's.
	ends, peerEnds map[netip.Addr]netip.Addr

	tunnels   map[tunnelKey]*nodeTunnel
	nodes     []*nodeTunnel // sorted by name
	byName    map[string]*nodeTunnel
	byAddress map[netip.Addr]*nodeTunnel // the nodes' own addresses
	routes    *bart.Table[*nodeTunnel]

	table *nat.Table
	// pods are the IP objects whose host is a pod. Unlike those of other hosts
	// they are applied only to connections that came in through them: a pod
	// also answers under its own remapped address.
	pods *nat.Table

	// filter is nil when there are no chains.
	filter *filter.Filter

	// unknown is the unknown-source address of each family (index by family);
	// peerUnknown is the peer's, as this cluster sees it.
	unknown, peerUnknown [2]netip.Addr
}

// family indexes per-family arrays.
func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// newSnapshot builds the snapshot of a validated configuration, for so many egress
// loops. states holds what is known about the nodes of the snapshot before, by node and
// VNI; counting is that snapshot's filter, whose counters go on.
func newSnapshot(cfg Config, port uint16, loops int, states map[string]*nodeState, counting *filter.Filter) (*snapshot, error) {
	s := &snapshot{
		cfg:       cfg,
		ends:      make(map[netip.Addr]netip.Addr),
		peerEnds:  make(map[netip.Addr]netip.Addr),
		tunnels:   make(map[tunnelKey]*nodeTunnel, len(cfg.Nodes)),
		byName:    make(map[string]*nodeTunnel, len(cfg.Nodes)),
		byAddress: make(map[netip.Addr]*nodeTunnel, 2*len(cfg.Nodes)),
		routes:    new(bart.Table[*nodeTunnel]),
	}
	for _, e := range cfg.tunnelEnds() {
		s.ends[e.Own], s.peerEnds[e.Peer] = e.Peer, e.Own
	}
	for _, n := range cfg.Nodes {
		s.addNode(n, port, loops, states)
	}
	slices.SortFunc(s.nodes, func(a, b *nodeTunnel) int { return strings.Compare(a.name, b.name) })
	for _, r := range cfg.Routes {
		s.routes.Insert(r.Dst.Masked(), s.byName[r.Node])
	}

	var hosts, pods []nat.Mapping
	for _, a := range cfg.Addresses {
		m := nat.Mapping{Inside: hostPrefix(a.Inside), Outside: hostPrefix(a.Outside)}
		if containsAddr(cfg.LocalPods, a.Inside) {
			pods = append(pods, m)
		} else {
			hosts = append(hosts, m)
		}
	}
	var err error
	if s.table, err = nat.NewTable(nat.Config{Remote: cfg.Remote, Local: hosts}); err != nil {
		return nil, fmt.Errorf("translation: %w", err)
	}
	if s.pods, err = nat.NewTable(nat.Config{Local: pods}); err != nil {
		return nil, fmt.Errorf("address mappings: %w", err)
	}

	if s.filter, err = filter.Compile(cfg.Filter, counting); err != nil {
		return nil, err
	}

	s.unknown = unknownSources(cfg.LocalExternal)
	for _, m := range cfg.Remote {
		// The last remote mapping of a family is its external CIDR by
		// convention of the caller; any inside address serves.
		s.peerUnknown[family(m.Inside.Addr().Is6())] = m.Inside.Masked().Addr()
	}
	return s, nil
}

func (s *snapshot) addNode(n Node, port uint16, loops int, states map[string]*nodeState) {
	t := &nodeTunnel{
		name: n.Name, vni: n.VNI, internal: n.Internal,
		// Hashed, not drawn: the nodes' ARP caches stay right over a restart
		// of the gateway or a fail-over to another replica.
		mac: neighbor.StableMAC(s.macSeed(n.VNI)),
	}
	for _, a := range n.Underlay {
		t.remotes = append(t.remotes, netip.AddrPortFrom(a.Unmap(), port))
		s.tunnels[tunnelKey{a.Unmap(), n.VNI}] = t
		s.byAddress[a.Unmap()] = t
	}
	for _, a := range n.Internal {
		s.byAddress[a] = t
	}
	id := fmt.Sprintf("%s/%d", n.Name, n.VNI)
	if states[id] == nil {
		states[id] = newNodeState(loops)
	}
	t.state = states[id]
	s.nodes = append(s.nodes, t)
	s.byName[n.Name] = t
}

func (s *snapshot) macSeed(vni geneve.VNI) []byte {
	var seed []byte
	for _, a := range s.cfg.Internal {
		seed = append(seed, a.AsSlice()...)
	}
	return binary.BigEndian.AppendUint32(seed, uint32(vni))
}

// notFound returns v, the verdict on what is in none of the tables, unless there
// are no tables yet.
func (s *snapshot) notFound(v Verdict) Verdict {
	if s.tunnels == nil {
		return DropNoConfiguration
	}
	return v
}

// peerEnd returns the peer's address inside the tunnel in which own is ours; ok is false where
// own is no such address.
func (s *snapshot) peerEnd(own netip.Addr) (peer netip.Addr, ok bool) {
	if own == s.cfg.TunnelAddr {
		return s.cfg.PeerTunnelAddr, true
	}
	if len(s.cfg.Further) > 0 {
		peer, ok = s.ends[own]
	}
	return peer, ok
}

// isPeerEnd tells whether a is the peer's address inside a tunnel.
func (s *snapshot) isPeerEnd(a netip.Addr) bool {
	_, ok := s.peerEnds[a]
	return ok
}

// internal returns the gateway's address towards the nodes, or the zero Addr.
func (s *snapshot) internal(v6 bool) netip.Addr {
	for _, a := range s.cfg.Internal {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// isOwn tells whether a node's packet to a is for the gateway itself.
func (s *snapshot) isOwn(a netip.Addr) bool {
	for _, i := range s.cfg.Internal {
		if i == a {
			return true
		}
	}
	return false
}

// RouterLinkLocal is an address that the gateway claims on every node tunnel, so
// that a node can route IPv6 via a next hop where the internal CIDR is IPv4 only: the
// kernel wants one of the same family, and with routes by device every pod of the peer
// would be a neighbor of its own, to be resolved and kept. An address of link-local
// scope is unique enough on a link of two stations.
var RouterLinkLocal = netip.MustParseAddr("fe80::1")

// answersFor tells which addresses the gateway claims on node tunnels: its own,
// RouterLinkLocal, and by proxy the peer's (RFC 1027, RFC 4389), so that a node
// may also route to them by device.
func (s *snapshot) answersFor(a netip.Addr) bool {
	if s.isOwn(a) || a == RouterLinkLocal {
		return true
	}
	_, ok := s.table.Outside(a)
	return ok
}

// route returns the node that a local address lives behind. An address without
// a route, a pod newer than its route, goes to a stable choice among the nodes
// heard from: any node reaches any pod through the CNI.
func (s *snapshot) route(a netip.Addr) (t *nodeTunnel, fallback bool) {
	if t, ok := s.routes.Lookup(a); ok {
		return t, false
	}
	if len(s.nodes) == 0 {
		return nil, false
	}
	h := fnv.New32a()
	b := a.As16()
	h.Write(b[:])
	first := int(h.Sum32() % uint32(len(s.nodes)))
	for i := range s.nodes {
		if t := s.nodes[(first+i)%len(s.nodes)]; t.resolved() {
			return t, true
		}
	}
	return s.nodes[first], true
}

// icmpSource returns the address that errors are sent from, towards the nodes
// or towards the peer. The peer accepts our external CIDR and remaps it to
// something its nodes have a route for, which a link-local tunnel address is not.
func (s *snapshot) icmpSource(v6, towardsPeer bool) netip.Addr {
	if a := s.internal(v6); a.IsValid() && !towardsPeer {
		return a
	}
	if a := s.unknown[family(v6)]; a.IsValid() {
		return a
	}
	if towardsPeer && s.cfg.TunnelAddr.Is6() == v6 {
		return s.cfg.TunnelAddr
	}
	// IPv6 often has pod CIDRs only. Their first address is no pod (RFC 4291
	// section 2.6.1 gives it to routers), and without any source a packet that
	// is too big would vanish without a word.
	for _, p := range s.cfg.LocalPods {
		if p.Addr().Is6() == v6 {
			return p.Masked().Addr()
		}
	}
	return netip.Addr{}
}

func isIPv6(p *packet.Packet) bool { return p.Version == 6 }

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
