package configuration

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Facts are what a plan is made of.
type Facts struct {
	// Configuration is the one to serve.
	Configuration *networkingv1beta1.Configuration
	// Others are the Configurations of the namespace for the same remote cluster.
	Others []networkingv1beta1.Configuration
	// Networks are those of the namespace that belong to the Configuration or have
	// the name of one that it wants.
	Networks []*ipamv1alpha1.Network
	// Installed are the Networks of the Liqo namespace.
	Installed []*ipamv1alpha1.Network
}

// Plan says what is to be.
type Plan struct {
	// Local is what spec.local is to be; nil: leave it. Everything else waits for it.
	Local *networkingv1beta1.ClusterConfig
	// Delete are Networks that are not wanted any more.
	Delete []*ipamv1alpha1.Network
	// Apply are the Networks that are.
	Apply []*ipamv1alpha1.Network
	// Remote is status.remote.
	Remote *networkingv1beta1.ClusterConfig
	// Ready is whether the condition NetworkCIDRsConfigured is True.
	Ready bool
	// Reason is that of the condition.
	Reason networkingv1beta1.ConditionReason
	// Message is that of the condition.
	Message string
}

// The texts that other tools know.
const (
	messageWaiting = "Waiting for all networks to be ready"
	messageReady   = "All network CIDRs are configured"
)

// Build decides what a Configuration needs.
//
//	situation                              Networks            status.remote  reason
//	label or a CIDR missing or wrong       as they are         *              InvalidConfiguration
//	an older one for the same cluster      as they are         *              DuplicateConfiguration
//	spec.local empty, install incomplete   as they are         *              WaitingForLocalNetworks
//	spec.local empty                       (spec.local is filled in first)
//	Networks for what spec.remote was      they are deleted    empty          WaitingForNetworks
//	a name taken by somebody's Network     the others applied  *              NetworkRefused
//	a Network that is denied a prefix      applied             *              NetworkRefused
//	a Network without an answer            applied             *              WaitingForNetworks
//	else                                   applied             theirs         NetworkCIDRsConfigured
//
// * as it is, if it can be an answer to spec.remote, else empty.
func Build(f Facts) Plan {
	c := f.Configuration
	p := Plan{Remote: kept(c)}
	if problem := check(c); problem != "" {
		return p.because(networkingv1beta1.ReasonInvalidConfiguration, problem)
	}
	if other := f.older(); other != nil {
		return p.because(networkingv1beta1.ReasonDuplicateConfiguration, fmt.Sprintf(
			"Configuration %s, which is older, is for the remote cluster %s, too: delete one of them", other.Name, c.Labels[networkingv1beta1.LabelRemoteClusterID]))
	}
	if isEmpty(c.Spec.Local) {
		local, missing := f.local()
		if missing != "" {
			return p.because(networkingv1beta1.ReasonWaitingForLocalNetworks, missing)
		}
		p.Local = local
		return p
	}
	return f.networks(p)
}

func (p Plan) because(reason networkingv1beta1.ConditionReason, message string) Plan {
	p.Reason, p.Message = reason, message
	return p
}

// older returns the Configuration that is served instead of this one.
func (f Facts) older() *networkingv1beta1.Configuration {
	c := f.Configuration
	for i := range f.Others {
		o := &f.Others[i]
		if o.UID == c.UID || !o.DeletionTimestamp.IsZero() {
			continue
		}
		if o.CreationTimestamp.Before(&c.CreationTimestamp) || o.CreationTimestamp.Equal(&c.CreationTimestamp) && o.Name < c.Name {
			return o
		}
	}
	return nil
}

func isEmpty(c *networkingv1beta1.ClusterConfig) bool {
	return c == nil || len(c.CIDR.Pod.List) == 0 && len(c.CIDR.External.List) == 0
}

// local is spec.local as the installation says, or else what is missing. It is
// written in the shape of spec.remote.
func (f Facts) local() (local *networkingv1beta1.ClusterConfig, missing string) {
	remote := f.Configuration.Spec.Remote.CIDR
	local = new(networkingv1beta1.ClusterConfig)
	for _, part := range []struct {
		networkType string
		into        *networkingv1beta1.CIDRs
		scalar      bool
	}{
		{ipamv1alpha1.NetworkTypePodCIDR, &local.CIDR.Pod, remote.Pod.Scalar},
		{ipamv1alpha1.NetworkTypeExternalCIDR, &local.CIDR.External, remote.External.Scalar || len(remote.External.List) == 0 && remote.Pod.Scalar},
	} {
		for _, n := range f.Installed {
			if n.Labels[ipamv1alpha1.LabelNetworkType] != part.networkType {
				continue
			}
			if n.Status.CIDR == "" {
				return nil, fmt.Sprintf("waiting for Network %s/%s, which has no prefix yet%s", n.Namespace, n.Name, suffix(answer(n).Message))
			}
			part.into.List = append(part.into.List, networkingv1beta1.CIDR(n.Status.CIDR))
		}
		if len(part.into.List) == 0 {
			return nil, fmt.Sprintf("waiting for a Network with the label %s=%s, which the installation makes; or fill in spec.local",
				ipamv1alpha1.LabelNetworkType, part.networkType)
		}
		part.into.Scalar = part.scalar && len(part.into.List) == 1
	}
	return local, ""
}

