package release

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// HandBack gives the network of a cluster back to Liqo. To prepare it changes nothing.
type HandBack struct {
	// Nothing says that Sluice has taken nothing over.
	Nothing bool
	// Steps are what would be done to which object.
	Steps []AdoptionStep

	*Removal
	// agent is Liqo's DaemonSet, manager the account of its controller manager.
	agent   *appsv1.DaemonSet
	manager string
	// ipam and controllers are Liqo's Deployments that have to read what has changed meanwhile.
	ipam, controllers *appsv1.Deployment
	// released says that there is a release, so our agents may have been on the nodes.
	released bool
	// kept are Liqo's CRDs, live those that are there, added those that only this project has.
	kept, live map[string]apiextensionsv1.CustomResourceDefinition
	added      []client.Object
	// made are objects of our controllers that Liqo's make no use of.
	made []client.Object
}

// PrepareHandBack looks at the cluster. The error tells all that is in the way.
func PrepareHandBack(ctx context.Context, c *access.Cluster, chart *Chart, o UninstallOptions) (_ *HandBack, err error) {
	defer func() { err = withLeft(ctx, c, err) }()
	if err := c.Require(ctx, takeoverRights(c.LiqoNamespace)...); err != nil {
		return nil, err
	}
	h := &HandBack{Removal: &Removal{cluster: c, chart: chart, options: o, tell: func(progress.Event) {}}}
	if h.helm, err = newHelm(c); err != nil {
		return nil, err
	}
	last, err := h.helm.last()
	if err != nil {
		return nil, err
	}
	switch {
	case last != nil:
		h.values, h.released = last.Config, true
		if at(h.values, pathAdoption) != true {
			return nil, c.Errorf("nothing was changed: Sluice is installed here on its own, and has no network of Liqo to give back: leave out --hand-back")
		}
	default: // interrupted after the release was removed, or before it was installed
		h.values = value(true, pathAdoption)
	}
	if h.kept, err = readKept(ctx, c); err != nil {
		return nil, err
	}
	policies, err := h.policies(ctx)
	if err != nil {
		return nil, err
	}
	trials, err := h.trialsLeft(ctx)
	if err != nil {
		return nil, err
	}
	policies = append(policies, trials...)
	g := takeoverGatherer{adoptGatherer: adoptGatherer{Cluster: c}}
	if last == nil && h.kept == nil && len(policies) == 0 {
		ended, err := g.agentsEnded(ctx)
		if h.Nothing = !ended; err != nil || h.Nothing {
			return h, err
		}
	}
	if err := g.read(ctx, chart, nil); err != nil {
		return nil, err
	}
	if err := h.plan(g.facts); err != nil {
		return nil, c.Errorf("nothing was changed: %w", err)
	}
	return h, h.list(ctx, policies)
}

// policies are those of the takeover that are there.
func (r *Removal) policies(ctx context.Context) (there []client.Object, err error) {
	return r.ofAdoption(ctx,
		single(bindingKind.GroupVersion().String(), bindingKind.Kind, "", policyName), // what is bound goes last
		single(policyKind.GroupVersion().String(), policyKind.Kind, "", policyName))
}

// ourControllers are the Deployment of Sluice's controllers; nil: there is none.
func (r *Removal) ourControllers(ctx context.Context) (client.Object, error) {
	d := single("apps/v1", "Deployment", r.cluster.LiqoNamespace, access.ControllerName)
	if there, err := r.exists(ctx, d); err != nil || !there || !ofThisRelease(d, r.cluster.LiqoNamespace) {
		return nil, err
	}
	return d, nil
}

// trialsLeft are what has tried the images of a takeover that was interrupted then.
func (r *Removal) trialsLeft(ctx context.Context) ([]client.Object, error) {
	return r.ofAdoption(ctx,
		single("apps/v1", "DaemonSet", r.fabricNamespace(), access.TrialFabric),
		single("v1", "Pod", r.cluster.LiqoNamespace, access.TrialController))
}

