package control

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/geneve"
	"github.com/sluice-net/sluice/objects/manifests"
)

// maxVNI is the largest 24-bit number (RFC 8926 section 3.4).
const maxVNI = 1<<24 - 1

// fabric takes the gateway's address towards the nodes.
func (b *builder) fabric() {
	fs := b.objects.InternalFabrics
	if len(fs) == 0 {
		b.warn(b.gatewayRef, nil, "there is no InternalFabric yet: the gateway has no address towards the nodes and does not answer their ARP")
		return
	}
	r := manifests.RefTo("InternalFabric", fs[0], &fs[0].Object.ObjectMeta)
	b.peerLabel(r, false)
	for _, f := range fs[1:] {
		b.exclude(manifests.RefTo("InternalFabric", f, &f.Object.ObjectMeta).Problem(nil, "is a second InternalFabric (%s): a gateway has one",
			r.Problem(nil, "the other one")))
	}
	path := field.NewPath("spec", "interface", "gateway", "ip")
	if a, ok := b.internalAddr(r, path, string(fs[0].Object.Spec.Interface.Gateway.IP)); ok {
		b.desired.DataPlane.Internal = []netip.Addr{a}
	}
}

// internalAddr reads an address of the internal network, which must mean
// nothing else here.
func (b *builder) internalAddr(r manifests.Ref, path *field.Path, s string) (netip.Addr, bool) {
	if s == "" && b.inCluster() {
		b.warn(r, path, "is not given yet: it waits")
		return netip.Addr{}, false
	}
	if s == "" {
		b.fail(r, path, "is required")
		return netip.Addr{}, false
	}
	a, why := manifests.ParseAddr(s)
	if why != "" {
		b.exclude(r.Problem(path, "%q %s", s, why))
		return a, false
	}
	if tunnelPrefix.Contains(a) {
		b.exclude(r.Problem(path, "%s belongs to the tunnel (%s)", a, tunnelPrefix))
		return a, false
	}
	for _, p := range b.used {
		if p.prefix.Contains(a) {
			b.exclude(r.Problem(path, "%s lies in the %s %s", a, p.what, p.prefix))
			return a, false
		}
	}
	return a, true
}

// nodes joins InternalNodes with their GeneveTunnels. Either may come first.
func (b *builder) nodes() {
	b.byInternal, b.byLink, b.ready = make(map[netip.Addr]string), make(map[string]string), make(map[string]bool)
	b.nodeRefs = make(map[string]manifests.Ref)
	tunnels := b.tunnels()
	for _, n := range b.objects.InternalNodes {
		r := manifests.RefTo("InternalNode", n, &n.Object.ObjectMeta)
		node := dataplane.Node{Name: n.Object.Name}
		b.nodeRefs[node.Name] = r
		internal, ok := b.nodeInternal(r, string(n.Object.Spec.Interface.Node.IP))
		if ok {
			b.byInternal[internal] = node.Name
			node.Internal = []netip.Addr{internal}
		}
		if link := n.Object.Spec.Interface.Gateway.Name; link != "" {
			b.byLink[link] = node.Name
		}
		node.Underlay = b.nodeIPs(r, n.Object.Status.NodeIP)
		t, hasTunnel := tunnels[node.Name]
		delete(tunnels, node.Name)
		switch {
		case !ok: // said already
		case len(node.Underlay) == 0:
			b.warn(r, field.NewPath("status", "nodeIP"), "is not known yet: the node waits")
		case !hasTunnel:
			b.warn(r, nil, "has no GeneveTunnel yet: the node waits")
		default:
			node.VNI = geneve.VNI(t.Object.Spec.ID)
			b.ready[node.Name] = true
			b.desired.DataPlane.Nodes = append(b.desired.DataPlane.Nodes, node)
		}
	}
	for name, t := range tunnels {
		b.warn(manifests.RefTo("GeneveTunnel", t, &t.Object.ObjectMeta), field.NewPath("spec", "internalNodeRef", "name"), "there is no InternalNode %q yet: the tunnel waits", name)
	}
	// The order of files must not decide which node takes a packet without a route.
	slices.SortFunc(b.desired.DataPlane.Nodes, func(x, y dataplane.Node) int { return strings.Compare(x.Name, y.Name) })
	b.distinctTunnels()
}

