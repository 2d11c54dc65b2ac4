package control

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/dataplane"
	"github.com/sluice-net/sluice/objects/manifests"
)

// addresses takes the hosts that IP objects make reachable for the peer.
func (b *builder) addresses() {
	if b.inCluster() && len(b.desired.DataPlane.LocalExternal) == 0 {
		return // they wait with the Configuration
	}
	outside, inside := make(map[netip.Addr]string), make(map[netip.Addr]string)
	for _, ip := range b.objects.IPs {
		r := manifests.RefTo("IP", ip, &ip.Object.ObjectMeta)
		if ip.Object.Labels[ipamv1alpha1.LabelHostUnreachable] == "true" {
			continue
		}
		if ip.Object.Status.IP == "" {
			b.warn(r, field.NewPath("status", "ip"), "is not given yet: the address waits")
			continue
		}
		m, ok := b.address(r, string(ip.Object.Spec.IP), string(ip.Object.Status.IP))
		if !ok {
			continue
		}
		if other, dup := outside[m.Outside]; dup {
			b.exclude(r.Problem(field.NewPath("status", "ip"), "%s is the address of IP %s as well", m.Outside, other))
			continue
		}
		if other, dup := inside[m.Inside]; dup {
			b.exclude(r.Problem(field.NewPath("spec", "ip"), "%s is mapped by IP %s already", m.Inside, other))
			continue
		}
		outside[m.Outside], inside[m.Inside] = ip.Object.Name, ip.Object.Name
		b.desired.DataPlane.Addresses = append(b.desired.DataPlane.Addresses, m)
	}
}

// address reads one mapping. An IP whose host is in the peer's own range exists
// for third clusters and means nothing to this peer.
func (b *builder) address(r manifests.Ref, spec, status string) (m dataplane.AddressMapping, ok bool) {
	var why string
	if m.Inside, why = manifests.ParseAddr(spec); why != "" {
		b.exclude(r.Problem(field.NewPath("spec", "ip"), "%q %s", spec, why))
		return m, false
	}
	path := field.NewPath("status", "ip")
	if m.Outside, why = manifests.ParseAddr(status); why != "" {
		b.exclude(r.Problem(path, "%q %s", status, why))
		return m, false
	}
	if m.Inside.Is4() != m.Outside.Is4() {
		b.exclude(r.Problem(path, "%s cannot stand for %s: the families differ", m.Outside, m.Inside))
		return m, false
	}
	for _, remote := range b.desired.DataPlane.Remote {
		if remote.Inside.Contains(m.Inside) {
			return m, false
		}
	}
	external := b.desired.DataPlane.LocalExternal
	family := slices.DeleteFunc(slices.Clone(external), func(p netip.Prefix) bool { return p.Addr().Is4() != m.Outside.Is4() })
	switch {
	case b.inCluster() && !within(external, m.Outside):
		// Of a Network that is not the external CIDR: not meant for peers.
		b.warn(r, path, "%s lies in no local external CIDR: the peer cannot reach it", m.Outside)
		return m, false
	case !within(external, m.Outside):
		b.fail(r, path, "%s lies in no local external CIDR: the peer cannot reach it", m.Outside)
		return m, false
	case family[0].Addr() == m.Outside:
		b.exclude(r.Problem(path, "%s is the first address of %s, which stands for nodes and hostNetwork pods", m.Outside, family[0]))
		return m, false
	}
	return m, true
}

// within tells whether one of the prefixes contains a.
func within(ps []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}