// ofAdoption are those of the objects that are there and were made by an adoption. An old cluster knows no such policies.
func (r *Removal) ofAdoption(ctx context.Context, objects ...client.Object) (there []client.Object, err error) {
	for _, o := range objects {
		switch is, err := r.exists(ctx, o); {
		case err != nil && !meta.IsNoMatchError(err):
			return nil, err
		case is && o.GetLabels()[labelAdoption] == networkingv1beta1.LabelTrue:
			there = append(there, o)
		}
	}
	return there, nil
}

// plan decides. The error names all that is in the way.
func (h *HandBack) plan(f takeoverFacts) error {
	var errs []error
	p, _ := f.plan(true) // what was in the way of a takeover is not in that of the way back
	h.agent, h.manager, h.live = p.agent, p.manager, f.live
	if h.agent == nil {
		errs = append(errs, fmt.Errorf("there is no DaemonSet of Liqo's node agent in namespace %s: install Liqo again, in the same version", f.namespace))
	}
	h.ipam, h.controllers = f.program(survey.LiqosIPAM), f.program(survey.LiqosControllers)
	if h.ipam == nil || h.controllers == nil {
		errs = append(errs, fmt.Errorf("there is no Deployment of Liqo's IPAM, or of its controller manager, in namespace %s: install Liqo again, in the same version", f.namespace))
	}
	for _, g := range f.gateways {
		if t := f.templates[g.ref]; isOurs(t) && !isCopy(t) && ofRelease(t) {
			errs = append(errs, fmt.Errorf("%s was made while Sluice ran the network, of %s, which goes with it: disconnect %s with "+
				"'liqoctl network disconnect', and connect it again afterwards", g.named(), g.ref, g.peer))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.live)) {
		d := f.live[name]
		if _, kept := h.kept[name]; kept || !isApplied(&d) {
			continue
		}
		if name == "exportedservices.networking.liqo.io" || name == "importedservices.networking.liqo.io" {
			d.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
			h.added = append(h.added, &d)
			continue
		}
		errs = append(errs, fmt.Errorf("CRD %s is Sluice's, and Liqo's is not kept in ConfigMap %s/%s any more: put that of your version of Liqo "+
			"in place, with 'kubectl replace'", name, f.namespace, keptCRDs))
	}
	return errors.Join(errs...)
}

// ofRelease tells whether a template is of the chart.
func ofRelease(o client.Object) bool { return o.GetAnnotations()[annotationReleaseName] == Name }

// list reads what there is to do, and fills in Steps.
func (h *HandBack) list(ctx context.Context, policies []client.Object) error {
	step := func(verb, object, detail string) { h.Steps = append(h.Steps, AdoptionStep{verb, object, detail}) }
	configurations, err := h.withStrings(ctx)
	if err != nil {
		return err
	}
	for _, c := range configurations {
		step("update", fmt.Sprintf("Configuration %s/%s", c.Namespace, c.Name), "its prefixes become lists, which Liqo's controllers read")
	}
	outdated, err := h.outdatedMappings(ctx)
	if err != nil {
		return err
	}
	for _, o := range outdated {
		step("delete", describe(o), "it is for an address that was given back meanwhile")
	}
	reserved, err := h.reserved(ctx)
	if err != nil {
		return err
	}
	for _, o := range reserved {
		step("delete", describe(o), "its prefix was reserved while Sluice ran the network")
	}
	for _, name := range slices.Sorted(maps.Keys(h.kept)) {
		if live, there := h.live[name]; there && !isApplied(&live) {
			step("keep", "CustomResourceDefinition "+name, "is Liqo's already")
		} else {
			step("replace", "CustomResourceDefinition "+name, "by Liqo's")
		}
	}
	for _, d := range []*appsv1.Deployment{h.ipam, h.controllers} {
		step("replace", "Deployment "+client.ObjectKeyFromObject(d).String(), "its pods start again, and read what has changed")
	}
	if handedOver(h.agent) {
		step("update", "DaemonSet "+client.ObjectKeyFromObject(h.agent).String(), "spec.template.spec.nodeSelector: its pods come back")
	}
	objects, err := h.chartObjects(ctx)
	if err != nil {
		return err
	}
	made, err := h.listKinds(ctx, ownKinds, client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue})
	if err != nil {
		return err
	}
	h.made = slices.DeleteFunc(made, func(o client.Object) bool { return !madeByOurs(o) })
	lease := single("coordination.k8s.io/v1", "Lease", h.cluster.LiqoNamespace, kinds.Lease)
	if there, err := h.exists(ctx, lease); err != nil {
		return err
	} else if there {
		h.made = append(h.made, lease)
	}
	for _, o := range slices.Concat(policies, objects, h.made, h.added) {
		step("delete", describe(o), "")
	}
	if h.kept != nil {
		step("delete", fmt.Sprintf("ConfigMap %s/%s", h.cluster.LiqoNamespace, keptCRDs), "")
	}
	handed, err := h.handed(ctx, "Liqo's")
	h.Steps = append(h.Steps, handed...)
	return err
}

