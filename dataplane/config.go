package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/tunnel"
)

// MTU bounds of the tunnel, in bytes of inner IP packet.
const (
	DefaultMTU = 1340
	MinMTU     = 576   // RFC 791: what every IPv4 host accepts
	MinMTUIPv6 = 1280  // RFC 8200 section 5
	MaxMTU     = 65455 // 65535 less outer IPv6, UDP and WireGuard's 32 bytes
)

const maxVNI = 1<<24 - 1 // RFC 8926 section 3.4

// Config is everything the data plane acts on. It is a plain value: the caller
// builds a new one for every change and hands it to Apply.
type Config struct {
	// MTU is the largest inner IP packet in bytes, on both the tunnel and the
	// node side. Zero means DefaultMTU.
	MTU int

	// Tunnel holds keys, peer and endpoint of the WireGuard leg.
	Tunnel tunnel.Config
	// TunnelAddr and PeerTunnelAddr are the two ends inside the tunnel,
	// 169.254.18.1 (server) and 169.254.18.2 (client).
	TunnelAddr, PeerTunnelAddr netip.Addr
	// Further are the two ends inside each of Tunnel.Further.
	Further []TunnelEnds

	// Internal holds the gateway's addresses towards the nodes, at most one of
	// each family. Without one the gateway answers no ARP and no ping.
	Internal []netip.Addr
	// Nodes are the tunnels towards the nodes of the cluster.
	Nodes []Node
	// Routes say behind which node a local address lives. Longest prefix wins.
	Routes []Route

	// Remote maps the peer's pod and external CIDRs: Inside as this cluster
	// addresses them, Outside as the peer does. Of each family the external
	// CIDRs come last: the last one stands for the peer's gateway where its own
	// address cannot be routed.
	Remote []nat.Mapping
	// LocalPods are the pod CIDRs of this cluster.
	LocalPods []netip.Prefix
	// LocalExternal are the external CIDRs of this cluster. The first address
	// of the first prefix of each family is the unknown-source address: it
	// stands for every local sender that is not a pod.
	LocalExternal []netip.Prefix
	// Addresses map single hosts into LocalExternal (IP objects).
	Addresses []AddressMapping

	// Filter holds the chains that forwarded packets are judged by. The zero
	// value lets them pass.
	Filter filter.Config

	// Sources says how far it is checked that a pod lives on the node that its packets
	// come from. The zero value is SourceRouted.
	Sources SourceCheck
}

// TunnelEnds are the addresses of both gateways inside a tunnel.
type TunnelEnds struct{ Own, Peer netip.Addr }

// tunnelEnds are those of all tunnels, the first one first. Before there is a peering its
// addresses are not valid.
func (c *Config) tunnelEnds() []TunnelEnds {
	return append([]TunnelEnds{{c.TunnelAddr, c.PeerTunnelAddr}}, c.Further...)
}

// SourceCheck is what is dropped of the packets that a node sends as one of its pods.
type SourceCheck uint8

const (
	// SourceRouted: what has a route that names another node. A pod that is newer than
	// its route is let through, and counted as Fallback.
	SourceRouted SourceCheck = iota
	// SourceStrict: also what has no route, as new pods have none for a moment.
	SourceStrict
	// SourceUnchecked: nothing. Any node can send as any pod.
	SourceUnchecked
)

// sourceChecks are the names of the checks.
var sourceChecks = [...]string{SourceRouted: "routed", SourceStrict: "strict", SourceUnchecked: "off"}

// String returns the name of the check.
func (c SourceCheck) String() string { return sourceChecks[c] }

