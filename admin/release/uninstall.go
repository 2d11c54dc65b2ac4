package release

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// UninstallOptions say what goes and what stays.
type UninstallOptions struct {
	// Purge removes the CRDs, too, and with them all objects of their kinds, and credentials.
	Purge bool
	// Force continues although there are peerings: they are removed on this side only.
	Force bool
	// SkipNodes leaves what the agents have made on the nodes.
	SkipNodes bool
	// Timeout bounds each step in which others have to do something.
	Timeout time.Duration
}

// Removed is what an uninstallation did.
type Removed struct {
	// Objects are those that are gone: "DaemonSet liqo-fabric/liqo-fabric".
	Objects []string
	// Left is what stays, and why.
	Left []string
}

// Removal is an uninstallation that may begin. To make it changes nothing.
type Removal struct {
	// Nothing says that there is nothing to remove.
	Nothing bool
	// Peerings are the objects of those that are there, as "Configuration liqo-tenant-milan/milan".
	Peerings []string
	// ToRemove tells people what would be removed, in lines. The first names the cluster.
	ToRemove []string

	cluster *access.Cluster
	chart   *Chart
	helm    *helm
	facts   Facts
	values  Values // of the release
	options UninstallOptions
	result  Removed
	tell    progress.Func
	// namespaces are those of the release, which are removed last.
	namespaces []client.Object
}

// PrepareUninstall looks at the cluster. The error tells what is in the way.
func PrepareUninstall(ctx context.Context, c *access.Cluster, chart *Chart, o UninstallOptions) (*Removal, error) {
	if err := c.Require(ctx, rights(c.LiqoNamespace)...); err != nil {
		return nil, err
	}
	facts, err := Gather(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &Removal{cluster: c, chart: chart, facts: facts, options: o}
	if r.helm, err = newHelm(c); err != nil {
		return nil, err
	}
	last, err := r.helm.last()
	if err != nil {
		return nil, err
	}
	if last != nil {
		r.values = last.Config
	}
	i := facts.Installed
	switch {
	case at(r.values, pathAdoption) == true:
		return nil, c.Errorf("nothing was changed: Sluice has taken over the network of Liqo here: give it back with --hand-back")
	case len(i.Liqo) > 0:
		return nil, c.Errorf("nothing was changed: this is an installation of Liqo: uninstall it with its own liqoctl (%s)", strings.Join(i.Liqo, ", "))
	case i.Elsewhere != "":
		return nil, c.Errorf("nothing was changed: Sluice is installed in namespace %s: name it with --liqo-namespace %s", i.Elsewhere, i.Elsewhere)
	}
	if r.Peerings, err = r.peerings(ctx); err != nil {
		return nil, err
	}
	if len(r.Peerings) > 0 && !o.Force {
		return nil, c.Errorf("nothing was changed: this cluster has peerings:\n  %s\nRemove them with %s, which also cleans up the other cluster; --force removes only this side of them",
			strings.Join(r.Peerings, "\n  "), r.unpeer())
	}
	if r.Nothing, err = r.nothing(ctx, last != nil); err != nil || r.Nothing {
		return r, err
	}
	r.ToRemove, err = r.toRemove(ctx)
	return r, err
}

// toRemove tells what would be removed.
func (r *Removal) toRemove(ctx context.Context) ([]string, error) {
	lines := []string{
		fmt.Sprintf("In cluster %s (%s):", cmp.Or(r.facts.Installed.ClusterID, "without an ID"), r.cluster.Where()),
		fmt.Sprintf("  the installation in namespace %s, and the node agents in %s", r.cluster.LiqoNamespace, r.fabricNamespace()),
	}
	if !r.options.SkipNodes {
		lines = append(lines, fmt.Sprintf("  links, routes and rules on %d nodes", len(r.facts.Nodes)))
	}
	for _, p := range r.Peerings {
		lines = append(lines, "  peering: "+p)
	}
	users, err := r.peeringUsers(ctx)
	if err != nil {
		return nil, err
	}
	for _, u := range users {
		lines = append(lines, "  rights of a peering user: "+describe(u))
	}
	if !r.options.Purge {
		return lines, nil
	}
	kinds, err := r.ourKinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		objects, err := r.listKind(ctx, k)
		if err != nil {
			return nil, err
		}
		if n := len(objects); n > 0 {
			lines = append(lines, fmt.Sprintf("  %d of kind %s", n, k.Kind))
		}
	}
	return append(lines, fmt.Sprintf("  %d CRDs", len(kinds))), nil
}