// Run gives the network back. Liqo's controllers read everything anew before they may write; Liqo's agents have their rules
// in force before ours are removed, so the traffic goes on meanwhile. Run may be repeated, also after it was interrupted.
func (h *HandBack) Run(ctx context.Context, tell progress.Func) (Removed, error) {
	h.tell = onlyNews(tell)
	c := h.cluster
	err := inSteps(ctx, c, h.tell, []applyStep{
		{"ending Sluice's controllers", func() error { return h.endControllers(ctx) }},
		{"making lists of prefixes", func() error { return h.writeLists(ctx) }},
		{"removing Liqo's rules for addresses that were given back", func() error { return h.deleteFound(ctx, h.outdatedMappings) }},
		{"removing Networks that were reserved for Sluice", func() error { return h.deleteFound(ctx, h.reserved) }},
		{"putting back Liqo's CRDs", func() error { return h.putBack(ctx) }},
		{"starting Liqo's controllers again", func() error { return h.restart(ctx) }},
		{"letting Liqo's controllers write", func() error { return h.lift(ctx) }},
		{"ending Sluice's node agents", func() error { return h.endAgents(ctx) }},
		{"starting Liqo's node agents", func() error { return h.startAgents(ctx) }},
		{"removing from the nodes what Sluice's agents have made", func() error { return h.cleanNodes(ctx) }},
		{"removing Sluice's release", func() error { return h.removeAll(ctx) }},
	})
	return h.result, err // read after the steps, which write it
}

// endControllers ends our controllers, so that nobody has two masters.
func (h *HandBack) endControllers(ctx context.Context) error {
	d, err := h.ourControllers(ctx)
	if err != nil {
		return err
	}
	if d != nil {
		if err := h.delete(ctx, []client.Object{d}); err != nil {
			return err
		}
	}
	return h.noPods(ctx, h.cluster.LiqoNamespace, access.ControllerName)
}

