package release

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// When all gateways of a cluster of Liqo are Sluice's, the rest of its network can follow: controllers, addresses and node
// agents. Liqo's release stays as it is, and so does its authentication and its offloading.

// TakeOver is what makes Sluice run the network of a cluster in which Liqo runs it. To prepare it changes nothing.
type TakeOver struct {
	*Plan
	// Steps are what would be done to which object.
	Steps []AdoptionStep
	takeoverPlan
	// tried are what tries the images in the namespaces of the programs, of which that of the agents may be missing.
	tried  []client.Object
	fabric *unstructured.Unstructured
}

// PrepareTakeOver looks at the cluster. The error tells all that is in the way.
func PrepareTakeOver(ctx context.Context, c *access.Cluster, chart *Chart, newVersion string, o Options) (_ *TakeOver, err error) {
	defer func() { err = withLeft(ctx, c, err) }()
	if err := c.Require(ctx, takeoverRights(c.LiqoNamespace)...); err != nil {
		return nil, err
	}
	g := takeoverGatherer{adoptGatherer: adoptGatherer{Cluster: c}}
	if err := g.read(ctx, chart, o.Values); err != nil {
		return nil, err
	}
	t := new(TakeOver)
	var refused error
	t.takeoverPlan, refused = g.facts.plan(o.SkipValidation)
	if t.Plan, err = prepare(ctx, c, chart, newVersion, o, &takeover{values: t.values, refused: refused}); err != nil {
		return nil, err
	}
	t.Warnings = append(t.warnings, t.Warnings...)
	if !handedOver(t.agent) { // else nothing can be lost any more
		if t.tried, t.fabric, err = t.trials(); err != nil {
			return nil, err
		}
	}
	return t, t.list(ctx)
}

// withLeft adds to why a command changed nothing what an earlier one has left.
func withLeft(ctx context.Context, c *access.Cluster, err error) error {
	if err == nil {
		return nil
	}
	left, unknown := c.Interrupted(ctx)
	if left == "" || unknown != nil {
		return err
	}
	return errors.Join(err, c.Errorf("%s", left))
}

// takeover is what a takeover adds to an installation.
type takeover struct {
	values  Values // that the cluster tells
	refused error  // what is in the way
}

// takeoverRights are what a takeover and the way back do.
func takeoverRights(namespace string) []access.Permission {
	ps := rights(namespace)
	add := func(verb, group, resource, namespace string) {
		ps = append(ps, access.Permission{Verb: verb, Group: group, Resource: resource, Namespace: namespace})
	}
	add("patch", "apps", "daemonsets", namespace)
	add("create", "", "pods", namespace)
	add("delete", "", "pods", namespace)
	add("delete", "", "pods", namespace+access.FabricSuffix)
	add("impersonate", "", "serviceaccounts", namespace)
	add("update", "apiextensions.k8s.io", "customresourcedefinitions", "")
	add("patch", networkingv1beta1.GroupVersion.Group, "configurations", "")
	add("patch", networkingv1beta1.GroupVersion.Group, "firewallconfigurations", "") // their finalizers
	add("delete", networkingv1beta1.GroupVersion.Group, "firewallconfigurations", "")
	add("delete", ipamv1alpha1.GroupVersion.Group, "networks", namespace)
	for group, resources := range map[string][]string{ // our notes on them
		networkingv1beta1.GroupVersion.Group: {"connections", "genevetunnels", "internalfabrics", "internalnodes", "publickeies", "routeconfigurations", "wggatewayclients", "wggatewayservers"},
		ipamv1alpha1.GroupVersion.Group:      {"ips", "networks"},
		"":                                   {"secrets", "serviceaccounts", "services"},
		"apps":                               {"deployments"},
		"discovery.k8s.io":                   {"endpointslices"},
	} {
		for _, r := range resources {
			add("patch", group, r, "")
		}
	}
	return append(ps, access.Permission{Verb: "patch", Group: networkingv1beta1.GroupVersion.Group, Resource: "internalnodes", Subresource: "status"})
}

// takeoverGatherer reads the facts.
type takeoverGatherer struct {
	adoptGatherer
	facts takeoverFacts
}

