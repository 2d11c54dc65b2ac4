package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/access"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

const (
	// pageSize is how many objects are asked for at a time.
	pageSize = 500
	// maxKindBytes bounds the objects of one kind: routes to the pods of a large
	// cluster are many and all alike.
	maxKindBytes = 16 << 20
	// maxNodes bounds the Nodes.
	maxNodes = 500
)

// query is a list of objects to read.
type query struct {
	kind      schema.GroupVersionKind
	namespace string // empty: everywhere, or the kind has none
	selector  client.MatchingLabels
	keep      func(*unstructured.Unstructured) bool // nil: all
	trim      func(*unstructured.Unstructured)      // nil: nothing
	limit     int                                   // of objects; 0: none
}

// what names the objects in messages.
func (q query) what() string {
	s := q.kind.Kind + " objects"
	if q.namespace != "" {
		s += " of namespace " + q.namespace
	}
	return s
}

// readObjects packs all kinds of objects, each in a file.
func (g *gatherer) readObjects(ctx context.Context) {
	served := g.served()
	kinds := g.ourKinds(ctx, served)
	found := newObjects(g)
	each(ctx, g, kinds, func(ctx context.Context, k schema.GroupVersionKind) { found.read(ctx, query{kind: k}) })
	found.read(ctx, query{
		kind: core("Namespace"), selector: client.MatchingLabels{networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue},
	})
	var queries []query
	for _, ns := range g.sortedNamespaces() {
		queries = append(queries, g.inNamespace(ns)...)
	}
	queries = append(queries, query{kind: core("Node"), trim: trimNode, limit: maxNodes},
		query{kind: group("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), keep: isOurs, trim: trimCRD},
		query{kind: group("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"), selector: client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}})
	for _, k := range policyKinds(served) {
		queries = append(queries, query{kind: k, keep: func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "" || g.known(o.GetNamespace()) }})
	}
	each(ctx, g, queries, found.read)
	found.pack()
}

func core(kind string) schema.GroupVersionKind { return group("", "v1", kind) }

func group(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// known tells whether a namespace is one that matters.
func (g *gatherer) known(namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.namespaces[namespace]
	return ok
}

// inNamespace is what is read in one namespace: all of an installation's, and in
// others, where workloads of others may be, what belongs to gateways. Secrets are not
// read: what is wrong with one, conditions tell.
func (g *gatherer) inNamespace(ns string) []query {
	managed := client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}
	gateways := client.MatchingLabels{networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway}
	keepEvent := func(o *unstructured.Unstructured) bool { return aboutGateway(o) }
	if g.installed(ns) {
		managed, gateways, keepEvent = nil, nil, nil
	}
	q := func(kind schema.GroupVersionKind, selector client.MatchingLabels) query {
		return query{kind: kind, namespace: ns, selector: selector}
	}
	const apps, rbac = "apps", "rbac.authorization.k8s.io"
	queries := []query{
		q(group(apps, "v1", "Deployment"), managed), q(group(apps, "v1", "DaemonSet"), managed),
		q(core("Pod"), gateways), q(core("Service"), managed), q(core("ServiceAccount"), managed),
		q(group("discovery.k8s.io", "v1", "EndpointSlice"), managed), q(group("coordination.k8s.io", "v1", "Lease"), managed),
		q(group(rbac, "v1", "Role"), managed), q(group(rbac, "v1", "RoleBinding"), managed),
		q(group("networking.k8s.io", "v1", "NetworkPolicy"), nil), q(core("ResourceQuota"), nil), q(core("LimitRange"), nil),
		{kind: core("Event"), namespace: ns, keep: keepEvent},
	}
	if g.installed(ns) {
		queries = append(queries, q(core("ConfigMap"), nil))
	}
	return queries
}

// aboutGateway tells whether an Event in a namespace that others share is about
// something of a gateway.
func aboutGateway(o *unstructured.Unstructured) bool {
	name, _, _ := unstructured.NestedString(o.Object, "involvedObject", "name")
	version, _, _ := unstructured.NestedString(o.Object, "involvedObject", "apiVersion")
	return strings.HasPrefix(name, "gw-") || strings.Contains(version, ".liqo.io/")
}