// restart has Liqo's IPAM and its controllers begin anew: what they remember of addresses is from before. The IPAM comes
// first, as the others ask it. They may not be ready before they are allowed to write.
func (h *HandBack) restart(ctx context.Context) error {
	for _, d := range []*appsv1.Deployment{h.ipam, h.controllers} {
		if err := h.replacePods(ctx, d); err != nil {
			return err
		}
		if d == h.controllers {
			return nil
		}
		if err := h.available(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// replacePods ends the pods of a Deployment, which makes others.
func (h *HandBack) replacePods(ctx context.Context, d *appsv1.Deployment) error {
	pods, err := podsSelected(ctx, h.cluster, d.Namespace, d.Spec.Selector)
	if err != nil {
		return h.cluster.Explain("list the pods of Deployment "+d.Name, err)
	}
	old := map[types.UID]bool{}
	for _, p := range pods {
		old[p.UID] = true
		if err := client.IgnoreNotFound(h.cluster.Client.Delete(ctx, &p, client.Preconditions{UID: &p.UID})); err != nil {
			return h.cluster.Explain("delete pod "+p.Name, err)
		}
	}
	return h.until(ctx, "the pods of Deployment "+d.Name+" to end", "Deployment "+d.Name+" starts again", d.Namespace, d.Name, func(ctx context.Context) (string, error) {
		pods, err := podsSelected(ctx, h.cluster, d.Namespace, d.Spec.Selector)
		if slices.ContainsFunc(pods, func(p corev1.Pod) bool { return old[p.UID] }) {
			return "some have not terminated", err
		}
		return "", err
	})
}

// available waits until a Deployment has all of its pods.
func (h *HandBack) available(ctx context.Context, d *appsv1.Deployment) error {
	return h.until(ctx, "Deployment "+d.Name+" to run again", "Deployment "+d.Name+" runs again", d.Namespace, d.Name, func(ctx context.Context) (string, error) {
		var now appsv1.Deployment
		if err := h.cluster.Client.Get(ctx, client.ObjectKeyFromObject(d), &now); err != nil {
			return "", err
		}
		if want := *now.Spec.Replicas; now.Status.ObservedGeneration < now.Generation || now.Status.AvailableReplicas < want {
			return fmt.Sprintf("%d of %d pods are ready", now.Status.AvailableReplicas, want), nil
		}
		return "", nil
	})
}

// until waits as long as each step may take.
func (h *HandBack) until(ctx context.Context, what, done, namespace, program string, ready func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	return waiter{cluster: h.cluster, tell: h.tell}.until(ctx, what, done, namespace, program, ready)
}

// lift lifts the policy.
func (h *HandBack) lift(ctx context.Context) error {
	if err := h.deleteFound(ctx, h.policies, h.trialsLeft); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	if err := policyInForce(waiting, h.cluster, h.manager, false, h.tell); err != nil {
		return err
	}
	return h.available(ctx, h.controllers)
}

// endAgents ends our node agents. What they have made stays, and carries the traffic on.
func (h *HandBack) endAgents(ctx context.Context) error {
	agents := h.daemonSet(access.FabricName)
	there, err := h.exists(ctx, agents)
	if err != nil {
		return err
	}
	if there {
		if err := h.delete(ctx, []client.Object{agents}); err != nil {
			return err
		}
	}
	return h.noPods(ctx, h.fabricNamespace(), access.FabricName)
}

// startAgents starts Liqo's node agents, and waits until they have all of theirs in force.
func (h *HandBack) startAgents(ctx context.Context) error {
	if err := selectNodes(ctx, h.cluster, h.agent, false); err != nil {
		return err
	}
	return h.until(ctx, "Liqo's node agents to have their rules in force", "Liqo's node agents have their rules in force", h.agent.Namespace, h.agent.Name,
		func(ctx context.Context) (string, error) {
			if missing, err := daemonSetReady(ctx, h.cluster, h.agent.Namespace, h.agent.Name); missing != "" || err != nil {
				return missing, err
			}
			return h.notApplied(ctx)
		})
}

// ofNode is an object of which Liqo's node agents apply a table. Each tells by a condition with its pod's name.
type ofNode struct {
	client.Object
	unique     string // the only node
	conditions []networkingv1beta1.HostCondition
}

// notApplied names what one of Liqo's node agents has not in force yet.
func (h *HandBack) notApplied(ctx context.Context) (string, error) {
	pods, err := podsSelected(ctx, h.cluster, h.agent.Namespace, h.agent.Spec.Selector)
	if err != nil {
		return "", err
	}
	away, err := nodesAway(ctx, h.cluster)
	if err != nil {
		return "", err
	}
	var fabrics networkingv1beta1.InternalFabricList
	var firewalls networkingv1beta1.FirewallConfigurationList
	var routes networkingv1beta1.RouteConfigurationList
	for _, l := range []struct {
		list  client.ObjectList
		label client.MatchingLabels
	}{
		{&fabrics, nil},
		{&firewalls, client.MatchingLabels{networkingv1beta1.LabelFirewallCategory: networkingv1beta1.CategoryFabric}},
		{&routes, client.MatchingLabels{networkingv1beta1.LabelRouteCategory: networkingv1beta1.CategoryFabric}},
	} {
		if err := h.cluster.Client.List(ctx, l.list, l.label); err != nil {
			return "", err
		}
	}
	for i := range fabrics.Items {
		f := &fabrics.Items[i]
		if !slices.ContainsFunc(routes.Items, func(r networkingv1beta1.RouteConfiguration) bool {
			return r.Namespace == f.Namespace && (metav1.IsControlledBy(&r, f) || strings.HasPrefix(r.Name, f.Name+"-"))
		}) {
			return "Liqo's controllers have not made the RouteConfiguration of InternalFabric " + client.ObjectKeyFromObject(f).String(), nil
		}
	}
	var all []ofNode
	for i := range routes.Items {
		r := &routes.Items[i]
		all = append(all, ofNode{r, r.Labels[networkingv1beta1.LabelRouteUnique], r.Status.Conditions})
	}
	for i := range firewalls.Items {
		f := &firewalls.Items[i]
		all = append(all, ofNode{f, f.Labels[networkingv1beta1.LabelFirewallUnique], f.Status.Conditions})
	}
	for _, p := range pods {
		for _, o := range all {
			applied := slices.ContainsFunc(o.conditions, func(c networkingv1beta1.HostCondition) bool {
				return c.Host == p.Name && c.Type == networkingv1beta1.HostConditionApplied && c.Status == metav1.ConditionTrue
			})
			if !applied && (o.unique == "" || o.unique == p.Spec.NodeName) && o.GetDeletionTimestamp() == nil && !slices.Contains(away, p.Spec.NodeName) {
				return fmt.Sprintf("pod %s has not applied %s", p.Name, client.ObjectKeyFromObject(o)), nil
			}
		}
	}
	return "", nil
}

// cleanNodes removes what our agents have made. Without a release there were none, or it is done.
func (h *HandBack) cleanNodes(ctx context.Context) error {
	switch {
	case !h.released:
		return nil
	case h.options.SkipNodes:
		h.leftNodes()
		return nil
	}
	image, err := h.agentImage()
	if err != nil {
		return err
	}
	return h.cleanUp(ctx, h.daemonSet(cleanupName), image)
}

// removeAll removes our release, what our controllers have made of their own, and at last what tells that there was a
// takeover.
func (h *HandBack) removeAll(ctx context.Context) error {
	objects, err := h.chartObjects(ctx)
	if err != nil {
		return err
	}
	if err := h.helm.remove(h.options.Timeout); err != nil {
		return err
	}
	if err := h.delete(ctx, slices.Concat(objects, h.made)); err != nil {
		return err
	}
	for _, o := range h.added {
		d := o.(*apiextensionsv1.CustomResourceDefinition)
		kind := schema.GroupVersionKind{Group: d.Spec.Group, Version: networkingv1beta1.GroupVersion.Version, Kind: d.Spec.Names.Kind}
		list, err := h.listKind(ctx, kind)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			continue // somebody made use of it
		}
		if err := h.delete(ctx, []client.Object{o}); err != nil {
			return err
		}
	}
	if err := h.unmark(ctx); err != nil {
		return err
	}
	kept := single("v1", "ConfigMap", h.cluster.LiqoNamespace, keptCRDs)
	if there, err := h.exists(ctx, kept); err != nil || !there {
		return err
	}
	return h.delete(ctx, []client.Object{kept})
}