// nothing tells whether there is no trace of an installation.
func (r *Removal) nothing(ctx context.Context, released bool) (bool, error) {
	i := r.facts.Installed
	if released || i.ClusterID != "" || len(i.CRDs) > 0 && r.options.Purge {
		return false, nil
	}
	for _, name := range []string{r.cluster.LiqoNamespace, r.fabricNamespace()} {
		var ns corev1.Namespace
		err := r.cluster.Client.Get(ctx, client.ObjectKey{Name: name}, &ns)
		if err == nil && (ns.Labels[labelManagedBy] == managedByUs || name == r.fabricNamespace()) {
			return false, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return false, r.cluster.Explain("read namespace "+name, err)
		}
	}
	users, err := r.peeringUsers(ctx)
	if err != nil || len(users) > 0 {
		return false, err
	}
	objects, err := r.chartObjects(ctx)
	return len(objects) == 0, err
}

// peerings are their objects in all namespaces: those of networks, and of clusters that use each other. The cluster may
// lack some of the kinds.
func (r *Removal) peerings(ctx context.Context) (found []string, err error) {
	objects, err := r.list(ctx, []client.ObjectList{
		&networkingv1beta1.ConfigurationList{}, &networkingv1beta1.GatewayServerList{}, &networkingv1beta1.GatewayClientList{},
		&authv1beta1.TenantList{}, &authv1beta1.IdentityList{}, &offloadingv1beta1.VirtualNodeList{},
	})
	for _, o := range objects {
		found = append(found, describe(o))
	}
	slices.Sort(found)
	return found, err
}

// unpeer is how the peerings are removed in both clusters.
func (r *Removal) unpeer() string {
	const network = "'liqoctl network reset'"
	var more, networks bool
	for _, p := range r.Peerings {
		switch kind, _, _ := strings.Cut(p, " "); kind {
		case "Tenant", "Identity", "VirtualNode":
			more = true
		default:
			networks = true
		}
	}
	switch {
	case !more:
		return network
	case !networks:
		return "'liqoctl unpeer'"
	}
	return "'liqoctl unpeer', or where only the networks are connected with " + network
}

func (r *Removal) fabricNamespace() string { return r.cluster.LiqoNamespace + access.FabricSuffix }

// Run removes the installation: what lies on the nodes first, while there are
// agents to do it, then the programs, and at the end what nobody would miss any
// more. It may be repeated, also after it was interrupted.
func (r *Removal) Run(ctx context.Context, tell progress.Func) (Removed, error) {
	r.tell = onlyNews(tell)
	for _, step := range []struct {
		wanted bool
		do     func(context.Context) error
	}{
		{len(r.Peerings) > 0, r.removePeerings},
		{!r.options.SkipNodes, r.cleanNodes},
		{true, r.stopForwarding},
		{true, r.removeRelease},
		{true, r.removeManaged},
		{r.options.Purge, r.removeObjects},
		{r.options.Purge, r.removeCredentials},
		{true, r.removeNamespaces},
		{r.options.Purge, r.removeKinds},
		{!r.options.Purge, r.leaveKinds},
		{true, r.leaveExposed},
		{true, r.leaveMultiCluster},
	} {
		if !step.wanted {
			continue
		}
		if err := step.do(ctx); err != nil {
			return r.result, err
		}
	}
	if r.options.SkipNodes {
		r.leftNodes()
	}
	return r.result, nil
}

// leftNodes notes that what is on the nodes stays.
func (r *Removal) leftNodes() {
	r.left("what the agents created on the nodes (--skip-node-cleanup): run '%s' on each node to remove it", r.cleanupCommand())
}

func (r *Removal) left(format string, args ...any) {
	r.result.Left = append(r.result.Left, fmt.Sprintf(format, args...))
}