// ourKinds are the kinds of the API, in the versions that the cluster serves, and
// those of templates that others made.
func (g *gatherer) ourKinds(ctx context.Context, served []*metav1.APIResourceList) []schema.GroupVersionKind {
	groups := []string{networkingv1beta1.GroupVersion.Group, ipamv1alpha1.GroupVersion.Group, corev1beta1.GroupVersion.Group}
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := g.Client.List(ctx, &crds, client.HasLabels{networkingv1beta1.LabelGatewayTemplate}); err == nil { // else they are missed with all CRDs
		for i := range crds.Items {
			groups = append(groups, crds.Items[i].Spec.Group)
		}
	}
	kinds := access.Listable(served, func(kind schema.GroupVersionKind) bool { return slices.Contains(groups, kind.Group) })
	if len(kinds) == 0 {
		g.archive.miss(g.Name, "the objects of networking.liqo.io and ipam.liqo.io", errors.New("the cluster does not serve these kinds: the CRDs are not installed"))
	}
	return kinds
}

// policyKinds are those of network policies that CNIs bring.
func policyKinds(served []*metav1.APIResourceList) []schema.GroupVersionKind {
	return access.Listable(served, func(kind schema.GroupVersionKind) bool {
		return (kind.Group == "cilium.io" || strings.HasSuffix(kind.Group, "projectcalico.org") || kind.Group == "policy.networking.k8s.io") && strings.HasSuffix(kind.Kind, "NetworkPolicy")
	})
}

// served are the kinds that there are, each in the version that the cluster prefers.
func (g *gatherer) served() []*metav1.APIResourceList {
	lists, err := g.Clientset.Discovery().ServerPreferredResources()
	if len(lists) == 0 { // an error otherwise is about a group that somebody else serves
		g.archive.miss(g.Name, "the kinds that the cluster serves", err)
	}
	return lists
}

// objects are those that have been read, by kind.
type objects struct {
	g  *gatherer
	mu sync.Mutex
	of map[schema.GroupKind]map[string]*unstructured.Unstructured
}

func newObjects(g *gatherer) *objects {
	return &objects{g: g, of: make(map[schema.GroupKind]map[string]*unstructured.Unstructured)}
}

// read reads a list, page by page. Who may not list everywhere may do it in the
// namespaces that are known.
func (os *objects) read(ctx context.Context, q query) {
	err := os.list(ctx, q)
	if apierrors.IsForbidden(err) && q.namespace == "" && strings.HasSuffix(q.kind.Group, ".liqo.io") {
		var errs []error
		namespaces := os.g.sortedNamespaces()
		if os.g.Namespace != "" {
			namespaces = append(namespaces, os.g.Namespace)
		}
		for _, ns := range namespaces {
			q.namespace = ns
			if err := os.list(ctx, q); err != nil {
				errs = append(errs, err)
			}
		}
		q.namespace, err = "", firstError(errs)
	}
	if meta.IsNoMatchError(err) {
		return // no kind, no objects
	}
	os.g.miss(q.what(), err)
}

