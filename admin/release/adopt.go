package release

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// In a cluster whose network Liqo runs, gateways can be handed to Sluice one by one, and back. Liqo's controllers and its
// node agent stay. They make a gateway of the template that it refers to, so a handover is a change of one name; before it
// comes a copy of Liqo's template with our pod, and what this pod may read.

// Adoption is what hands peerings over. To prepare it changes nothing.
type Adoption struct {
	// Steps are what would be done to which object, in order.
	Steps []AdoptionStep
	// Notes tell of gateways that stay as they are, and why.
	Notes []string

	adoptionPlan
	cluster *access.Cluster
	timeout time.Duration
	// takenOver says that Sluice runs the network: its controllers run no gateway by a template of Liqo's.
	takenOver bool
}

// AdoptionStep is what happens to one object: "create", "update", "switch", "delete"; by controllers "replace";
// "keep" where it stays. A takeover may "try" an image, and "hand" an object to other controllers.
type AdoptionStep struct{ Verb, Object, Detail string }

// Idle tells whether there is nothing to do.
func (a *Adoption) Idle() bool {
	return !slices.ContainsFunc(a.Steps, func(s AdoptionStep) bool { return s.Verb != "keep" })
}

// PrepareAdoption looks at the cluster. The error tells what is in the way.
func PrepareAdoption(ctx context.Context, c *access.Cluster, chart *Chart, o AdoptOptions) (*Adoption, error) {
	if err := c.Require(ctx, adoptionRights(c.LiqoNamespace)...); err != nil {
		return nil, err
	}
	r := &Removal{cluster: c}
	policies, err := r.policies(ctx)
	if err != nil {
		return nil, err
	}
	if len(policies) > 0 {
		switch ours, err := r.ourControllers(ctx); {
		case err != nil:
			return nil, err
		case ours == nil: // and Liqo's may not replace a gateway
			return nil, withLeft(ctx, c, c.Errorf("nothing was changed: a takeover of Liqo's network, or the way back, has to come to its end first"))
		case o.Back:
			return nil, c.Errorf("nothing was changed: Sluice runs the network of this cluster, and its controllers cannot run Liqo's gateways: " +
				"give the network back first, with 'liqoctl uninstall --hand-back'")
		}
	}
	g := adoptGatherer{Cluster: c}
	if err := g.read(ctx, chart, o.Values); err != nil {
		return nil, err
	}
	a := &Adoption{cluster: c, timeout: o.Timeout, takenOver: len(policies) == 2}
	if a.adoptionPlan, err = g.facts.plan(o); err != nil {
		return nil, c.Errorf("nothing was changed: %w", err)
	}
	a.Notes = a.notes
	return a, a.list(ctx)
}

// list fills in Steps.
func (a *Adoption) list(ctx context.Context) error {
	step := func(verb, object, format string, args ...any) {
		a.Steps = append(a.Steps, AdoptionStep{verb, object, fmt.Sprintf(format, args...)})
	}
	listed := map[string]bool{}
	for i := range a.handovers {
		h := &a.handovers[i]
		for _, o := range h.make {
			verb, err := a.wouldApply(ctx, o)
			if err != nil {
				return err
			}
			h.changed = h.changed || verb != "" && isTemplate(o)
			if verb != "" && !listed[describe(o)] {
				step(verb, describe(o), "")
			}
			listed[describe(o)] = true
		}
		if h.moves() {
			step("switch", h.named(), "spec.%s.name: %s -> %s", h.field, h.from, h.to)
		}
		if !h.replaces() {
			continue
		}
		where := h.deployment().String()
		step("replace", fmt.Sprintf("Wg%s %s", h.kind, h.name), "by %s, from the template", a.controllers())
		step("replace", "Deployment "+where, "by %s: traffic stops until its new pod is ready", a.controllers())
		if h.kind == "GatewayServer" {
			step("keep", "Service "+where, "its ports and addresses")
		}
		if h.secret != "" {
			step("keep", fmt.Sprintf("Secret %s/%s", h.name.Namespace, h.secret), "the keys")
		}
		step("keep", "Connection "+where, "its state is reported by the new pod")
	}
	for _, o := range a.remove {
		step("delete", describe(o), "nothing needs it any more")
	}
	return nil
}