// removed notes objects that are gone, and tells it in one line per kind.
func (r *Removal) removed(objects []client.Object) {
	names := map[string][]string{}
	var kinds []string
	for _, o := range objects {
		kind, name, _ := strings.Cut(describe(o), " ")
		if names[kind] == nil {
			kinds = append(kinds, kind)
		}
		names[kind] = append(names[kind], name)
		r.result.Objects = append(r.result.Objects, describe(o))
	}
	for _, k := range kinds {
		r.tell.Done(r.cluster.Name, fmt.Sprintf("Removed %s %s", k, strings.Join(names[k], ", ")))
	}
}

// removePeerings deletes this side of the peerings while the controller is there
// to take the gateways down. ResourceSlices come before what the controller makes for them.
func (r *Removal) removePeerings(ctx context.Context) error {
	all, err := r.list(ctx, []client.ObjectList{
		&networkingv1beta1.GatewayServerList{}, &networkingv1beta1.GatewayClientList{}, &networkingv1beta1.ConfigurationList{}, &networkingv1beta1.PublicKeyList{},
		&authv1beta1.ResourceSliceList{}, &offloadingv1beta1.VirtualNodeList{}, &authv1beta1.IdentityList{}, &authv1beta1.TenantList{},
	})
	if err != nil {
		return err
	}
	if err := r.delete(ctx, all); err != nil {
		return err
	}
	nodes, err := r.virtualNodes(ctx, all)
	if err != nil {
		return err
	}
	return r.delete(ctx, nodes)
}

// virtualNodes are the Nodes of VirtualNodes that are gone: the process that would remove them goes at the same time.
func (r *Removal) virtualNodes(ctx context.Context, removed []client.Object) ([]client.Object, error) {
	kept := map[string]bool{}
	for _, o := range removed {
		if v, is := o.(*offloadingv1beta1.VirtualNode); is {
			kept[v.Name] = true
		}
	}
	if len(kept) == 0 {
		return nil, nil // and nobody needs the right to look
	}
	nodes, err := r.list(ctx, []client.ObjectList{&corev1.NodeList{}}, client.MatchingLabels{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual})
	return slices.DeleteFunc(nodes, func(o client.Object) bool { return !kept[o.GetName()] }), err
}

// stopForwarding takes the zone of our DNS server out of CoreDNS while the server still answers.
func (r *Removal) stopForwarding(ctx context.Context) error {
	_, err := unforward(ctx, r.cluster, r.tell)
	return err
}

// removeRelease removes the objects of the chart, as Helm does, and those that
// came by kubectl.
func (r *Removal) removeRelease(ctx context.Context) error {
	objects, err := r.chartObjects(ctx)
	if err != nil {
		return err
	}
	// Namespaces take seconds to end: they are waited for together, at the end.
	isNamespace := func(o client.Object) bool { return o.GetObjectKind().GroupVersionKind() == namespaceKind }
	for _, o := range objects {
		if isNamespace(o) {
			r.namespaces = append(r.namespaces, o)
		}
	}
	objects = slices.DeleteFunc(objects, isNamespace)
	r.tell.Waiting(r.cluster.Name, "Removing the release "+Name)
	if err := r.helm.remove(r.options.Timeout); err != nil {
		return err
	}
	if err := r.delete(ctx, objects); err != nil {
		return err
	}
	// A controller that is still running would recreate what is removed next.
	return r.noPods(ctx, r.cluster.LiqoNamespace, access.ControllerName)
}

// noPods waits until a program has ended. On nodes that are not ready agents are not waited for. A controller is: it may be
// at work there.
func (r *Removal) noPods(ctx context.Context, namespace, program string) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	for {
		pods, err := podsOf(ctx, r.cluster, namespace, program)
		if err == nil && program != access.ControllerName {
			pods, err = r.withoutAway(ctx, pods)
		}
		switch {
		case err != nil:
			return r.cluster.Explain("wait until "+program+" has terminated", err)
		case len(pods) == 0:
			return nil
		}
		r.tell.Waiting(r.cluster.Name, "Waiting until pod "+pods[0].Name+" has terminated")
		if !access.Pause(ctx, pause) {
			return r.cluster.Errorf("pod %s/%s does not terminate: %w", namespace, pods[0].Name, context.Cause(ctx))
		}
	}
}