func (g *takeoverGatherer) read(ctx context.Context, chart *Chart, values Values) error {
	if err := g.adoptGatherer.read(ctx, chart, values); err != nil {
		return err
	}
	f := &g.facts
	f.namespace, f.adoptFacts = g.LiqoNamespace, g.adoptGatherer.facts
	programs, err := liqoPrograms(ctx, g.Cluster)
	if err != nil {
		return g.Explain("look for Liqo", err)
	}
	f.programs = slices.DeleteFunc(programs, func(d appsv1.Deployment) bool { return d.Namespace != f.namespace })
	var agents appsv1.DaemonSetList
	var networks ipamv1alpha1.NetworkList
	var ips ipamv1alpha1.IPList
	var fabrics networkingv1beta1.InternalFabricList
	var firewalls networkingv1beta1.FirewallConfigurationList
	var routes networkingv1beta1.RouteConfigurationList
	var crds apiextensionsv1.CustomResourceDefinitionList
	for _, l := range []struct {
		list client.ObjectList
		what string
		opts []client.ListOption
	}{
		{&agents, "DaemonSets", []client.ListOption{client.InNamespace(f.namespace), partOfLiqo}}, {&networks, "Networks", nil}, {&ips, "IPs", nil},
		{&fabrics, "InternalFabrics", nil}, {&firewalls, "FirewallConfigurations", nil}, {&routes, "RouteConfigurations", nil}, {&crds, "CRDs", nil},
	} {
		if err := g.Client.List(ctx, l.list, l.opts...); err != nil {
			return g.Explain("list the "+l.what, err)
		}
	}
	f.agents, f.networks, f.ips, f.fabrics = agents.Items, networks.Items, ips.Items, fabrics.Items
	f.firewalls, f.routes, f.live = firewalls.Items, routes.Items, map[string]apiextensionsv1.CustomResourceDefinition{}
	for _, d := range crds.Items {
		if apply.OfNetwork(d.Spec.Group) {
			f.live[d.Name] = d
		}
	}
	if f.tables, err = g.tables(); err != nil {
		return err
	}
	if f.wanted, err = ourCRDs(); err != nil {
		return err
	}
	return g.readObjects(ctx)
}

// agentsEnded tells whether Liqo's node agents were ended, and not only for a moment.
func (g *takeoverGatherer) agentsEnded(ctx context.Context) (bool, error) {
	var agents appsv1.DaemonSetList
	err := g.Client.List(ctx, &agents, client.InNamespace(g.LiqoNamespace), partOfLiqo)
	return slices.ContainsFunc(agents.Items, func(d appsv1.DaemonSet) bool { return handedOver(&d) }), g.Explain("list the DaemonSets", err)
}

var partOfLiqo = client.MatchingLabels{"app.kubernetes.io/part-of": "liqo"}

// tables are those that the release of an earlier takeover names.
func (g *takeoverGatherer) tables() (names []string, err error) {
	h, err := newHelm(g.Cluster)
	if err != nil {
		return nil, err
	}
	last, err := h.last()
	if err != nil || last == nil {
		return nil, err
	}
	list, _ := at(last.Config, pathTables).([]any)
	for _, n := range list {
		names = append(names, fmt.Sprint(n))
	}
	return names, nil
}

// ourCRDs are those of this program, by name.
func ourCRDs() (map[string]apiextensionsv1.CustomResourceDefinition, error) {
	us, err := crds("")
	if err != nil {
		return nil, err
	}
	return typed(us)
}

// othersOwn tells which objects of the release are of another one: an installation would take them from it.
func (p *Plan) othersOwn(ctx context.Context) error {
	objects, err := decode(p.manifests)
	if err != nil {
		return err
	}
	var errs []error
	for _, u := range objects {
		name := describe(u)
		switch err := p.cluster.Client.Get(ctx, client.ObjectKeyFromObject(u), u); {
		case absent(err):
		case err != nil:
			return p.cluster.Explain("read "+name, err)
		case !ofThisRelease(u, p.cluster.LiqoNamespace):
			errs = append(errs, fmt.Errorf("%s belongs to the Helm release %s, from which it would be taken: rename it there, or use another version of one of the two",
				name, u.GetAnnotations()[annotationReleaseName]))
		}
	}
	return errors.Join(errs...)
}