// controllers are those that make gateways of templates.
func (a *Adoption) controllers() string {
	if a.takenOver {
		return "Sluice's controllers"
	}
	return "Liqo's controllers"
}

func isTemplate(o client.Object) bool {
	return strings.HasSuffix(o.GetObjectKind().GroupVersionKind().Kind, "Template")
}

// wouldApply tells what applying an object would do: "create", "update", or nothing. An object of this name that no adoption
// made is in the way.
func (a *Adoption) wouldApply(ctx context.Context, o client.Object) (verb string, err error) {
	u, err := asUnstructured(o)
	if err != nil {
		return "", err
	}
	have := new(unstructured.Unstructured)
	have.SetGroupVersionKind(u.GroupVersionKind())
	switch err := a.cluster.Client.Get(ctx, client.ObjectKeyFromObject(u), have); {
	case apierrors.IsNotFound(err):
		return "create", nil
	case err != nil:
		return "", a.cluster.Explain("read "+describe(u), err)
	case have.GetLabels()[labelAdoption] != networkingv1beta1.LabelTrue:
		return "", a.cluster.Errorf("nothing was changed: %s exists, and was not made by this command: rename or delete it", describe(u))
	}
	err = a.cluster.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership, client.DryRunAll)
	if err != nil {
		return "", a.cluster.Explain("compare "+describe(u), err)
	}
	if alike(have, u) {
		return "", nil
	}
	return "update", nil
}

// adoptionRights are what an adoption does.
func adoptionRights(namespace string) (ps []access.Permission) {
	add := func(group, namespace string, verbs []string, resources ...string) {
		for _, r := range resources {
			ps = append(ps, access.Permissions(group, r, namespace, verbs...)...)
		}
	}
	networking := networkingv1beta1.GroupVersion.Group
	all := []string{"create", "patch", "delete"}
	add("admissionregistration.k8s.io", "", []string{"get"}, "validatingadmissionpolicies", "validatingadmissionpolicybindings")
	add(rbacv1.GroupName, "", all, "clusterroles", "clusterrolebindings")
	add(networking, namespace, all, "wggatewayservertemplates", "wggatewayclienttemplates")
	add(networking, "", []string{"list", "patch"}, "gatewayservers", "gatewayclients")
	add("", "", []string{"create", "delete", "get", "list"}, "pods")
	add("apps", "", []string{"get"}, "deployments")
	return ps
}

// adoptGatherer reads the facts.
type adoptGatherer struct {
	*access.Cluster
	facts adoptFacts
}

func (g *adoptGatherer) read(ctx context.Context, chart *Chart, values Values) error {
	g.facts.templates = map[templateName]*unstructured.Unstructured{}
	programs, err := liqoPrograms(ctx, g.Cluster)
	if err != nil {
		return g.Explain("look for Liqo", err)
	}
	if len(programs) == 0 {
		return g.Errorf("Liqo does not run in this cluster, so there is no peering to adopt: a network of Sluice is made by 'liqoctl install' and 'liqoctl network connect'")
	}
	if !slices.ContainsFunc(programs, func(d appsv1.Deployment) bool { return d.Namespace == g.LiqoNamespace }) {
		return g.Errorf("Liqo runs in namespace %s: name it with --liqo-namespace", programs[0].Namespace)
	}
	for _, step := range []func(context.Context) error{g.gateways, g.copies, g.rights} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	g.facts.ours, err = chart.gatewayTemplates(values, g.LiqoNamespace)
	return err
}