// chartObjects are those of the chart that exist. Objects of the same names that
// belong to another release are somebody else's.
func (r *Removal) chartObjects(ctx context.Context) ([]client.Object, error) {
	us, err := r.render(false)
	if err != nil {
		return nil, err
	}
	var found []client.Object
	for _, u := range us {
		kind := u.GroupVersionKind()
		switch err := r.cluster.Client.Get(ctx, client.ObjectKeyFromObject(u), u); {
		case absent(err):
			continue
		case err != nil:
			return nil, r.cluster.Explain("read "+describe(u), err)
		}
		u.SetGroupVersionKind(kind)
		if ofThisRelease(u, r.cluster.LiqoNamespace) {
			found = append(found, u)
		}
	}
	return found, nil
}

// render makes the chart's objects with the values of the release, or with
// what removes what lies on the nodes in the place of the agents.
func (r *Removal) render(cleanup bool) ([]*unstructured.Unstructured, error) {
	v := merge(withRequired(r.values), value(cleanup, "networking.fabric.cleanup"))
	return r.chart.objects(v, r.cluster.LiqoNamespace)
}

// withRequired adds the values without which the chart renders nothing.
func withRequired(v Values) Values {
	for path, fallback := range map[string]string{"discovery.config.clusterID": "none", "ipam.podCIDR": "10.0.0.0/8"} {
		if textAt(v, path) == "" {
			v = merge(v, value(fallback, path))
		}
	}
	return v
}

// list reads objects of kinds of ours, of which the cluster may have none.
func (r *Removal) list(ctx context.Context, lists []client.ObjectList, o ...client.ListOption) (all []client.Object, err error) {
	for _, list := range lists {
		if err := r.cluster.Client.List(ctx, list, o...); err != nil {
			if absent(err) {
				continue
			}
			return nil, r.cluster.Explain(fmt.Sprintf("list %T", list), err)
		}
		objects, err := items(list, r.cluster.Client.Scheme())
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// delete removes objects, and waits until they are gone. It removes our finalizers and those
// of Liqo, as no controller is left to do so.
func (r *Removal) delete(ctx context.Context, objects []client.Object) error {
	for _, o := range objects {
		err := r.cluster.Client.Delete(ctx, o, client.PropagationPolicy("Background"))
		if client.IgnoreNotFound(err) != nil {
			return r.cluster.Explain("delete "+describe(o), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	for _, o := range objects {
		if err := r.gone(ctx, o); err != nil {
			return err
		}
	}
	r.removed(objects)
	return nil
}

// gone waits until an object is gone.
func (r *Removal) gone(ctx context.Context, o client.Object) error {
	kind, uid := o.GetObjectKind().GroupVersionKind(), o.GetUID()
	for {
		err := r.cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case absent(err) || err == nil && o.GetUID() != uid:
			o.GetObjectKind().SetGroupVersionKind(kind)
			return nil
		case err != nil:
			return r.cluster.Explain("wait until "+describe(o)+" is gone", err)
		}
		o.GetObjectKind().SetGroupVersionKind(kind)
		if err := r.release(ctx, o); err != nil {
			return err
		}
		r.tell.Waiting(r.cluster.Name, "Waiting until "+describe(o)+" is gone")
		if !access.Pause(ctx, pause) {
			return r.cluster.Errorf("%s has not been removed (%s): %w", describe(o), r.whatKeeps(ctx, o), context.Cause(ctx))
		}
	}
}

// release removes the finalizers that no controller removes any more.
func (r *Removal) release(ctx context.Context, o client.Object) error {
	keep := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool {
		domain, _, _ := strings.Cut(f, "/")
		return domain == "liqo.io" || strings.HasSuffix(domain, ".liqo.io")
	})
	if len(keep) == len(o.GetFinalizers()) {
		return nil
	}
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	o.SetFinalizers(keep)
	err := r.cluster.Client.Patch(ctx, o, patch)
	return r.cluster.Explain("remove the finalizers of "+describe(o), client.IgnoreNotFound(err))
}
