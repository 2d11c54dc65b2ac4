package fabric

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
)

// localCIDRs are the ranges of this cluster.
type localCIDRs struct {
	pods, services, external []netip.Prefix
}

// locals takes the CIDRs of this cluster. In a cluster the Networks of the
// installation say what they are, to everybody; a Configuration, which belongs
// to one peering, speaks only where they say nothing.
func (b *builder) locals() {
	for _, n := range b.objects.Networks {
		path, cidr := field.NewPath("spec", "cidr"), n.Object.Spec.CIDR
		if granted := n.Object.Status.CIDR; granted != "" {
			path, cidr = field.NewPath("status", "cidr"), granted
		}
		r := manifests.RefTo("Network", n, &n.Object.ObjectMeta)
		into := map[string]*[]netip.Prefix{
			ipamv1alpha1.NetworkTypePodCIDR:      &b.local.pods,
			ipamv1alpha1.NetworkTypeExternalCIDR: &b.local.external,
			ipamv1alpha1.NetworkTypeServiceCIDR:  &b.local.services,
		}[n.Object.Labels[ipamv1alpha1.LabelNetworkType]]
		if into == nil {
			continue
		}
		if p, why := manifests.ParsePrefix(string(cidr)); why != "" {
			b.exclude(r.Problem(path, "%q %s", cidr, why))
		} else if !slices.Contains(*into, p) {
			*into = append(*into, p)
		}
	}
	pods := b.objects.InCluster && len(b.local.pods) > 0
	external := b.objects.InCluster && len(b.local.external) > 0
	local := field.NewPath("spec", "local", "cidr")
	for _, c := range b.objects.Configurations {
		spec := c.Object.Spec.Local
		if spec == nil {
			continue // the controller fills it in
		}
		r := manifests.RefTo("Configuration", c, &c.Object.ObjectMeta)
		if !pods {
			b.take(&b.local.pods, r, local.Child("pod"), spec.CIDR.Pod.List)
		}
		if !external {
			b.take(&b.local.external, r, local.Child("external"), spec.CIDR.External.List)
		}
	}
}

// take adds prefixes that are not known yet.
func (b *builder) take(into *[]netip.Prefix, r manifests.Ref, path *field.Path, cidrs []networkingv1beta1.CIDR) {
	for i, s := range cidrs {
		p, why := manifests.ParsePrefix(string(s))
		switch {
		case why != "":
			b.exclude(r.Problem(path.Index(i), "%q %s", s, why))
		case !slices.Contains(*into, p):
			*into = append(*into, p)
		}
	}
}

// within tells whether one of the prefixes contains a.
func within(ps []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}

// comparePrefixes sorts by address, the wider of two that begin alike first.
func comparePrefixes(x, y netip.Prefix) int {
	return cmp.Or(x.Addr().Compare(y.Addr()), cmp.Compare(x.Bits(), y.Bits()))
}

// prefixSet sorts prefixes and drops those within others. nil stays nil.
func prefixSet(ps []netip.Prefix) (out []netip.Prefix) {
	ps = slices.Clone(ps)
	slices.SortFunc(ps, comparePrefixes)
	for _, p := range ps {
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) { // the one before begins no later: it contains p
			out = append(out, p)
		}
	}
	return out
}

// addrSet sorts addresses and drops duplicates.
func addrSet(as []netip.Addr) []netip.Addr {
	as = slices.Clone(as)
	slices.SortFunc(as, netip.Addr.Compare)
	return slices.Compact(as)
}

// claims are prefixes that do not overlap, each with its owner. With thousands
// of gateways a comparison of each with each would take seconds.
type claims struct {
	prefixes []netip.Prefix
	owners   []string
	sorted   []int32 // indexes of the above, by address
}

// claim takes p for the owner, or returns who has a part of it.
func (c *claims) claim(p netip.Prefix, owner string) (by string, free bool) {
	at, _ := slices.BinarySearchFunc(c.sorted, p, func(i int32, p netip.Prefix) int { return comparePrefixes(c.prefixes[i], p) })
	// As the prefixes do not overlap each other, only neighbors can overlap p.
	for _, i := range c.sorted[max(0, at-1):min(len(c.sorted), at+1)] {
		if c.prefixes[i].Overlaps(p) {
			return c.owners[i], false
		}
	}
	c.sorted = slices.Insert(c.sorted, at, int32(len(c.prefixes)))
	c.prefixes, c.owners = append(c.prefixes, p), append(c.owners, owner)
	return owner, true
}