// nodeInternal reads the address of a node inside its tunnel.
func (b *builder) nodeInternal(r manifests.Ref, s string) (netip.Addr, bool) {
	path := field.NewPath("spec", "interface", "node", "ip")
	a, ok := b.internalAddr(r, path, s)
	if !ok {
		return a, false
	}
	if other, dup := b.byInternal[a]; dup {
		b.exclude(r.Problem(path, "%s is the address of node %s as well", a, other))
		return a, false
	}
	if slices.Contains(b.desired.DataPlane.Internal, a) {
		b.exclude(r.Problem(path, "%s is the gateway's own address (InternalFabric)", a))
		return a, false
	}
	return a, true
}

// distinctTunnels checks that a datagram belongs to one node: the nodes are told
// apart by underlay address and VNI.
func (b *builder) distinctTunnels() {
	type key struct {
		addr netip.Addr
		vni  geneve.VNI
	}
	seen := make(map[key]string)
	b.desired.DataPlane.Nodes = slices.DeleteFunc(b.desired.DataPlane.Nodes, func(n dataplane.Node) bool {
		for _, a := range n.Underlay {
			if other, dup := seen[key{a, n.VNI}]; dup {
				b.exclude(b.nodeRefs[n.Name].Problem(field.NewPath("status", "nodeIP"),
					"%s with the same VNI is used by node %s as well: their packets could not be told apart", a, other))
				b.ready[n.Name] = false
				return true
			}
		}
		for _, a := range n.Underlay {
			seen[key{a, n.VNI}] = n.Name
		}
		return false
	})
}

// tunnels returns the GeneveTunnels of this gateway by node.
func (b *builder) tunnels() map[string]manifests.Sourced[networkingv1beta1.GeneveTunnel] {
	out := make(map[string]manifests.Sourced[networkingv1beta1.GeneveTunnel])
	for _, t := range b.objects.GeneveTunnels {
		r := manifests.RefTo("GeneveTunnel", t, &t.Object.ObjectMeta)
		fabric, node := t.Object.Spec.InternalFabricRef.Name, t.Object.Spec.InternalNodeRef.Name
		if !t.Source.Has(field.NewPath("spec", "id")) {
			b.fail(r, field.NewPath("spec", "id"), "is required: the VNI, 0 to %d", maxVNI)
		}
		if id := t.Object.Spec.ID; id < 0 || id > maxVNI {
			b.exclude(r.Problem(field.NewPath("spec", "id"), "%d is not a VNI: 0 to %d", id, maxVNI))
			continue
		}
		if node == "" {
			b.exclude(r.Problem(field.NewPath("spec", "internalNodeRef", "name"), "is required"))
			continue
		}
		if fs := b.objects.InternalFabrics; len(fs) == 1 && fabric != fs[0].Object.Name {
			b.exclude(r.Problem(field.NewPath("spec", "internalFabricRef", "name"), "is %q, but the InternalFabric here is %q", fabric, fs[0].Object.Name))
			continue
		}
		if other, dup := out[node]; dup {
			b.exclude(r.Problem(field.NewPath("spec", "internalNodeRef", "name"), "node %q has a GeneveTunnel already: %s", node, other.Object.Name))
			continue
		}
		out[node] = t
	}
	return out
}

// nodeIPs returns the addresses that the node's packets may come from. A node
// uses "local" towards gateways that run on itself and "remote" towards others.
// Both are accepted; until the node has been heard, packets go to the one that
// applies, where it is known on which node the gateway is, and else to the one
// for others.
func (b *builder) nodeIPs(r manifests.Ref, ips networkingv1beta1.NodeIP) (out []netip.Addr) {
	path := field.NewPath("status", "nodeIP")
	both := []struct{ name, value string }{{"remote", string(ips.Remote)}, {"local", string(ips.Local)}}
	if b.inCluster() && r.Meta.Name == b.objects.Cluster.NodeName {
		slices.Reverse(both)
	}
	for _, f := range both {
		if f.value == "" {
			continue
		}
		a, why := manifests.ParseAddr(f.value)
		if why != "" {
			b.exclude(r.Problem(path.Child(f.name), "%q %s", f.value, why))
			continue
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
