package fabric

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

const (
	// DefaultMTU is that of an InternalFabric that does not say.
	DefaultMTU = 1340
	minMTU     = 576   // RFC 791: what every IPv4 host accepts
	minMTUIPv6 = 1280  // RFC 8200 section 5
	maxMTU     = 65455 // what the gateway carries
	// maxVNI is the largest 24-bit number (RFC 8926 section 3.4).
	maxVNI = 1<<24 - 1
	// maxLinkName is what Linux leaves of IFNAMSIZ.
	maxLinkName = 15
)

// overhead is what encapsulation adds to a packet: the outer IP header, UDP,
// Geneve (RFC 8926 section 3.1) or VXLAN, both eight bytes, and the inner
// Ethernet header.
func overhead(gateway netip.Addr) int {
	const ipv4, ipv6, udp, tunnel, ethernet = 20, 40, 8, 8, 14
	if gateway.Is4() {
		return ipv4 + udp + tunnel + ethernet
	}
	return ipv6 + udp + tunnel + ethernet
}

// candidate is a tunnel of this node with the link that it asks for.
type candidate struct {
	order  int // of the InternalFabric: the first wins
	tunnel manifests.Ref
	fabric manifests.Ref
	link   hostnet.Link
	routes []source // where each of link.Routes is written
	bad    bool     // it cannot be used: said already
}

// source is a prefix with its place in the InternalFabric.
type source struct {
	prefix netip.Prefix
	path   *field.Path
}

var (
	gatewayIPPath   = field.NewPath("spec", "gatewayIP")
	internalIPPath  = field.NewPath("spec", "interface", "gateway", "ip")
	linkNamePath    = field.NewPath("spec", "interface", "node", "name")
	mtuPath         = field.NewPath("spec", "mtu")
	remoteCIDRsPath = field.NewPath("spec", "remoteCIDRs")
	vniPath         = field.NewPath("spec", "id")
	fabricRefPath   = field.NewPath("spec", "internalFabricRef", "name")
)

// fabricIndex finds the InternalFabric of a GeneveTunnel.
type fabricIndex struct {
	byKey  map[[2]string]int
	byName map[string]int // those without a namespace, or of files
	loose  bool
}

// indexFabrics indexes by namespace and name. In files a namespace may be left
// out.
func indexFabrics(o Objects) fabricIndex {
	x := fabricIndex{byKey: make(map[[2]string]int), byName: make(map[string]int), loose: !o.InCluster}
	for i, f := range slices.Backward(o.InternalFabrics) { // the first of equals wins
		x.byKey[[2]string{f.Object.Namespace, f.Object.Name}] = i
		if x.loose {
			x.byName[f.Object.Name] = i
		}
	}
	return x
}

func (x fabricIndex) of(t *networkingv1beta1.GeneveTunnel) (int, bool) {
	name := t.Spec.InternalFabricRef.Name
	i, ok := x.byKey[[2]string{t.Namespace, name}]
	if ok || !x.loose {
		return i, ok
	}
	if t.Namespace == "" {
		i, ok = x.byName[name]
		return i, ok
	}
	i, ok = x.byKey[[2]string{"", name}]
	return i, ok
}

// tunnels reads the tunnels of this node, in the order of their InternalFabrics.
func (b *builder) tunnels() {
	fabrics := indexFabrics(b.objects)
	for _, t := range b.objects.GeneveTunnels {
		r := manifests.RefTo("GeneveTunnel", t, &t.Object.ObjectMeta)
		if t.Object.Spec.InternalNodeRef.Name != b.facts.NodeName {
			continue
		}
		i, ok := fabrics.of(t.Object)
		if !ok {
			b.plan.Waiting = append(b.plan.Waiting, r.Problem(fabricRefPath, "there is no InternalFabric %q: the tunnel waits for it", t.Object.Spec.InternalFabricRef.Name))
			continue
		}
		f := b.objects.InternalFabrics[i]
		c := &candidate{order: i, tunnel: r, fabric: manifests.RefTo("InternalFabric", f, &f.Object.ObjectMeta)}
		c.link = hostnet.Link{Owner: owner(c.fabric), Kind: b.facts.Kind, VNI: uint32(t.Object.Spec.ID), Port: b.facts.Port, Address: b.address}
		b.read(c, t.Object, f.Object)
		b.wanted = append(b.wanted, c)
	}
	slices.SortStableFunc(b.wanted, func(x, y *candidate) int { return cmp.Compare(x.order, y.order) })
}

