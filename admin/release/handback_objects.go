package release

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/controlplane/network/gatewaydeploy"
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

// deleteFound deletes what is found, as it is by now, one after the other.
func (h *HandBack) deleteFound(ctx context.Context, finds ...func(context.Context) ([]client.Object, error)) error {
	for _, find := range finds {
		there, err := find(ctx)
		if err != nil {
			return err
		}
		if err := h.delete(ctx, there); err != nil {
			return err
		}
	}
	return nil
}

// reserved are the Networks that our controllers have made of --reserved-subnets. They go before Liqo's IPAM reads the
// Networks.
func (h *HandBack) reserved(ctx context.Context) ([]client.Object, error) {
	prefixes, _ := cidrsAt(h.values, "ipam.reservedSubnets", "") // of one that is none nobody has made a Network
	var kept corev1.ConfigMap
	if err := h.cluster.Client.Get(ctx, client.ObjectKey{Namespace: h.cluster.LiqoNamespace, Name: keptCRDs}, &kept); err != nil {
		return nil, h.cluster.Explain("read ConfigMap "+keptCRDs, client.IgnoreNotFound(err))
	}
	var all ipamv1alpha1.NetworkList
	if err := h.cluster.Client.List(ctx, &all, client.InNamespace(h.cluster.LiqoNamespace)); err != nil {
		return nil, h.cluster.Explain("list the Networks", err)
	}
	return reservedByUs(all.Items, kept.CreationTimestamp, prefixes), nil
}

// reservedByUs are those of the Networks that our controllers have made of the prefixes after the beginning of a takeover.
// Those of Liqo's installation look the same. They are older, unless all objects are from a backup, and seldom of these
// prefixes; what Liqo or somebody else made between two takeovers is of others.
func reservedByUs(all []ipamv1alpha1.Network, since metav1.Time, prefixes []netip.Prefix) (ours []client.Object) {
	for i := range all {
		n := &all[i]
		known := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
			return n.Name == bootstrap.ReservedName(p) && string(n.Spec.CIDR) == p.String()
		})
		if known && since.Before(&n.CreationTimestamp) && n.Annotations[networkingv1beta1.AnnotationPreinstalled] != "" &&
			n.Labels[ipamv1alpha1.LabelNetworkType] == ipamv1alpha1.NetworkTypeReserved && n.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue &&
			n.Annotations[annotationReleaseName] == "" && len(n.OwnerReferences) == 0 {
			n.SetGroupVersionKind(ipamv1alpha1.GroupVersion.WithKind("Network"))
			ours = append(ours, n)
		}
	}
	return ours
}

// sharedKinds are those of what Liqo's controllers make of gateways and IPs beside the kinds of the network.
var sharedKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
}

// notes are the annotations by which our controllers know what they have written.
var notes = []string{apply.AnnotationHash, gatewaydeploy.AnnotationAccount}

// unmark removes them from what stays. That of a Deployment about its pods goes with the other one: alone it would count.
// Nobody else makes anything of them, so the hand-back goes on where something refuses the change.
func (h *HandBack) unmark(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{notes[0]: nil, notes[1]: nil}}})
	if err != nil {
		return err
	}
	var left []string
	var why error
	leave := func(what string, err error) {
		if err != nil {
			left, why = append(left, what), cmp.Or(why, err)
		}
	}
	all, err := h.ourKinds(ctx)
	leave("objects of the network", err)
	all = slices.DeleteFunc(all, func(k schema.GroupVersionKind) bool { return !apply.OfNetwork(k.Group) })
	for _, kind := range slices.Concat(all, sharedKinds) {
		var labelled []client.ListOption // others may have many of these kinds
		if !apply.OfNetwork(kind.Group) {
			labelled = append(labelled, client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue})
		}
		list, err := h.listKind(ctx, kind, labelled...)
		leave("objects of kind "+kind.Kind, err)
		for _, o := range list {
			if _, hashed := o.GetAnnotations()[notes[0]]; !hashed || !apply.OfNetwork(kind.Group) && !madeByOurs(o) {
				continue
			}
			err := h.cluster.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), fieldOwner)
			leave(describe(o), client.IgnoreNotFound(err))
		}
	}
	if len(left) > 0 && ctx.Err() == nil {
		h.tell.Warning(h.cluster.Name, fmt.Sprintf("annotations of Sluice's controllers (%s) stay on %s, which does no harm: %v", strings.Join(notes, ", "), text.Few(left), why))
	}
	return h.cluster.Explain("remove annotations of Sluice's controllers", ctx.Err())
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
		return apply.OfNetwork(group)
	}))
}