// list fills in Steps.
func (t *TakeOver) list(ctx context.Context) error {
	step := func(verb, object, detail string) { t.Steps = append(t.Steps, AdoptionStep{verb, object, detail}) }
	for _, o := range t.tried {
		step("try", describe(o), "runs "+imageOf(o)+" once, and goes again")
	}
	for _, o := range networkPolicies(t.cluster.LiqoNamespace, t.accounts) {
		verb, err := (&Adoption{cluster: t.cluster}).wouldApply(ctx, o)
		if err != nil {
			return err
		}
		step(cmp.Or(verb, "keep"), describe(o), "")
	}
	kept := fmt.Sprintf("by Sluice's; Liqo's is kept in ConfigMap %s/%s", t.cluster.LiqoNamespace, keptCRDs)
	for _, d := range t.originals {
		step("replace", "CustomResourceDefinition "+d.Name, kept)
	}
	if len(t.originals) > 0 {
		verb := "create"
		switch have, err := readKept(ctx, t.cluster); {
		case err != nil:
			return err
		case have != nil:
			verb = "update"
		}
		step(verb, fmt.Sprintf("ConfigMap %s/%s", t.cluster.LiqoNamespace, keptCRDs), "")
	}
	for _, name := range t.added {
		step("create", "CustomResourceDefinition "+name, "")
	}
	agent := "DaemonSet " + client.ObjectKeyFromObject(t.agent).String()
	if handedOver(t.agent) {
		step("keep", agent, "without pods")
	} else {
		step("update", agent, "spec.template.spec.nodeSelector: its pods end, and what they have made on the nodes stays")
	}
	objects, err := decode(t.manifests)
	if err != nil {
		return err
	}
	r := &Removal{cluster: t.cluster}
	for _, u := range objects {
		there, err := r.exists(ctx, u.DeepCopy())
		if err != nil && !absent(errors.Unwrap(err)) {
			return err
		}
		switch {
		case !there:
			step("create", describe(u), "")
		case t.unchanged:
			step("keep", describe(u), "")
		default:
			step("update", describe(u), "")
		}
	}
	handed, err := r.handed(ctx, "Sluice's")
	if err != nil {
		return err
	}
	t.Steps = append(t.Steps, handed...)
	for _, account := range t.accounts {
		step("keep", fmt.Sprintf("ServiceAccount %s/%s", t.cluster.LiqoNamespace, account), "Liqo's programs go on, for authentication and offloading")
	}
	return nil
}

// handed are the objects of the kinds of the network, which change hands.
func (r *Removal) handed(ctx context.Context, to string) (steps []AdoptionStep, err error) {
	all, err := r.ourKinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if !apply.OfNetwork(k.Group) {
			continue
		}
		list, err := r.listKind(ctx, k)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if ofRelease(o) {
				continue // it goes with the release
			}
			steps = append(steps, AdoptionStep{"hand", describe(o), "with its addresses, to " + to + " controllers"})
		}
	}
	slices.SortFunc(steps, func(a, b AdoptionStep) int { return strings.Compare(a.Object, b.Object) })
	return steps, nil
}

// handedOver tells whether Liqo's node agent has no nodes.
func handedOver(d *appsv1.DaemonSet) bool {
	_, there := d.Spec.Template.Spec.NodeSelector[handedOverKey]
	return there
}

// Idle tells whether there is nothing to do.
func (t *TakeOver) Idle() bool {
	return t.unchanged && !slices.ContainsFunc(t.Steps, func(s AdoptionStep) bool { return s.Verb != "keep" && s.Verb != "hand" })
}