// networks decides about Networks and what they say.
func (f Facts) networks(p Plan) Plan {
	wanted := f.wanted()
	for _, n := range f.Networks {
		if metav1.IsControlledBy(n, f.Configuration) && !slices.ContainsFunc(wanted, func(w *ipamv1alpha1.Network) bool { return w.Name == n.Name }) {
			p.Delete = append(p.Delete, n)
		}
	}
	if len(p.Delete) > 0 {
		// First, so that the prefixes are free for those that come.
		p.Remote = nil
		return p.because(networkingv1beta1.ReasonWaitingForNetworks, messageWaiting+": "+names(p.Delete)+" must go first")
	}
	var refused, waiting []string
	granted := make([]networkingv1beta1.CIDR, len(wanted))
	for i, w := range wanted {
		n := f.network(w.Name)
		switch o := ownerOf(n); {
		case n == nil || o != nil && o.UID == f.Configuration.UID:
			p.Apply = append(p.Apply, w)
		case o != nil && o.Kind == configurationKind && o.Name == f.Configuration.Name:
			waiting = append(waiting, w.Name+" (that of an earlier Configuration must go first)")
			continue
		default:
			refused = append(refused, fmt.Sprintf("Network %s exists and belongs to somebody else: delete it, or rename this Configuration", w.Name))
			continue
		}
		switch a := answer(n); {
		case a.Refused:
			refused = append(refused, "Network "+w.Name+": "+a.Message)
		case a.CIDR == "":
			waiting = append(waiting, w.Name+suffix(a.Message))
		default:
			granted[i] = networkingv1beta1.CIDR(a.CIDR)
		}
	}
	switch {
	case len(refused) > 0:
		return p.because(networkingv1beta1.ReasonNetworkRefused, strings.Join(refused, "; "))
	case len(waiting) > 0:
		return p.because(networkingv1beta1.ReasonWaitingForNetworks, messageWaiting+": "+strings.Join(waiting, "; "))
	}
	p.Ready, p.Remote = true, answered(f.Configuration.Spec.Remote, granted)
	return p.because(networkingv1beta1.ReasonNetworkCIDRsConfigured, messageReady)
}

const configurationKind = "Configuration"

func (f Facts) network(name string) *ipamv1alpha1.Network {
	if i := slices.IndexFunc(f.Networks, func(n *ipamv1alpha1.Network) bool { return n.Name == name }); i >= 0 {
		return f.Networks[i]
	}
	return nil
}

func ownerOf(n *ipamv1alpha1.Network) *metav1.OwnerReference {
	if n == nil {
		return nil
	}
	return metav1.GetControllerOf(n)
}

// answered is status.remote: what was granted. It has lists, whatever the spec has: Liqo's controllers read nothing else.
func answered(asked networkingv1beta1.ClusterConfig, granted []networkingv1beta1.CIDR) *networkingv1beta1.ClusterConfig {
	var s networkingv1beta1.ClusterConfig
	pods := len(asked.CIDR.Pod.List)
	s.CIDR.Pod.List = granted[:pods:pods]
	if len(granted) > pods {
		s.CIDR.External.List = granted[pods:]
	}
	return &s
}

// kept is status.remote as it is, in lists, unless it cannot be an answer to spec.remote.
func kept(c *networkingv1beta1.Configuration) *networkingv1beta1.ClusterConfig {
	s := c.Status.Remote
	if s == nil || !fits(s.CIDR.Pod, c.Spec.Remote.CIDR.Pod) || !fits(s.CIDR.External, c.Spec.Remote.CIDR.External) {
		return nil
	}
	s = s.DeepCopy()
	s.CIDR.Pod.Scalar, s.CIDR.External.Scalar = false, false
	return s
}

func fits(granted, asked networkingv1beta1.CIDRs) bool {
	return slices.EqualFunc(granted.List, asked.List, func(g, a networkingv1beta1.CIDR) bool {
		x, errX := g.Prefix()
		y, errY := a.Prefix()
		return errX == nil && errY == nil && x.Bits() == y.Bits() && x.Addr().Is4() == y.Addr().Is4()
	})
}

// result is what a Network says.
type result struct {
	CIDR    string
	Refused bool
	Message string
}

// answer reads a Network, which may be nil.
func answer(n *ipamv1alpha1.Network) (r result) {
	if n == nil || !n.DeletionTimestamp.IsZero() {
		return r
	}
	c := meta.FindStatusCondition(n.Status.Conditions, string(ipamv1alpha1.ConditionAllocated))
	if c != nil {
		r.Message = c.Message
	}
	// A prefix in the status is no grant while the IPAM says otherwise.
	if c != nil && c.Status == metav1.ConditionFalse {
		switch ipamv1alpha1.ConditionReason(c.Reason) {
		case ipamv1alpha1.ReasonInvalid, ipamv1alpha1.ReasonOverlap, ipamv1alpha1.ReasonExhausted:
			r.Refused = true
			return r
		}
	}
	if n.Status.CIDR == "" {
		return r
	}
	asked, err := netip.ParsePrefix(string(n.Spec.CIDR))
	given, err2 := netip.ParsePrefix(string(n.Status.CIDR))
	if err != nil || err2 != nil || asked.Bits() != given.Bits() || asked.Addr().Is4() != given.Addr().Is4() {
		return result{Refused: true, Message: fmt.Sprintf("status.cidr is %q, which cannot stand for %s: delete the Network, and it is created again", n.Status.CIDR, n.Spec.CIDR)}
	}
	r.CIDR = string(n.Status.CIDR)
	return r
}

func names(ns []*ipamv1alpha1.Network) string {
	list := make([]string, len(ns))
	for i, n := range ns {
		list[i] = n.Name
	}
	return strings.Join(list, ", ")
}

// suffix is text after a colon, or nothing.
func suffix(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