func (os *objects) list(ctx context.Context, q query) error {
	count := 0
	for next := ""; ; {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(q.kind.GroupVersion().WithKind(q.kind.Kind + "List"))
		options := []client.ListOption{client.Limit(pageSize), client.Continue(next)}
		if q.namespace != "" {
			options = append(options, client.InNamespace(q.namespace))
		}
		if q.selector != nil {
			options = append(options, q.selector)
		}
		if err := os.g.Client.List(ctx, list, options...); err != nil {
			return err
		}
		for i := range list.Items {
			if q.keep != nil && !q.keep(&list.Items[i]) {
				continue
			}
			if count++; q.limit > 0 && count > q.limit {
				return fmt.Errorf("there are more than %d, the rest is left out", q.limit)
			}
			os.add(&list.Items[i], q)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// add takes an object without its secrets.
func (os *objects) add(o *unstructured.Unstructured, q query) {
	o.SetGroupVersionKind(q.kind)
	var c cleaner
	var public []string
	if q.kind.Group == networkingv1beta1.GroupVersion.Group {
		for _, of := range []string{"spec", "status"} { // of PublicKeys, of gateways
			if key, ok, _ := unstructured.NestedString(o.Object, of, "publicKey"); ok {
				public = append(public, key)
			}
		}
	}
	if q.kind == core("Pod") {
		os.g.notePod(o)
	}
	if strings.HasSuffix(q.kind.Group, ".liqo.io") {
		os.g.namespace(o.GetNamespace())
	} else if q.kind == core("Namespace") {
		os.g.namespace(o.GetName())
	}
	if q.trim != nil {
		q.trim(o)
	}
	c.object(o)
	os.g.archive.learn(public, c.secrets)
	os.mu.Lock()
	defer os.mu.Unlock()
	kind := q.kind.GroupKind()
	if os.of[kind] == nil {
		os.of[kind] = make(map[string]*unstructured.Unstructured)
	}
	os.of[kind][o.GetNamespace()+"/"+o.GetName()] = o
}

// pack writes each kind into a file of its own.
func (os *objects) pack() {
	for kind, all := range os.of {
		var text bytes.Buffer
		list := make([]*unstructured.Unstructured, 0, len(all))
		for _, o := range all {
			list = append(list, o)
		}
		slices.SortFunc(list, func(a, b *unstructured.Unstructured) int {
			return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
		})
		name := kind.Kind
		if kind.Group != "" {
			name += "." + kind.Group
		}
		for i, o := range list {
			b, err := yaml.Marshal(o.Object)
			if err == nil && text.Len()+len(b) > maxKindBytes {
				err = fmt.Errorf("they are more than %d MiB: %d of %d objects are left out", maxKindBytes>>20, len(list)-i, len(list))
			}
			if err != nil {
				os.g.archive.miss(os.g.Name, "objects of kind "+kind.Kind, err)
				break
			}
			text.WriteString("---\n")
			text.Write(b)
			os.g.objects++
		}
		os.g.archive.add(os.g.Name, fileName(os.g.folder, "objects", name+".yaml"), text.Bytes())
	}
}

// trimNode keeps of a Node what tells about its network.
func trimNode(o *unstructured.Unstructured) {
	kept := map[string]any{"apiVersion": "v1", "kind": "Node"}
	for _, path := range [][]string{
		{"metadata", "name"}, {"metadata", "uid"}, {"metadata", "labels"}, {"metadata", "creationTimestamp"},
		{"spec", "podCIDR"}, {"spec", "podCIDRs"}, {"spec", "taints"}, {"spec", "unschedulable"},
		{"status", "addresses"}, {"status", "conditions"}, {"status", "nodeInfo"},
	} {
		keep(kept, o.Object, path)
	}
	o.Object = kept
}

// trimCRD keeps of a CRD which versions there are, not what is in them.
func trimCRD(o *unstructured.Unstructured) {
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok {
			delete(m, "schema")
			delete(m, "additionalPrinterColumns")
		}
	}
	kept := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}
	for _, path := range [][]string{
		{"metadata", "name"}, {"metadata", "labels"}, {"metadata", "creationTimestamp"}, {"metadata", "generation"}, {"spec", "group"}, {"spec", "scope"}, {"spec", "names", "kind"}, {"status"},
	} {
		keep(kept, o.Object, path)
	}
	_ = unstructured.SetNestedSlice(kept, versions, "spec", "versions") // spec is a map
	o.Object = kept
}

func isOurs(o *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	_, template := o.GetLabels()[networkingv1beta1.LabelGatewayTemplate]
	return template || group == "liqo.io" || strings.HasSuffix(group, ".liqo.io")
}

// keep copies a field.
func keep(to, from map[string]any, path []string) {
	if v, ok, _ := unstructured.NestedFieldCopy(from, path...); ok {
		_ = unstructured.SetNestedField(to, v, path...) // the fields above are maps
	}
}