// Run takes the network over. Before anything changes, our programs have run where they will. Liqo's controllers write nothing
// of the network from then on; its agents end before ours come, which find on the nodes what is in use, so the traffic goes on
// meanwhile. Run may be repeated, also after it was interrupted at any step.
func (t *TakeOver) Run(ctx context.Context, tell progress.Func) (r Result, err error) {
	err = inSteps(ctx, t.cluster, tell, slices.Concat([]applyStep{
		{"trying the images", func() error { return t.try(ctx, tell) }},
		{"keeping Liqo's controllers from the network", func() error { return t.restrain(ctx, tell) }},
		{"keeping Liqo's CRDs", func() error { return keep(ctx, t.cluster, t.originals) }},
		{"ending Liqo's node agents", func() error { return endAgent(ctx, t.cluster, t.agent, tell) }},
	}, t.steps(ctx, tell, &r, applyStep{"forgetting what earlier agents have said", func() error { return t.forgetReplaced(ctx) }}), []applyStep{
		{"looking for what is left of Liqo's agents", func() error { return t.leftOnNodes(ctx, tell) }},
	}))
	return r, err
}

// try has our programs run once where they will. If they do not, nothing is changed.
func (t *TakeOver) try(ctx context.Context, tell progress.Func) error {
	if len(t.tried) == 0 {
		return nil
	}
	created := false
	w := waiter{cluster: t.cluster, tell: onlyNews(tell)}
	err := w.until(ctx, describe(t.fabric)+" to be made", "", t.fabric.GetName(), access.TrialName, func(ctx context.Context) (string, error) {
		ns := t.fabric.DeepCopy()
		err := t.cluster.Client.Create(ctx, ns, fieldOwner)
		if created = err == nil; created || !apierrors.IsAlreadyExists(err) {
			return "", err
		}
		if err = t.cluster.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil || ns.GetDeletionTimestamp() == nil {
			return "", err
		}
		return "the former one is being deleted: " + (&Removal{cluster: t.cluster}).whatKeeps(ctx, ns), nil // from the last attempt
	})
	if err == nil {
		err = try(ctx, t.cluster, tell, t.tried...)
	}
	if err == nil || !created {
		return err
	}
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, client.IgnoreNotFound(t.cluster.Client.Delete(removing, t.fabric.DeepCopy())))
}

// restrain puts the policy in force.
func (t *TakeOver) restrain(ctx context.Context, tell progress.Func) error {
	for _, o := range networkPolicies(t.cluster.LiqoNamespace, t.accounts) {
		if err := forceApply(ctx, t.cluster, o); err != nil {
			return err
		}
	}
	return policyInForce(ctx, t.cluster, t.manager, true, tell)
}

// selectNodes gives Liqo's node agent no nodes, or its own again.
func selectNodes(ctx context.Context, c *access.Cluster, agent *appsv1.DaemonSet, handedOver bool) error {
	var value any
	if handedOver {
		value = networkingv1beta1.LabelTrue
	}
	selector := map[string]any{handedOverKey: value}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"nodeSelector": selector}}}})
	if err != nil {
		return err
	}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	err = c.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	return c.Explain("change DaemonSet "+client.ObjectKeyFromObject(d).String(), err)
}

// endAgent ends the pods of Liqo's node agent. Nodes that are not ready are not waited for: nothing changes there.
func endAgent(ctx context.Context, c *access.Cluster, agent *appsv1.DaemonSet, tell progress.Func) error {
	if err := selectNodes(ctx, c, agent, true); err != nil {
		return err
	}
	return waiter{cluster: c, tell: onlyNews(tell)}.until(ctx, "Liqo's node agents to end", "Liqo's node agents have ended", agent.Namespace, agent.Name,
		func(ctx context.Context) (string, error) {
			away, err := nodesAway(ctx, c)
			if err != nil {
				return "", err
			}
			pods, err := podsSelected(ctx, c, agent.Namespace, agent.Spec.Selector)
			pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return slices.Contains(away, p.Spec.NodeName) })
			if len(pods) > 0 {
				return "pod " + pods[0].Name + " has not terminated", nil
			}
			return "", err
		})
}

// podsSelected are the pods that a Deployment or a DaemonSet selects.
func podsSelected(ctx context.Context, c *access.Cluster, namespace string, by *metav1.LabelSelector) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	err = c.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	return pods.Items, err
}