// MarshalText returns the name of the check.
func (c SourceCheck) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name of a check.
func (c *SourceCheck) UnmarshalText(b []byte) error {
	for i, name := range sourceChecks {
		if string(b) == name {
			*c = SourceCheck(i)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", b, strings.Join(sourceChecks[:], ", "))
}

// Node is the gateway's end of one node tunnel.
type Node struct {
	// Name is the node's name in Kubernetes.
	Name string
	// Underlay holds the addresses that the node's encapsulated packets come
	// from. The gateway sends to the one it heard from last, at first to the
	// first.
	Underlay []netip.Addr
	// VNI identifies the tunnel together with the underlay address.
	VNI geneve.VNI
	// Internal holds the node's own addresses inside the tunnel.
	Internal []netip.Addr
}

// Route says that Dst lives behind Node.
type Route struct {
	Dst  netip.Prefix
	Node string
}

// AddressMapping makes the host Inside reachable from the peer as Outside,
// which lies in an external CIDR of this cluster.
type AddressMapping struct {
	Inside, Outside netip.Addr
}

// unroutable are destinations and sources that no cluster may hand to another:
// a remapped prefix that overlaps one of them is refused, so that a packet to
// them matches no mapping (RFC 6890).
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/127"),
	netip.MustParsePrefix("::ffff:0:0/96"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// Validate reports everything that is wrong with c, joined. Apply does so too.
func (c Config) Validate() error {
	c.MTU = cmp.Or(c.MTU, DefaultMTU)
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.MTU < MinMTU || c.MTU > MaxMTU {
		fail("mtu %d: must be %d to %d", c.MTU, MinMTU, MaxMTU)
	}
	if c.usesIPv6() && c.MTU < MinMTUIPv6 {
		fail("mtu %d: IPv6 needs at least %d", c.MTU, MinMTUIPv6)
	}
	for _, p := range c.prefixes() {
		if !p.IsValid() {
			fail("prefix %s: not a prefix", p)
		}
		for _, u := range unroutable {
			if p.Overlaps(u) {
				fail("prefix %s: overlaps %s, which cannot be routed between clusters", p, u)
			}
		}
	}
	for _, m := range c.Remote {
		for _, l := range append(c.LocalPods[:len(c.LocalPods):len(c.LocalPods)], c.LocalExternal...) {
			if m.Inside.Overlaps(l) {
				fail("remote prefix %s (inside %s): overlaps the local prefix %s; remap it", m.Outside, m.Inside, l)
			}
		}
	}
	for _, p := range c.LocalPods {
		for _, e := range c.LocalExternal {
			if p.Overlaps(e) {
				fail("pod prefix %s: overlaps the external prefix %s", p, e)
			}
		}
	}
	errs = append(errs, c.validateOwn()...)
	errs = append(errs, c.validateAddresses()...)
	errs = append(errs, c.validateNodes()...)
	errs = append(errs, c.Filter.Validate())
	return errors.Join(errs...)
}

// validateOwn checks the gateway's own addresses.
func (c *Config) validateOwn() (errs []error) {
	var seen [2]netip.Addr
	for _, a := range c.Internal {
		if !isStation(a) || a.IsLoopback() {
			errs = append(errs, fmt.Errorf("internal address %s: cannot be the gateway's", a))
		}
		s := &seen[family(a.Is6())]
		if s.IsValid() {
			errs = append(errs, fmt.Errorf("internal addresses %s and %s: only one of each family", *s, a))
		}
		*s = a
	}
	if len(c.Further) != len(c.Tunnel.Further) {
		errs = append(errs, fmt.Errorf("%d further tunnels with the addresses of %d", len(c.Tunnel.Further), len(c.Further)))
	}
	ends := make(map[netip.Addr]bool)
	for i, e := range c.tunnelEnds() {
		if a := e.Own; (a.IsValid() || i > 0) && (!isStation(a) || a.IsLoopback() || ends[a]) {
			errs = append(errs, fmt.Errorf("tunnel address %s: cannot be the gateway's", a))
		}
		ends[e.Own] = true
	}
	return errs
}

// validateAddresses checks the address mappings.
func (c *Config) validateAddresses() (errs []error) {
	unknown := unknownSources(c.LocalExternal)
	seen := make(map[netip.Addr]netip.Addr, len(c.Addresses))
	for _, a := range c.Addresses {
		switch other, dup := seen[a.Outside]; {
		case dup:
			errs = append(errs, fmt.Errorf("address mappings %s and %s: both are %s", other, a.Inside, a.Outside))
		case !containsAddr(c.LocalExternal, a.Outside):
			errs = append(errs, fmt.Errorf("address mapping %s: %s is in no local external CIDR", a.Inside, a.Outside))
		case a.Outside == unknown[family(a.Outside.Is6())]:
			errs = append(errs, fmt.Errorf("address mapping %s: %s stands for senders that are not pods", a.Inside, a.Outside))
		}
		seen[a.Outside] = a.Inside
	}
	return errs
}

// validateNodes checks that every datagram belongs to at most one node and
// that every route leads to a node.
func (c *Config) validateNodes() (errs []error) {
	names := make(map[string]bool, len(c.Nodes))
	seen := make(map[tunnelKey]string, len(c.Nodes))
	for _, n := range c.Nodes {
		if names[n.Name] {
			errs = append(errs, fmt.Errorf("node %q: named twice", n.Name))
		}
		names[n.Name] = true
		if len(n.Underlay) == 0 {
			errs = append(errs, fmt.Errorf("node %q: no underlay address", n.Name))
		}
		if n.VNI > maxVNI {
			errs = append(errs, fmt.Errorf("node %q: VNI %d has more than 24 bits", n.Name, n.VNI))
		}
		for _, a := range n.Underlay {
			if !isStation(a) {
				errs = append(errs, fmt.Errorf("node %q: underlay address %s cannot be a node's", n.Name, a))
			}
			k := tunnelKey{a.Unmap(), n.VNI}
			if other, dup := seen[k]; dup {
				errs = append(errs, fmt.Errorf("nodes %q and %q: same underlay address %s and VNI %d", other, n.Name, a, n.VNI))
			}
			seen[k] = n.Name
		}
	}
	for _, r := range c.Routes {
		if !r.Dst.IsValid() {
			errs = append(errs, fmt.Errorf("route to node %q: not a prefix", r.Node))
		}
		if !names[r.Node] {
			errs = append(errs, fmt.Errorf("route %s: no node %q", r.Dst, r.Node))
		}
	}
	return errs
}

func (c *Config) usesIPv6() bool {
	for _, p := range c.prefixes() {
		if p.Addr().Is6() {
			return true
		}
	}
	return false
}

// prefixes returns all prefixes that packets are forwarded from or to.
func (c *Config) prefixes() []netip.Prefix {
	ps := append(c.LocalPods[:len(c.LocalPods):len(c.LocalPods)], c.LocalExternal...)
	for _, m := range c.Remote {
		ps = append(ps, m.Inside, m.Outside)
	}
	return ps
}

// unknownSources returns the unknown-source address of each family, the zero
// Addr where there is none.
func unknownSources(external []netip.Prefix) (unknown [2]netip.Addr) {
	for _, p := range external {
		if u := &unknown[family(p.Addr().Is6())]; !u.IsValid() {
			*u = p.Masked().Addr()
		}
	}
	return unknown
}

// isStation tells whether a can be the address of one host.
func isStation(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == ""
}

func containsAddr(ps []netip.Prefix, a netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
