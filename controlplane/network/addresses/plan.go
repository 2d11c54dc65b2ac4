package addresses

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/cidr"
)

// claim is what an IP asks for and what it has.
type claim struct {
	key     string // namespace/name
	uid     types.UID
	created time.Time
	// network is the key of the Network that it names, or from which it has its
	// address; empty for the external CIDR.
	network string
	// local is spec.ip, granted status.ip and from status.cidr.
	local, granted ipamv1alpha1.Address
	from           ipamv1alpha1.CIDR
	deleting       bool
}

func claimOf(ip *ipamv1alpha1.IP) claim {
	return claim{
		key: ip.Namespace + "/" + ip.Name, uid: ip.UID, created: ip.CreationTimestamp.Time,
		network: networkOf(ip), local: ip.Spec.IP, granted: ip.Status.IP, from: ip.Status.CIDR,
		deleting: !ip.DeletionTimestamp.IsZero(),
	}
}

// networkOf returns the key of the Network that an IP belongs to. Once it has an
// address, its labels tell: the reference may have been changed since.
func networkOf(ip *ipamv1alpha1.IP) string {
	if namespace, name := ip.Labels[ipamv1alpha1.LabelNetworkNamespace], ip.Labels[ipamv1alpha1.LabelNetworkName]; ip.Status.IP != "" && namespace != "" && name != "" {
		return namespace + "/" + name
	}
	if ref := ip.Spec.NetworkRef; ref != nil {
		return cmp.Or(ref.Namespace, ip.Namespace) + "/" + ref.Name
	}
	return ""
}

func byAge(a, b claim) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.key, b.key))
}

// origin is a Network, as its IPs see it.
type origin struct {
	key string
	// prefix is what it was granted; invalid if nothing was.
	prefix netip.Prefix
	// asked is what it asks for, which tells the family before anything is granted.
	asked netip.Prefix
	// reserved is how many addresses at the beginning it keeps.
	reserved int
	// external tells that it is an external CIDR of this cluster.
	external bool
}

// originOf reads a Network. What it has that is no prefix counts as nothing.
func originOf(n *ipamv1alpha1.Network, liqoNamespace string) origin {
	kind := cmp.Or(n.Labels[ipamv1alpha1.LabelNetworkType], n.Name)
	o := origin{
		key: n.Namespace + "/" + n.Name, reserved: int(n.Spec.PreAllocated),
		external: n.Namespace == liqoNamespace && kind == ipamv1alpha1.NetworkTypeExternalCIDR,
	}
	if p, err := n.Spec.CIDR.Prefix(); err == nil {
		o.asked = p.Masked()
	}
	if p, err := n.Status.CIDR.Prefix(); err == nil && n.Status.CIDR != "" {
		o.prefix = p.Masked()
	}
	if o.external {
		o.reserved = max(o.reserved, 1) // unknown senders
	}
	return o
}

// external chooses the external CIDR for an IP that names no Network: the one of
// which it has its address, else the first of its family, the usual name first.
func external(c claim, origins []origin) (origin, bool) {
	origins = slices.DeleteFunc(slices.Clone(origins), func(o origin) bool { return !o.external })
	slices.SortFunc(origins, func(a, b origin) int {
		return cmp.Or(cmp.Compare(len(a.key), len(b.key)), cmp.Compare(a.key, b.key))
	})
	local, _ := c.local.Addr()
	for _, o := range origins {
		if c.granted != "" && o.prefix.IsValid() && o.prefix.String() == string(c.from) {
			return o, true
		}
	}
	for _, o := range origins {
		if local.IsValid() && o.asked.IsValid() && o.asked.Addr().Is4() == local.Is4() {
			return o, true
		}
	}
	return origin{}, false
}

// decision is the answer to a claim.
type decision struct {
	// addr of prefix is what is given; invalid if nothing is.
	addr   netip.Addr
	prefix netip.Prefix
	// network is the key of the Network it is of.
	network string
	// reason and message are those of the condition.
	reason  ipamv1alpha1.ConditionReason
	message string
}

// granted tells whether the IP has what it may use.
func (d decision) granted() bool { return d.reason == ipamv1alpha1.ReasonAllocated }

// refuse says why a claim can be granted by no Network, or by this one, or "".
func refuse(c claim, o origin) string {
	local, err := c.local.Addr()
	if err != nil {
		return fmt.Sprintf("spec.ip: %v: make another IP", err)
	}
	if err := cidr.Routable(netip.PrefixFrom(local, local.BitLen())); err != nil {
		return fmt.Sprintf("spec.ip: %v: no gateway can reach it; make another IP", err)
	}
	if o.prefix.IsValid() && o.prefix.Addr().Is4() != local.Is4() {
		return fmt.Sprintf("spec.ip %s cannot be translated from an address of %s, which Network %s has: name a Network of the same family in spec.networkRef",
			local, o.prefix, o.key)
	}
	return ""
}

// waitFor says what an IP without a usable Network waits for.
func waitFor(c claim, o origin, there bool) string {
	switch {
	case there:
		return fmt.Sprintf("Network %s has no prefix yet: its condition says why", o.key)
	case c.network != "":
		return fmt.Sprintf("Network %s does not exist: make it, or name another one in spec.networkRef", c.network)
	}
	return "there is no external CIDR of the family of spec.ip: name a Network in spec.networkRef, or make one with label " +
		ipamv1alpha1.LabelNetworkType + "=" + ipamv1alpha1.NetworkTypeExternalCIDR
}
