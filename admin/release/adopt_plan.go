package release

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/template"
)

// AdoptOptions say which peerings change hands.
type AdoptOptions struct {
	// Peers are the IDs of remote clusters. All stands for those of all peerings.
	Peers []string
	All   bool
	// Back gives peerings to Liqo's gateway again.
	Back bool
	// Values are of the chart: image, resources and arguments of our gateways.
	Values Values
	// Timeout bounds the wait for each gateway.
	Timeout time.Duration
}

// adoptFacts are what a plan depends on.
type adoptFacts struct {
	gateways []liqoGateway
	// templates are those that gateways refer to, those of which they are copies, and all copies.
	templates map[templateName]*unstructured.Unstructured
	// ours are the templates of the chart, by kind.
	ours map[string]*unstructured.Unstructured
	// bindings are those of adoptions.
	bindings []rbacv1.ClusterRoleBinding
	// role is the ClusterRole of adoptions; nil: there is none.
	role *rbacv1.ClusterRole
}

// templateName names a template.
type templateName struct{ kind, namespace, name string }

func (n templateName) String() string { return fmt.Sprintf("%s %s/%s", n.kind, n.namespace, n.name) }

// liqoGateway is a GatewayServer or a GatewayClient.
type liqoGateway struct {
	gatewayAtWork
	kind string
	// field is that of the spec which names the template.
	field string
	ref   templateName
	peer  string
	// secret is the one with its keys.
	secret  string
	tunnels int
	// connected says that the peer answers through it.
	connected bool
}

func (g liqoGateway) named() string { return g.kind + " " + g.name.String() }

// handover is one gateway that changes hands.
type handover struct {
	liqoGateway
	// Names of templates. Liqos is that of Liqo's, copied our copy of it.
	from, to, liqos, copied string
	// noted is the note on the copy of a handover that an earlier command has not completed.
	noted string
	// account is that of the gateway's pods.
	account string
	// make are the objects that are applied before; changed says that the template among them is.
	make    []client.Object
	changed bool
}

// moves tells whether the gateway refers to another template afterwards.
func (h *handover) moves() bool { return h.from != h.to }

// otherwise is the template to refer to if the gateway does not get ready.
func (h *handover) otherwise() string {
	if h.to == h.liqos {
		return h.from
	}
	return h.liqos
}

// replaces tells whether the gateway gets another pod.
func (h *handover) replaces() bool { return h.moves() || h.changed }

// wasGivenBack tells whether an earlier command made the gateway Liqo's, and left things behind. A peer that has gone for
// good must not keep them: it has as long to answer as it had then.
func (h *handover) wasGivenBack() bool { return !h.replaces() && h.to == h.liqos }

// awaited tells whether the peer has to answer in the end: if it did before this command, or before an earlier one that was
// interrupted.
func (h *handover) awaited() bool { return h.replaces() && h.connected || h.noted == peerAnswered }

// adoptionPlan is what is to be done.
type adoptionPlan struct {
	handovers []handover
	// remove are objects of adoptions that nothing needs any more.
	remove []client.Object
	// notes tell of gateways that stay as they are.
	notes []string
}

// plan decides. The error names all that is in the way.
func (f adoptFacts) plan(o AdoptOptions) (p adoptionPlan, err error) {
	if err := f.known(o); err != nil {
		return p, err
	}
	decide := f.adopt
	if o.Back {
		decide = func(g liqoGateway) (handover, string, error) { return f.giveBack(g, o.All) }
	}
	var errs []error
	templates, bindings := map[templateName]bool{}, map[string]bool{} // that are in use in the end
	for _, g := range f.gateways {
		ref, adopted := g.ref, isCopy(f.templates[g.ref])
		if o.All || slices.Contains(o.Peers, g.peer) {
			switch h, note, err := decide(g); {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", g.named(), err))
			case note != "":
				p.notes = append(p.notes, g.named()+" "+note)
			default:
				p.handovers = append(p.handovers, h)
				ref.name, adopted = h.to, !o.Back
			}
		}
		templates[ref] = true
		if adopted {
			bindings[bindingName(g)] = true
		}
	}
	p.remove = f.unneeded(templates, bindings)
	return p, errors.Join(errs...)
}

// known checks that the peerings exist.
func (f adoptFacts) known(o AdoptOptions) error {
	var peers []string
	for _, g := range f.gateways {
		peers = append(peers, g.peer)
	}
	slices.Sort(peers)
	there := "peerings: " + strings.Join(slices.Compact(peers), ", ")
	switch {
	case len(peers) == 0:
		return errors.New("this cluster has no gateways: there is no peering to hand over")
	case o.All && len(o.Peers) > 0, !o.All && len(o.Peers) == 0:
		return fmt.Errorf("name the peerings by the IDs of their clusters, or all of them with --all; %s", there)
	}
	for _, id := range o.Peers {
		if !slices.Contains(peers, id) {
			return fmt.Errorf("there is no gateway for cluster %q; %s", id, there)
		}
	}
	return nil
}

