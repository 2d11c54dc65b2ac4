package bootstrap

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// The ConfigMap with the ID of the cluster.
const (
	ClusterIDConfigMap = "liqo-clusterid-configmap"
	ClusterIDKey       = "CLUSTER_ID"
)

// externalIPv6Name is the Network with the external CIDR of IPv6, externalIPv6 what it asks for: a prefix of the default pool
// with as many addresses as that of IPv4.
const externalIPv6Name = ipamv1alpha1.NetworkTypeExternalCIDR + "-ipv6"

var externalIPv6 = netip.MustParsePrefix("fd50:52ea:70::/112")

// Facts are what there is.
type Facts struct {
	// ConfigMap is nil when there is none.
	ConfigMap *corev1.ConfigMap
	// Networks are those of the Liqo namespace.
	Networks []ipamv1alpha1.Network
	// ServiceCIDRs are those that the API server tells, if it does.
	ServiceCIDRs []netip.Prefix
}

// Plan is what to do.
type Plan struct {
	// Create holds what is missing, in the order in which it should exist.
	Create []client.Object
	// Problems are what only the administrator can cure.
	Problems []string
	// Notes tell where an object differs from the options and stays.
	Notes []string
}

// Build compares what there is with the options.
//
//	object         | there                  | missing, option set | missing, option not set
//	ConfigMap      | stays                  | made                | problem
//	pod-cidr       | stays                  | made                | problem, if none of its type is there
//	service-cidr   | stays                  | made                | made, if the API server tells; else problem
//	reserved-*     | stays                  | made                | -
//	external-cidr, | stays                  | made as option says | (they have defaults)
//	internal-cidr  |                        |                     |
//
// A cluster whose pods have IPv6 has an external CIDR of IPv6, too, if it is not there: external-cidr-ipv6.
//
// A note says where what stays contradicts a set option.
func Build(o Options, f Facts) Plan {
	b := builder{options: o, facts: f}
	b.clusterID()
	// The IPAM serves them in any order; in this one nothing has to give way.
	b.reserved()
	b.own(ipamv1alpha1.NetworkTypePodCIDR, o.PodCIDRs, nil)
	b.own(ipamv1alpha1.NetworkTypeServiceCIDR, o.ServiceCIDRs, f.ServiceCIDRs)
	// The first address of the external CIDR stands for all senders that have no
	// address in the pod network.
	b.movable(ipamv1alpha1.NetworkTypeExternalCIDR, o.ExternalCIDR, 1)
	b.externalIPv6()
	b.movable(ipamv1alpha1.NetworkTypeInternalCIDR, o.InternalCIDR, 0)
	return b.plan
}

type builder struct {
	options Options
	facts   Facts
	plan    Plan
}

func (b *builder) problemf(format string, args ...any) {
	b.plan.Problems = append(b.plan.Problems, fmt.Sprintf(format, args...))
}

func (b *builder) notef(format string, args ...any) {
	b.plan.Notes = append(b.plan.Notes, fmt.Sprintf(format, args...))
}

func (b *builder) clusterID() {
	want, name := b.options.ClusterID, b.options.LiqoNamespace+"/"+ClusterIDConfigMap
	if b.facts.ConfigMap == nil {
		if want == "" {
			b.problemf("this cluster has no ID yet: set --cluster-id to a name that none of its peers has (it is kept in ConfigMap %s)", name)
			return
		}
		b.plan.Create = append(b.plan.Create, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: ClusterIDConfigMap, Namespace: b.options.LiqoNamespace,
				Labels: map[string]string{
					"app.kubernetes.io/name":       "clusterid-configmap",
					networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue,
				},
			},
			Data: map[string]string{ClusterIDKey: want},
		})
		return
	}
	switch have := b.facts.ConfigMap.Data[ClusterIDKey]; {
	case len(validation.IsDNS1123Label(have)) > 0:
		b.problemf("ConfigMap %s has no valid ID of this cluster: %s is %q; correct it, or delete the ConfigMap and set --cluster-id", name, ClusterIDKey, have)
	case want != "" && want != have:
		b.notef("--cluster-id %s is not used: this cluster is %s, as ConfigMap %s says and its peers know", want, have, name)
	}
}

// reserved makes the Networks of prefixes that must not be handed out.
func (b *builder) reserved() {
	there := b.networks(ipamv1alpha1.NetworkTypeReserved)
	for _, p := range b.options.ReservedCIDRs {
		if slices.ContainsFunc(there, func(n ipamv1alpha1.Network) bool { return is(n, p) }) {
			continue
		}
		b.create(ReservedName(p), ipamv1alpha1.NetworkTypeReserved, p, map[string]string{
			ipamv1alpha1.LabelNetworkNotRemapped: networkingv1beta1.LabelTrue,
			ipamv1alpha1.LabelNetworkShared:      networkingv1beta1.LabelTrue,
		}, 0)
	}
}

// ReservedName is the name of the Network of a prefix that must not be handed out.
func ReservedName(p netip.Prefix) string { return ipamv1alpha1.NetworkTypeReserved + "-" + escape(p) }

