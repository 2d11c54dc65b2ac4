package control

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/objects/manifests"
)

// usedPrefix is a prefix as this cluster uses it, with the place it comes from.
type usedPrefix struct {
	prefix netip.Prefix
	what   string // "local pod CIDR"
	ref    manifests.Ref
	path   *field.Path
	remap  *field.Path // where a remapped prefix could be given; nil for local ones
}

var (
	localPath        = field.NewPath("spec", "local", "cidr")
	remoteSpecPath   = field.NewPath("spec", "remote", "cidr")
	remoteStatusPath = field.NewPath("status", "remote", "cidr")
)

// configuration takes the CIDRs of both clusters.
func (b *builder) configuration() {
	c, ok := b.theConfiguration()
	if !ok {
		return
	}
	r := manifests.RefTo("Configuration", c, &c.Object.ObjectMeta)
	b.local(r, c.Object)
	spec := c.Object.Spec.Remote.CIDR
	var status networkingv1beta1.ClusterCIDR
	if c.Object.Status.Remote != nil {
		status = c.Object.Status.Remote.CIDR
	}
	if len(spec.Pod.List) == 0 {
		b.fail(r, remoteSpecPath.Child("pod"), "is required")
	}
	b.remote(r, "pod", spec.Pod.List, status.Pod.List)
	b.remote(r, "external", spec.External.List, status.External.List)
}

// theConfiguration finds the one of the peer.
func (b *builder) theConfiguration() (c manifests.Sourced[networkingv1beta1.Configuration], ok bool) {
	if b.inCluster() {
		return b.clusterConfiguration()
	}
	cs := b.objects.Configurations
	if len(cs) == 0 {
		b.fail(b.gatewayRef, nil, "there is no Configuration: the CIDRs of both clusters must be known")
		return c, false
	}
	r := manifests.RefTo("Configuration", cs[0], &cs[0].Object.ObjectMeta)
	b.peerLabel(r, true)
	for _, other := range cs[1:] {
		b.fail(manifests.RefTo("Configuration", other, &other.Object.ObjectMeta), nil, "is a second Configuration (%s): the peer has one",
			r.Problem(nil, "the other one"))
	}
	return cs[0], true
}

// local takes the CIDRs of this cluster. They may be left out where the Network
// objects of the installation say the same, as in a cluster.
func (b *builder) local(r manifests.Ref, c *networkingv1beta1.Configuration) {
	out := &b.desired.DataPlane
	if c.Spec.Local != nil {
		for i, s := range c.Spec.Local.CIDR.Pod.List {
			out.LocalPods = b.use(out.LocalPods, usedPrefix{what: "local pod CIDR", ref: r, path: localPath.Child("pod").Index(i)}, string(s))
		}
		for i, s := range c.Spec.Local.CIDR.External.List {
			out.LocalExternal = b.use(out.LocalExternal, usedPrefix{what: "local external CIDR", ref: r, path: localPath.Child("external").Index(i)}, string(s))
		}
	} else {
		b.localNetworks()
	}
	if len(out.LocalPods) == 0 {
		b.fail(r, localPath.Child("pod"), "is required outside a cluster, or a Network with the label %s=%s: "+
			"packets are forwarded only from and to local addresses", ipamv1alpha1.LabelNetworkType, ipamv1alpha1.NetworkTypePodCIDR)
	}
	if len(out.LocalExternal) == 0 {
		b.warn(r, localPath.Child("external"), "is not given: nodes and hostNetwork pods cannot reach the peer, and no IP object can be mapped")
	}
}

func (b *builder) localNetworks() {
	out := &b.desired.DataPlane
	for _, n := range b.objects.Networks {
		p := usedPrefix{ref: manifests.RefTo("Network", n, &n.Object.ObjectMeta), path: field.NewPath("spec", "cidr")}
		s := string(n.Object.Spec.CIDR)
		if granted := string(n.Object.Status.CIDR); granted != "" {
			p.path, s = field.NewPath("status", "cidr"), granted
		}
		switch n.Object.Labels[ipamv1alpha1.LabelNetworkType] {
		case ipamv1alpha1.NetworkTypePodCIDR:
			p.what = "local pod CIDR"
			out.LocalPods = b.use(out.LocalPods, p, s)
		case ipamv1alpha1.NetworkTypeExternalCIDR:
			p.what = "local external CIDR"
			out.LocalExternal = b.use(out.LocalExternal, p, s)
		}
	}
}

// remote pairs the prefixes that the peer uses (spec) with those that stand for
// them here (status). Without a status nothing is remapped, in a directory.
func (b *builder) remote(r manifests.Ref, kind string, spec, status []networkingv1beta1.CIDR) {
	specPath, statusPath := remoteSpecPath.Child(kind), remoteStatusPath.Child(kind)
	if (len(status) != 0 || b.inCluster()) && len(status) != len(spec) {
		b.fail(r, statusPath, "has %s for %d in %s: they belong together one by one", plural(len(status), "prefix"), len(spec), specPath)
		return
	}
	for i, s := range spec {
		outside, why := manifests.ParsePrefix(string(s))
		if why != "" {
			b.fail(r, specPath.Index(i), "%q %s", s, why)
			continue
		}
		inside := usedPrefix{
			prefix: outside, what: "remote " + kind + " CIDR", ref: r,
			path: specPath.Index(i), remap: statusPath.Index(i),
		}
		if len(status) != 0 {
			inside.path = statusPath.Index(i)
			if inside.prefix, why = manifests.ParsePrefix(string(status[i])); why != "" {
				b.fail(r, inside.path, "%q %s", status[i], why)
				continue
			}
		}
		if inside.prefix.Bits() != outside.Bits() || inside.prefix.Addr().Is4() != outside.Addr().Is4() {
			b.fail(r, inside.path, "%s cannot stand for %s (%s): family and length must be equal", inside.prefix, outside, specPath.Index(i))
			continue
		}
		for _, m := range b.desired.DataPlane.Remote {
			if m.Outside.Overlaps(outside) && !m.Inside.Overlaps(inside.prefix) { // or it is reported below
				b.fail(r, specPath.Index(i), "%s overlaps %s, another remote CIDR", outside, m.Outside)
			}
		}
		if b.claim(inside) {
			b.desired.DataPlane.Remote = append(b.desired.DataPlane.Remote, nat.Mapping{Inside: inside.prefix, Outside: outside})
		}
	}
}

// use parses s, claims it and appends it to list.
func (b *builder) use(list []netip.Prefix, p usedPrefix, s string) []netip.Prefix {
	var why string
	if p.prefix, why = manifests.ParsePrefix(s); why != "" {
		b.fail(p.ref, p.path, "%q %s", s, why)
		return list
	}
	if !b.claim(p) {
		return list
	}
	return append(list, p.prefix)
}

// claim records that a prefix is used in this cluster. An address must have one
// meaning here, so no two may overlap.
func (b *builder) claim(p usedPrefix) bool {
	for _, q := range b.used {
		if !p.prefix.Overlaps(q.prefix) {
			continue
		}
		hint := ""
		if p.remap != nil {
			hint = fmt.Sprintf("; set %s to a free prefix of length %d", p.remap, p.prefix.Bits())
		}
		b.fail(p.ref, p.path, "%s overlaps the %s %s%s", p.prefix, q.what, q.prefix, hint)
		return false
	}
	b.used = append(b.used, p)
	return true
}

// plural counts things: "1 byte", "2 prefixes".
func plural(n int, thing string) string {
	switch {
	case n == 1:
	case thing == "prefix":
		thing += "es"
	default:
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