// adopt hands a gateway to Sluice.
func (f adoptFacts) adopt(g liqoGateway) (h handover, note string, err error) {
	theirs := f.templates[g.ref]
	if theirs == nil {
		return h, "", fmt.Errorf("there is no %s", g.ref)
	}
	from := g.ref
	if isCopy(theirs) { // adopted before: the copy may be of another version
		from.name = theirs.GetAnnotations()[annotationTemplateOf]
		if theirs = f.templates[from]; theirs == nil {
			return h, "", fmt.Errorf("there is no %s, of which %s is a copy", from, g.ref)
		}
	} else if isOurs(theirs) {
		return h, fmt.Sprintf("has Sluice's gateway already, by %s, which was made by hand: it stays as it is", g.ref), nil
	}
	to := from
	to.name = copyName(from, g)
	copied, err := adoptedTemplate(to.name, theirs, f.ours[g.templateKind])
	if err != nil {
		return h, "", fmt.Errorf("%s cannot be adopted: %w", from, err)
	}
	if g.tunnels > 1 {
		dropTunnelPort(copied)
	}
	pod, err := renderedPod(copied, g.vars)
	if err != nil {
		return h, "", fmt.Errorf("%s cannot be adopted: %w", from, err)
	}
	h = handover{
		liqoGateway: g, from: g.ref.name, to: to.name, liqos: from.name, copied: to.name, noted: noteOn(f.templates[to]),
		account: cmp.Or(pod.ServiceAccountName, "default"),
	}
	h.make = []client.Object{adoptionRole(), copied, adoptionBinding(h)}
	return h, "", nil
}

// giveBack hands a gateway to Liqo. One that was made by hand is in the way only if it was named. If there is a copy still
// that was made for a gateway of Liqo's, an earlier command was interrupted, and this one waits for it.
func (f adoptFacts) giveBack(g liqoGateway, all bool) (h handover, note string, err error) {
	ours := f.templates[g.ref]
	left := g.ref
	left.name = copyName(g.ref, g)
	switch {
	case ours == nil:
		return h, "", fmt.Errorf("there is no %s", g.ref)
	case !isCopy(ours) && isOurs(ours) && all:
		return h, fmt.Sprintf("has Sluice's gateway by %s, which was made by hand: it stays as it is", g.ref), nil
	case !isCopy(ours) && isOurs(ours):
		return h, "", fmt.Errorf("%s was made by hand, so nothing tells what it took the place of: set the name of Liqo's template in spec.%s", g.ref, g.field)
	case !isCopy(ours) && isCopy(f.templates[left]):
		return handover{liqoGateway: g, from: g.ref.name, to: g.ref.name, liqos: g.ref.name, copied: left.name, noted: noteOn(f.templates[left])}, "", nil
	case !isCopy(ours):
		return h, "is Liqo's", nil
	}
	to := g.ref
	to.name = ours.GetAnnotations()[annotationTemplateOf]
	if f.templates[to] == nil {
		return h, "", fmt.Errorf("there is no %s any more, of which %s is a copy: install it again", to, g.ref)
	}
	return handover{liqoGateway: g, from: g.ref.name, to: to.name, liqos: to.name, copied: g.ref.name, noted: noteOn(ours)}, "", nil
}

// unneeded are the objects of adoptions that nothing uses.
func (f adoptFacts) unneeded(templates map[templateName]bool, bindings map[string]bool) (objects []client.Object) {
	for i := range f.bindings {
		if b := &f.bindings[i]; !bindings[b.Name] {
			objects = append(objects, b)
		}
	}
	for name, u := range f.templates {
		if isCopy(u) && !templates[name] {
			objects = append(objects, u)
		}
	}
	if f.role != nil && len(bindings) == 0 {
		objects = append(objects, f.role)
	}
	slices.SortFunc(objects, func(a, b client.Object) int { return strings.Compare(describe(a), describe(b)) })
	return objects
}

// copyName names the copy of a template for one gateway. Each has its own: Liqo's controllers replace all gateways whose
// template changes.
func copyName(of templateName, g liqoGateway) string {
	return strings.Join([]string{copyPrefix + of.name, g.name.Namespace, g.name.Name}, ".")
}

// isCopy tells whether a template was made by an adoption.
func isCopy(u *unstructured.Unstructured) bool {
	return u != nil && u.GetLabels()[labelAdoption] == networkingv1beta1.LabelTrue && u.GetAnnotations()[annotationTemplateOf] != ""
}

func noteOn(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	return u.GetAnnotations()[annotationSilent]
}

// renderedPod is the pod of a gateway by a template. Whether the gateway has become that is compared with it.
func renderedPod(u *unstructured.Unstructured, v template.Vars) (corev1.PodSpec, error) {
	var spec corev1.PodSpec
	source, err := table(u.Object, pathPod)
	if err != nil {
		return spec, err
	}
	content, err := template.Render(source, v, spec)
	if err != nil {
		return spec, err
	}
	return spec, runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec)
}

// adoptionName is the ClusterRole of our gateways under Liqo, and begins the names of its bindings.
const adoptionName = "sluice-adopted-gateway"

func bindingName(g liqoGateway) string {
	return strings.Join([]string{adoptionName, g.name.Namespace, g.name.Name}, ":")
}

// adoptionRole is what our gateway needs beside what Liqo's role liqo-gateway grants.
func adoptionRole() *rbacv1.ClusterRole {
	read := []string{"get", "list", "watch"}
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	group := networkingv1beta1.GroupVersion.Group
	r := &rbacv1.ClusterRole{ObjectMeta: adoptionMeta(adoptionName), Rules: []rbacv1.PolicyRule{
		rule(group, read, "configurations", "connections", "firewallconfigurations", "gatewayclients", "gatewayservers", "genevetunnels",
			"internalfabrics", "internalnodes", "publickeies", "routeconfigurations"),
		rule(group, []string{"get", "patch", "update"}, "connections/status", "firewallconfigurations/status"),
		rule(ipamv1alpha1.GroupVersion.Group, read, "ips"),
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	r.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	return r
}

// adoptionBinding gives these rights to the account of one gateway: in all namespaces, as the nodes' objects are in none and
// filters in Liqo's.
func adoptionBinding(h handover) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{
		ObjectMeta: adoptionMeta(bindingName(h.liqoGateway)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: adoptionName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: h.name.Namespace, Name: h.account}},
	}
	b.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
	return b
}

func adoptionMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{labelManagedBy: managedByUs, labelAdoption: networkingv1beta1.LabelTrue}}
}
