package release

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// Before Liqo's controllers start again, objects become such as they can read, and what they would have removed meanwhile goes.

// asLists is a Configuration whose prefixes are lists; nil: they are.
func asLists(c networkingv1beta1.Configuration) *networkingv1beta1.Configuration {
	if changed := c.DeepCopy(); changed.Spec.AsLists() {
		return changed
	}
	return nil
}

// writeLists makes lists of prefixes, as they are by now.
func (h *HandBack) writeLists(ctx context.Context) error {
	changed, err := h.withStrings(ctx)
	if err != nil {
		return err
	}
	for i := range changed {
		c := &changed[i]
		what := "change Configuration " + client.ObjectKeyFromObject(c).String()
		err := h.cluster.Client.Patch(ctx, asLists(*c), client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}), fieldOwner)
		if client.IgnoreNotFound(err) != nil {
			return h.cluster.Explain(what, err)
		}
	}
	return nil
}

// withStrings are the Configurations that Liqo's controllers cannot read.
func (h *HandBack) withStrings(ctx context.Context) ([]networkingv1beta1.Configuration, error) {
	var all networkingv1beta1.ConfigurationList
	if err := h.cluster.Client.List(ctx, &all); err != nil {
		return nil, h.cluster.Explain("list the Configurations", err)
	}
	return slices.DeleteFunc(all.Items, func(c networkingv1beta1.Configuration) bool { return asLists(c) == nil }), nil
}

// Liqo's controllers make rules of each IP, in a FirewallConfiguration without an owner, and remove them when the IP goes.
// While Sluice runs the network they may not, and IPs of offloaded pods come and go. When the address is given to another
// IP, the gateways of Liqo would lead it to where it led before.

// mappingSuffixes end the names of such FirewallConfigurations, those for gateways and those for nodes.
var mappingSuffixes = []string{"remap-ipmapping-gw", "remap-ipmapping-fabric"}

// outdated are those of which a rule is of no IP that there is. Liqo's controllers make them anew of the IPs that there are.
func outdated(firewalls []networkingv1beta1.FirewallConfiguration, ips []ipamv1alpha1.IP) (all []client.Object) {
	byKey := map[client.ObjectKey]*ipamv1alpha1.IP{}
	for i := range ips {
		byKey[client.ObjectKeyFromObject(&ips[i])] = &ips[i]
	}
	for i := range firewalls {
		f := &firewalls[i]
		if f.Labels[networkingv1beta1.LabelFirewallSubcategory] != networkingv1beta1.SubcategoryIPMapping || f.Annotations[annotationReleaseName] != "" ||
			!slices.ContainsFunc(mappingSuffixes, func(s string) bool { return strings.HasSuffix("-"+f.Name, "-"+s) }) {
			continue // somebody else's
		}
		if slices.ContainsFunc(f.Spec.Table.Chains, func(c networkingv1beta1.FirewallChain) bool {
			return slices.ContainsFunc(c.Rules.NATRules, func(r networkingv1beta1.NATRule) bool {
				return !translates(r, byKey[client.ObjectKey{Namespace: f.Namespace, Name: r.Name}])
			})
		}) {
			f.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind("FirewallConfiguration"))
			all = append(all, f)
		}
	}
	return all
}

// translates tells whether a rule is about the addresses of an IP; nil: it is gone.
func translates(r networkingv1beta1.NATRule, ip *ipamv1alpha1.IP) bool {
	if ip == nil {
		return false
	}
	its := []string{string(ip.Spec.IP), string(ip.Status.IP)}
	return (r.To == "" || r.To == its[0]) && !slices.ContainsFunc(r.Match, func(m networkingv1beta1.Match) bool { return m.IP != nil && !slices.Contains(its, m.IP.Value) })
}

// outdatedMappings looks for them in the cluster.
func (h *HandBack) outdatedMappings(ctx context.Context) ([]client.Object, error) {
	var firewalls networkingv1beta1.FirewallConfigurationList
	if err := h.cluster.Client.List(ctx, &firewalls); err != nil {
		return nil, h.cluster.Explain("list the FirewallConfigurations", err)
	}
	var ips ipamv1alpha1.IPList
	if err := h.cluster.Client.List(ctx, &ips); err != nil {
		return nil, h.cluster.Explain("list the IPs", err)
	}
	return outdated(firewalls.Items, ips.Items), nil
}

// removeMappings removes them, as they are by now.
func (h *HandBack) removeMappings(ctx context.Context) error {
	all, err := h.outdatedMappings(ctx)
	if err != nil {
		return err
	}
	return h.delete(ctx, all)
}

// ownKinds are those of what our controllers make beside what Liqo's make, too.
var ownKinds = []schema.GroupVersionKind{
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	{Group: rbacv1.GroupName, Version: "v1", Kind: "RoleBinding"},
	{Group: rbacv1.GroupName, Version: "v1", Kind: "Role"},
	{Group: rbacv1.GroupName, Version: "v1", Kind: "ClusterRoleBinding"},
}

// madeByOurs tells whether our controllers have made an object for the network: Liqo's label theirs in the same way, and what
// is of authentication and offloading is not ours to take, whoever made it.
func madeByOurs(o client.Object) bool {
	_, hashed := o.GetAnnotations()[apply.AnnotationHash]
	_, ofGateway := o.GetLabels()[networkingv1beta1.LabelGatewayName]
	return hashed && (ofGateway || slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(r.APIVersion, "/")
		return kinds.OfNetwork(group)
	}))
}