func (g *adoptGatherer) gateways(ctx context.Context) error {
	// What a plan of the installation reads of gateways serves here, too.
	all, err := (&Plan{cluster: g.Cluster}).gateways(ctx)
	if err != nil {
		return err
	}
	var connections networkingv1beta1.ConnectionList
	if err := g.Client.List(ctx, &connections); ignoreAbsent(err) != nil {
		return g.Explain("list the Connections", err)
	}
	connected := map[client.ObjectKey]bool{}
	for _, c := range connections.Items {
		connected[client.ObjectKeyFromObject(&c)] = c.Status.Value == networkingv1beta1.Connected
	}
	for _, w := range all {
		l := liqoGateway{gatewayAtWork: w, kind: "GatewayServer", field: "serverTemplateRef", peer: w.vars.ClusterID, tunnels: 1}
		l.connected = connected[w.deployment()] // of the same name
		l.ref = templateName{w.templateKind, w.template.Namespace, w.template.Name}
		var secret *corev1.ObjectReference
		switch o := w.object.(type) {
		case *networkingv1beta1.GatewayServer:
			secret, l.tunnels = o.Status.SecretRef, max(1, len(o.Spec.Endpoint.Ports))
		case *networkingv1beta1.GatewayClient:
			secret, l.tunnels = o.Status.SecretRef, max(1, len(o.Spec.Endpoint.Ports))
			l.kind, l.field = "GatewayClient", "clientTemplateRef"
		}
		if secret != nil {
			l.secret = secret.Name
		}
		g.facts.gateways = append(g.facts.gateways, l)
		if err := g.template(ctx, l.ref); err != nil {
			return err
		}
	}
	return nil
}

// template reads a template, and that of which it is a copy.
func (g *adoptGatherer) template(ctx context.Context, name templateName) error {
	for name.name != "" && g.facts.templates[name] == nil {
		u := new(unstructured.Unstructured)
		u.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(name.kind))
		switch err := g.Client.Get(ctx, client.ObjectKey{Namespace: name.namespace, Name: name.name}, u); {
		case absent(err):
			return nil
		case err != nil:
			return g.Explain("read "+name.String(), err)
		}
		g.facts.templates[name] = u
		name.name = u.GetAnnotations()[annotationTemplateOf]
	}
	return nil
}

// copies reads the templates that adoptions have made.
func (g *adoptGatherer) copies(ctx context.Context) error {
	for _, kind := range []string{"WgGatewayServerTemplate", "WgGatewayClientTemplate"} {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(kind + "List"))
		if err := g.Client.List(ctx, list, madeByAdoption); ignoreAbsent(err) != nil {
			return g.Explain("list the templates", err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			g.facts.templates[templateName{kind, u.GetNamespace(), u.GetName()}] = u
		}
	}
	return nil
}

var madeByAdoption = client.MatchingLabels{labelAdoption: networkingv1beta1.LabelTrue}

// rights reads what adoptions have granted.
func (g *adoptGatherer) rights(ctx context.Context) error {
	var bindings rbacv1.ClusterRoleBindingList
	if err := g.Client.List(ctx, &bindings, madeByAdoption); err != nil {
		return g.Explain("list the ClusterRoleBindings", err)
	}
	g.facts.bindings = bindings.Items
	for i := range g.facts.bindings {
		g.facts.bindings[i].SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
	}
	var roles rbacv1.ClusterRoleList
	if err := g.Client.List(ctx, &roles, madeByAdoption); err != nil {
		return g.Explain("list the ClusterRoles", err)
	}
	for i := range roles.Items {
		if r := &roles.Items[i]; r.Name == adoptionName {
			r.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
			g.facts.role = r
		}
	}
	return nil
}

// gatewayTemplates are the chart's templates of gateways, by kind.
func (c *Chart) gatewayTemplates(values Values, namespace string) (map[string]*unstructured.Unstructured, error) {
	all, err := c.objects(withRequired(values), namespace)
	if err != nil {
		return nil, err
	}
	found := map[string]*unstructured.Unstructured{}
	for _, u := range all {
		if isTemplate(u) && u.GroupVersionKind().Group == networkingv1beta1.GroupVersion.Group {
			found[u.GetKind()] = u
		}
	}
	if len(found) != 2 {
		return nil, fmt.Errorf("the chart has templates of gateways of %d kinds: %v", len(found), slices.Sorted(maps.Keys(found)))
	}
	return found, nil
}