// owner is what the alias of a link says.
func owner(fabric manifests.Ref) string {
	name := nameOf(fabric)
	if len(name) <= hostnet.MaxOwner {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:8])
	return name[:hostnet.MaxOwner-len(digest)-1] + "-" + digest
}

// read takes everything that a tunnel says about itself.
func (b *builder) read(c *candidate, t *networkingv1beta1.GeneveTunnel, f *networkingv1beta1.InternalFabric) {
	if !c.tunnel.Source.Has(vniPath) {
		b.refuse(c, c.tunnel.Problem(vniPath, "is required: the VNI, 0 to %d", maxVNI))
	}
	if t.Spec.ID < 0 || t.Spec.ID > maxVNI {
		b.refuse(c, c.tunnel.Problem(vniPath, "%d is not a VNI: 0 to %d", t.Spec.ID, maxVNI))
	}
	c.link.Name = f.Spec.Interface.Node.Name
	if why := badLinkName(c.link.Name); why != "" {
		b.refuse(c, c.fabric.Problem(linkNamePath, "%q %s", c.link.Name, why))
	}
	c.link.Gateway = b.addr(c, gatewayIPPath, string(f.Spec.GatewayIP))
	c.link.GatewayAddress = b.addr(c, internalIPPath, string(f.Spec.Interface.Gateway.IP))
	if a := c.link.GatewayAddress; a.IsValid() && a == b.address {
		b.refuse(c, c.fabric.Problem(internalIPPath, "%s is this node's own address (%s)", a, nameOf(b.nodeRef)))
	}
	for i, s := range f.Spec.RemoteCIDRs {
		path := remoteCIDRsPath.Index(i)
		p, why := manifests.ParsePrefix(string(s))
		if why != "" {
			b.refuse(c, c.fabric.Problem(path, "%q %s", s, why))
			continue
		}
		c.routes = append(c.routes, source{p, path})
	}
	c.link.MTU = cmp.Or(f.Spec.MTU, DefaultMTU)
	if !b.address.IsValid() {
		c.bad = true // said already, of the node
	}
}

// addr reads an address of an InternalFabric.
func (b *builder) addr(c *candidate, path *field.Path, s string) netip.Addr {
	if s == "" {
		c.bad = true
		b.lack(c.fabric.Problem(path, "is not given yet: the tunnel waits for it"))
		b.concern(c, path.String()+" is not given yet")
		return netip.Addr{}
	}
	a, why := manifests.ParseAddr(s)
	if why != "" {
		b.refuse(c, c.fabric.Problem(path, "%q %s", s, why))
	}
	return a
}

// refuse says why a tunnel cannot be as it should.
func (b *builder) refuse(c *candidate, p manifests.Problem) {
	c.bad = true
	b.exclude(p)
	b.concern(c, p.String())
}

// concern notes what is to be said of a link. The first reason is the telling one.
func (b *builder) concern(c *candidate, what string) {
	if b.plan.Concerns[c.link.Owner] == "" {
		b.plan.Concerns[c.link.Owner] = what
	}
}