// own makes the Networks of prefixes that the cluster uses, whatever the IPAM
// thinks of it.
func (b *builder) own(kind string, set, detected []netip.Prefix) {
	there := b.networks(kind)
	if len(set) == 0 {
		if len(there) > 0 {
			return
		}
		if set = detected; len(set) == 0 {
			b.problemf("the %s of this cluster is not known: set %s (it is kept in Network %s/%s)", words[kind], flagOf(kind), b.options.LiqoNamespace, kind)
			return
		}
	}
	for _, p := range set {
		if slices.ContainsFunc(there, func(n ipamv1alpha1.Network) bool { return is(n, p) }) {
			continue
		}
		name := kind
		if len(set) > 1 {
			name += "-" + escape(p)
		}
		b.create(name, kind, p, map[string]string{ipamv1alpha1.LabelNetworkNotRemapped: networkingv1beta1.LabelTrue}, 0)
	}
}

// movable makes the Network of a prefix that only this project uses.
func (b *builder) movable(kind string, r Range, preAllocated int32) {
	there := b.ofFamily(kind, r.Prefix)
	if len(there) == 0 {
		labels := map[string]string{}
		if r.Fixed {
			labels[ipamv1alpha1.LabelNetworkNotRemapped] = networkingv1beta1.LabelTrue
		}
		b.create(kind, kind, r.Prefix, labels, preAllocated)
		return
	}
	if r.Fixed && !slices.ContainsFunc(there, func(n ipamv1alpha1.Network) bool { return is(n, r.Prefix) }) {
		b.differs(there[0], kind, r.Prefix)
	}
}

// externalIPv6 makes the external CIDR of IPv6 of a cluster that has pods of it.
func (b *builder) externalIPv6() {
	pods := slices.ContainsFunc(b.options.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) ||
		len(b.ofFamily(ipamv1alpha1.NetworkTypePodCIDR, externalIPv6)) > 0
	asked := b.options.ExternalCIDR.Prefix.Addr().Is6()
	if pods && !asked && len(b.ofFamily(ipamv1alpha1.NetworkTypeExternalCIDR, externalIPv6)) == 0 {
		b.create(externalIPv6Name, ipamv1alpha1.NetworkTypeExternalCIDR, externalIPv6, map[string]string{}, 1)
	}
}

// ofFamily are the Networks of a type that have a prefix of the family of p.
func (b *builder) ofFamily(kind string, p netip.Prefix) []ipamv1alpha1.Network {
	return slices.DeleteFunc(b.networks(kind), func(n ipamv1alpha1.Network) bool {
		have, err := n.Spec.CIDR.Prefix()
		return err == nil && have.Addr().Is4() != p.Addr().Is4()
	})
}

func (b *builder) differs(n ipamv1alpha1.Network, kind string, p netip.Prefix) {
	b.notef("%s %s is not used: Network %s/%s is %s; to change it, delete the Network while no peer is connected", flagOf(kind), p, n.Namespace, n.Name, n.Spec.CIDR)
}

// create plans a Network, unless its name is taken by one of another prefix.
func (b *builder) create(name, kind string, p netip.Prefix, labels map[string]string, preAllocated int32) {
	i := slices.IndexFunc(b.facts.Networks, func(n ipamv1alpha1.Network) bool { return n.Name == name })
	if i >= 0 {
		b.differs(b.facts.Networks[i], kind, p)
		return
	}
	labels[networkingv1beta1.LabelManaged] = networkingv1beta1.LabelTrue
	labels[ipamv1alpha1.LabelNetworkType] = kind
	b.plan.Create = append(b.plan.Create, &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: b.options.LiqoNamespace, Labels: labels,
			Annotations: map[string]string{networkingv1beta1.AnnotationPreinstalled: networkingv1beta1.LabelTrue},
		},
		Spec: ipamv1alpha1.NetworkSpec{CIDR: ipamv1alpha1.CIDR(p.String()), PreAllocated: preAllocated},
	})
}

// networks returns those of a type: by their label or, where it is lost, by
// their name.
func (b *builder) networks(kind string) []ipamv1alpha1.Network {
	var ns []ipamv1alpha1.Network
	for _, n := range b.facts.Networks {
		if n.Labels[ipamv1alpha1.LabelNetworkType] == kind || n.Name == kind {
			ns = append(ns, n)
		}
	}
	return ns
}

// words name the types of Networks in messages.
var words = map[string]string{
	ipamv1alpha1.NetworkTypePodCIDR:     "pod CIDR",
	ipamv1alpha1.NetworkTypeServiceCIDR: "Service CIDR",
}

// flagOf is the flag that sets the prefix of a type.
func flagOf(kind string) string {
	if kind == ipamv1alpha1.NetworkTypeReserved {
		return "--reserved-cidr"
	}
	return "--" + kind
}

// is tells whether a Network asks for p.
func is(n ipamv1alpha1.Network, p netip.Prefix) bool {
	have, err := n.Spec.CIDR.Prefix()
	return err == nil && have.Masked() == p.Masked()
}

// escape makes a prefix part of a name.
func escape(p netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
}
