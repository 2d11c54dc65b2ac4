package prefixes

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// claim is what a Network asks for and what it has.
type claim struct {
	key     string // namespace/name
	uid     types.UID
	created time.Time
	// kind is its type, if it belongs to the installation.
	kind  string
	class class
	// external tells that it is the external CIDR of a remote cluster.
	external bool
	// notRemapped and shared are its labels.
	notRemapped, shared bool
	// asked is spec.cidr, granted status.cidr.
	asked, granted ipamv1alpha1.CIDR
	deleting       bool
}

// class says who comes first.
type class int

const (
	// What this cluster uses or keeps free, and cannot change.
	classFixed class = iota
	// What only this project uses, and may move.
	classMovable
	// All that does not belong to the installation.
	classOther
)

// classes of the types of Networks that an installation has; all but reserved
// ones must be there before anything else is granted.
var classes = map[string]class{
	ipamv1alpha1.NetworkTypeReserved:     classFixed,
	ipamv1alpha1.NetworkTypePodCIDR:      classFixed,
	ipamv1alpha1.NetworkTypeServiceCIDR:  classFixed,
	ipamv1alpha1.NetworkTypeExternalCIDR: classMovable,
	ipamv1alpha1.NetworkTypeInternalCIDR: classMovable,
}

var required = []string{
	ipamv1alpha1.NetworkTypePodCIDR, ipamv1alpha1.NetworkTypeServiceCIDR,
	ipamv1alpha1.NetworkTypeExternalCIDR, ipamv1alpha1.NetworkTypeInternalCIDR,
}

// claimOf reads a Network.
func claimOf(n *ipamv1alpha1.Network, liqoNamespace string) claim {
	c := claim{
		key: n.Namespace + "/" + n.Name, uid: n.UID, created: n.CreationTimestamp.Time,
		class:       classOther,
		external:    n.Labels[networkingv1beta1.LabelCIDRType] == networkingv1beta1.CIDRTypeExternal,
		notRemapped: n.Labels[ipamv1alpha1.LabelNetworkNotRemapped] == networkingv1beta1.LabelTrue,
		shared:      n.Labels[ipamv1alpha1.LabelNetworkShared] == networkingv1beta1.LabelTrue,
		asked:       n.Spec.CIDR, granted: n.Status.CIDR,
		deleting: !n.DeletionTimestamp.IsZero(),
	}
	if n.Namespace != liqoNamespace {
		return c // a tenant cannot install
	}
	// By its name where the label is lost.
	for _, kind := range []string{n.Labels[ipamv1alpha1.LabelNetworkType], n.Name} {
		if class, ok := classes[kind]; ok {
			c.kind, c.class = kind, class
			break
		}
	}
	return c
}

// countsAsInstalled tells whether others wait for c to be decided. One that goes
// without ever having had a prefix gets none.
func (c claim) countsAsInstalled() bool {
	return c.class != classOther && (!c.deleting || c.granted != "")
}

// byAge orders Networks that have a prefix: of two that overlap, the first one
// keeps it undisputed.
func byAge(a, b claim) int {
	return cmp.Or(cmp.Compare(a.class, b.class), a.created.Compare(b.created), cmp.Compare(a.key, b.key))
}

// byNeed orders Networks that wait for one. The pod CIDR of a remote cluster goes
// before its external CIDR, so that two clusters with the same prefixes get what
// the documents show, however fast the objects come.
func byNeed(a, b claim) int {
	return cmp.Or(cmp.Compare(a.class, b.class), first(a.notRemapped, b.notRemapped),
		a.created.Compare(b.created), first(b.external, a.external), cmp.Compare(a.key, b.key))
}

// first orders what is so before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// decision is the answer to a claim.
type decision struct {
	// prefix is what is granted; invalid if nothing is.
	prefix netip.Prefix
	// reason and message are those of the condition. No reason means that there is
	// nothing to say yet: another Network, which is about to be decided, comes
	// first.
	reason  ipamv1alpha1.ConditionReason
	message string
}

// granted tells whether the Network has what it may use.
func (d decision) granted() bool {
	return d.reason == ipamv1alpha1.ReasonAllocated || d.reason == ipamv1alpha1.ReasonRemapped
}

// held tells whether the Network only waits for its turn.
func (d decision) held() bool {
	return d.reason == "" || d.reason == ipamv1alpha1.ReasonNetworkNotReady
}

// missing returns the types of the installation that no Network has.
func missing(installed []claim) []string {
	var kinds []string
	for _, kind := range required {
		there := false
		for _, i := range installed {
			there = there || i.kind == kind
		}
		if !there {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// notInstalled is the decision while types are missing.
func notInstalled(kinds []string, liqoNamespace string) decision {
	return decision{
		reason: ipamv1alpha1.ReasonNetworkNotReady,
		message: "the Networks of this cluster must exist first, but namespace " + liqoNamespace + " has none with label " +
			ipamv1alpha1.LabelNetworkType + "=" + strings.Join(kinds, ", none with ") +
			": the controller creates them when it knows the prefixes of this cluster; its log names the missing flags",
	}
}