// badLinkName says why a link cannot have a name. It is checked here and not left
// to the kernel because the prefix is what tells our links from others'.
func badLinkName(name string) string {
	switch {
	case !strings.HasPrefix(name, hostnet.LinkPrefix) || name == hostnet.LinkPrefix:
		return fmt.Sprintf("is not a name of a tunnel link: it must begin with %q", hostnet.LinkPrefix)
	case len(name) > maxLinkName:
		return fmt.Sprintf("is too long: %d characters, at most %d", len(name), maxLinkName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' || r == '%' }):
		return "has characters that the name of a link cannot have"
	}
	return ""
}

// links judges the tunnels against this node and against each other.
func (b *builder) links() {
	b.underlay = b.cutOff()
	for _, c := range b.wanted {
		if !c.bad {
			b.judge(c)
		}
	}
	b.distinct()
	b.keep()
	b.routes()
	b.plan.Desired.Links = make([]hostnet.Link, 0, len(b.accepted))
	for _, c := range b.accepted {
		b.plan.Desired.Links = append(b.plan.Desired.Links, c.link)
		f := hostnet.PredecessorFabric{Name: c.fabric.Meta.Name, Prefixes: []netip.Prefix{netip.PrefixFrom(c.link.GatewayAddress, c.link.GatewayAddress.BitLen())}}
		for _, r := range c.routes {
			f.Prefixes = append(f.Prefixes, r.prefix)
		}
		b.plan.Fabrics = append(b.plan.Fabrics, f)
	}
	slices.SortFunc(b.plan.Desired.Links, func(x, y hostnet.Link) int { return strings.Compare(x.Name, y.Name) })
}

// cutOff returns the addresses that tunnels live on: without a way to them there
// is no way through a tunnel either.
func (b *builder) cutOff() (out []netip.Addr) {
	for _, c := range b.wanted {
		if a := c.link.Gateway; a.IsValid() {
			out = append(out, a)
		}
	}
	for _, p := range b.facts.Paths {
		if p.Source.IsValid() {
			out = append(out, p.Source)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// judge checks one tunnel against the node.
func (b *builder) judge(c *candidate) {
	l := &c.link
	if l.Address.Is4() != l.GatewayAddress.Is4() {
		b.refuse(c, c.fabric.Problem(internalIPPath, "%s and this node's %s (%s) are of two address families: give both addresses of the same",
			l.GatewayAddress, l.Address, nameOf(b.nodeRef)))
	}
	if l.Gateway.IsLoopback() || b.facts.Paths[l.Gateway].Local {
		b.refuse(c, c.fabric.Problem(gatewayIPPath, "%s is an address of this node itself: a tunnel leads to a gateway that has an address of its own, as its pod has", l.Gateway))
	}
	for _, r := range c.routes {
		if r.prefix.Addr().Is4() && l.GatewayAddress.Is6() {
			b.refuse(c, c.fabric.Problem(r.path, "%s is IPv4, but the internal network is IPv6 (%s): IPv4 needs an IPv4 internal address", r.prefix, l.GatewayAddress))
		}
		if what := b.taken(r.prefix); what != "" {
			b.refuse(c, c.fabric.Problem(r.path, "%s overlaps %s: packets to it would go into the tunnel; remap the remote cluster to other prefixes (Configuration status.remote)", r.prefix, what))
		} else if n, ok := b.partOf(r.prefix); ok {
			b.warn(c.fabric.Problem(r.path, "%s is a part of the network %s that this node is in (%s): whoever has these addresses there cannot be reached", r.prefix, n.Prefix, n.Device))
		}
	}
	b.mtu(c)
}

// partOf returns the network of this node that a prefix is a part of. Networks as wide as
// 10.0.0.0/8 are met, and most of such a one is nobody's: that is no mistake.
func (b *builder) partOf(p netip.Prefix) (hostnet.Network, bool) {
	i := slices.IndexFunc(b.facts.Connected, func(n hostnet.Network) bool {
		return n.Prefix.Overlaps(p) && n.Prefix.Bits() < p.Bits()
	})
	if i < 0 {
		return hostnet.Network{}, false
	}
	return b.facts.Connected[i], true
}

// taken says what of this node or cluster a prefix overlaps.
func (b *builder) taken(p netip.Prefix) string {
	for _, l := range b.local.pods {
		if l.Overlaps(p) {
			return "the pod CIDR " + l.String() + " of this cluster"
		}
	}
	for _, l := range b.local.services {
		if l.Overlaps(p) {
			return "the Service CIDR " + l.String() + " of this cluster"
		}
	}
	for _, l := range b.facts.Reserved {
		if l.Prefix.Overlaps(p) {
			return fmt.Sprintf("%s (%s)", l.What, l.Prefix)
		}
	}
	for _, n := range b.facts.Connected {
		switch {
		case !n.Prefix.Overlaps(p):
		case n.Prefix.IsSingleIP():
			return fmt.Sprintf("the address %s of this node (%s)", n.Prefix.Addr(), n.Device)
		case p.Bits() <= n.Prefix.Bits():
			return fmt.Sprintf("the network %s that this node is in (%s)", n.Prefix, n.Device)
		}
	}
	i, _ := slices.BinarySearchFunc(b.underlay, p.Masked().Addr(), netip.Addr.Compare)
	if i < len(b.underlay) && p.Contains(b.underlay[i]) {
		return b.underlay[i].String() + ", on which tunnels depend"
	}
	return ""
}

// mtu checks the size of packets against what it takes to carry IPv6, and
// against the path to the gateway.
func (b *builder) mtu(c *candidate) {
	l := &c.link
	least, why := minMTU, ""
	if l.Address.Is6() {
		least, why = minMTUIPv6, fmt.Sprintf(" (the internal address %s is IPv6)", l.Address)
	}
	for _, r := range c.routes {
		if r.prefix.Addr().Is6() && least < minMTUIPv6 {
			least, why = minMTUIPv6, fmt.Sprintf(" (%s is IPv6)", r.prefix)
		}
	}
	if l.MTU < least || l.MTU > maxMTU {
		b.refuse(c, c.fabric.Problem(mtuPath, "%d is out of range: %d to %d%s", l.MTU, least, maxMTU, why))
		return
	}
	path, ok := b.facts.Paths[l.Gateway]
	extra := overhead(l.Gateway)
	if !ok || path.MTU == 0 || l.MTU+extra <= path.MTU {
		return
	}
	b.refuse(c, c.fabric.Problem(mtuPath, "%d does not fit: with %d bytes of encapsulation it is %d, but the path to the gateway %s (%s) carries %d; "+
		"set spec.mtu of the gateways of both clusters to %d or less", l.MTU, extra, l.MTU+extra, l.Gateway, path.Device, path.MTU, path.MTU-extra))
}

// distinct refuses tunnels that cannot be told apart from one that stands before.
func (b *builder) distinct() {
	names, vnis, fabrics := make(map[string]*candidate), make(map[uint32]*candidate), make(map[string]*candidate)
	for _, c := range b.wanted {
		if c.bad {
			continue
		}
		if other, dup := fabrics[c.link.Owner]; dup {
			// Not a concern of the link, which is that of the first.
			c.bad = true
			b.exclude(c.tunnel.Problem(fabricRefPath, "%s has a tunnel to this node already: %s; delete one of them", nameOf(c.fabric), nameOf(other.tunnel)))
			continue
		}
		if other, dup := names[c.link.Name]; dup {
			b.refuse(c, c.fabric.Problem(linkNamePath, "%q is the link of %s as well", c.link.Name, nameOf(other.fabric)))
			continue
		}
		if other, dup := vnis[c.link.VNI]; dup {
			b.refuse(c, c.tunnel.Problem(vniPath, "%d is the VNI of %s as well: every tunnel of a node needs its own", c.link.VNI, nameOf(other.tunnel)))
			continue
		}
		b.checkRouted(c)
		names[c.link.Name], vnis[c.link.VNI], fabrics[c.link.Owner] = c, c, c
		b.accepted = append(b.accepted, c)
	}
}

// checkRouted says of a tunnel into which nothing leads that it is of no use yet.
func (b *builder) checkRouted(c *candidate) {
	if len(c.routes) > 0 {
		return
	}
	how := "list the pod and external CIDRs of the remote cluster as they are seen from here, as in the gateway's Configuration (status.remote, else spec.remote)"
	if b.objects.InCluster {
		how = "the controller lists them when the Configuration of the remote cluster has its status.remote (kubectl get configurations -A)"
	}
	p := c.fabric.Problem(remoteCIDRsPath, "is empty: the link is there, and no packet is routed into it; %s", how)
	b.plan.Unrouted = append(b.plan.Unrouted, p)
	b.warn(p)
	b.concern(c, p.String())
}

// keep finds what is in force of tunnels that cannot be as they should.
func (b *builder) keep() {
	have := make(map[string]hostnet.Link)
	for _, l := range b.facts.InForce {
		have[l.Owner] = l
	}
	used := make(map[string]bool)
	for _, c := range b.accepted {
		delete(have, c.link.Owner)
		used[c.link.Name] = true
	}
	for _, c := range b.wanted {
		l, ok := have[c.link.Owner]
		if !c.bad || !ok || used[l.Name] {
			continue
		}
		used[l.Name] = true
		b.kept = append(b.kept, &candidate{order: c.order, tunnel: c.tunnel, fabric: c.fabric, link: l})
		b.plan.Desired.Keep = append(b.plan.Desired.Keep, l.Name)
	}
	slices.Sort(b.plan.Desired.Keep)
}

// routes gives every prefix to one tunnel: what stays as it is has its own, of
// the others the first.
func (b *builder) routes() {
	var claims claims
	for _, c := range b.kept {
		for _, p := range c.link.Routes {
			claims.claim(p, c.link.Owner)
		}
	}
	for _, c := range b.accepted {
		slices.SortStableFunc(c.routes, func(x, y source) int { return comparePrefixes(x.prefix, y.prefix) })
		for _, r := range c.routes {
			other, free := claims.claim(r.prefix, c.link.Owner)
			switch {
			case free:
				c.link.Routes = append(c.link.Routes, r.prefix)
			case other == c.link.Owner: // written twice, or within another one
			default:
				p := c.fabric.Problem(r.path, "%s is reached through %s already: it is left out here; remap one of the two remote clusters", r.prefix, other)
				b.exclude(p)
				b.concern(c, p.String())
			}
		}
	}
}
