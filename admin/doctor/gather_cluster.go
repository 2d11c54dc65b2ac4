package doctor

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

const (
	// firstAnswer is how long a cluster may take to say anything at all.
	firstAnswer = 15 * time.Second
	// askTimeout is how long each further question may take.
	askTimeout = 30 * time.Second
	// enough is how many objects are looked at where one would prove the point.
	enough = 100
)

// readCluster asks for what is not about one peering.
func readCluster(ctx context.Context, t Target, wanted []apiextensionsv1.CustomResourceDefinition) *clusterReader {
	p := &clusterReader{access: t.Cluster, cluster: &cluster{name: t.Name, origin: t.Origin, wantedCRDs: wanted, Cluster: unasked(t.Name)}}
	if t.Err != nil {
		p.err = t.Err
		return p
	}
	p.host = t.Cluster.Config.Host
	if p.err = checkAccess(ctx, t.Cluster); p.err != nil {
		return p
	}
	s, err := survey.Read(ctx, t.Cluster, survey.Options{})
	if err != nil {
		p.err = err
		return p
	}
	p.Cluster = s
	p.readMore(ctx)
	return p
}

// checkAccess reaches the API server and has it authenticate the user, who need not
// have any right.
func checkAccess(ctx context.Context, c *access.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	var ns corev1.Namespace
	err := c.Client.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, &ns)
	if apierrors.IsForbidden(err) && !access.IsAnonymous(err) {
		return nil // authenticated
	}
	return c.Explain("reach the cluster", err)
}

// readMore asks for what the survey does not tell, all at the same time.
func (p *clusterReader) readMore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c := p.access
	var wg sync.WaitGroup
	wg.Go(func() { p.needed = c.Require(ctx, needed(c.LiqoNamespace)...) })
	wg.Go(func() { p.wanted = c.Require(ctx, useful()...) })
	wg.Go(func() { p.clockAhead = clockAhead(ctx, c) })
	wg.Go(func() { p.uid, _ = c.UID(ctx) }) // what cannot be compared is not the same
	wg.Go(func() { p.readCRDs(ctx) })
	wg.Go(func() { p.readNamespaces(ctx) })
	wg.Go(func() { p.nodes = list[corev1.Node](ctx, c, "Nodes", &corev1.NodeList{}) })
	wg.Go(func() {
		var s corev1.Service
		if c.Client.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &s) == nil {
			p.apiService = &s
		}
	})
	wg.Go(func() {
		p.pods = list[corev1.Pod](ctx, c, "Pods", &corev1.PodList{}, client.InNamespace(c.LiqoNamespace), client.Limit(enough))
	})
	wg.Go(func() { p.readAgents(ctx) })
	wg.Go(func() { p.readEvents(ctx) })
	wg.Go(func() { p.readOffloading(ctx) })
	wg.Go(func() { p.shared.items, _, p.shared.err = survey.SharedServices(ctx, c, "") })
	wg.Wait()
}

// readNamespaces reads all or, beside the error, the one that the user may look into.
func (p *clusterReader) readNamespaces(ctx context.Context) {
	p.namespaces = list[corev1.Namespace](ctx, p.access, "Namespaces", &corev1.NamespaceList{})
	var own corev1.Namespace
	if p.namespaces.err != nil && p.Within != "" && p.access.Client.Get(ctx, types.NamespacedName{Name: p.Within}, &own) == nil {
		p.namespaces.items = []corev1.Namespace{own}
	}
}

// needed are the rights without which little can be judged.
func needed(liqoNamespace string) (out []access.Permission) {
	for _, resource := range []string{
		"configurations", "gatewayservers", "gatewayclients", "connections", "publickeies", "internalnodes", "internalfabrics", "genevetunnels",
	} {
		out = append(out, access.Permission{Verb: "list", Group: networkingv1beta1.GroupVersion.Group, Resource: resource})
	}
	return append(out, access.Permission{Verb: "list", Group: ipamv1alpha1.GroupVersion.Group, Resource: "networks", Namespace: liqoNamespace})
}

// useful are those that let the checks see more.
func useful() []access.Permission {
	return []access.Permission{
		{Verb: "create", Resource: "pods", Subresource: "exec"},
		{Verb: "get", Resource: "pods", Subresource: "log"},
		{Verb: "list", Resource: "pods"}, {Verb: "list", Resource: "events"},
		{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "namespaces"}, {Verb: "list", Resource: "services"},
		{Verb: "list", Group: "networking.k8s.io", Resource: "networkpolicies"},
		{Verb: "list", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
}

// list reads all objects of a kind.
func list[T any](ctx context.Context, c *access.Cluster, what string, into client.ObjectList, o ...client.ListOption) (r read[T]) {
	if err := c.Client.List(ctx, into, o...); err != nil {
		return read[T]{err: c.Explain("list "+what, err)}
	}
	r.err = meta.EachListItem(into, func(o runtime.Object) error {
		if item, ok := any(o).(*T); ok {
			r.items = append(r.items, *item)
		}
		return nil
	})
	return r
}

// readCRDs reads the names of all CRDs, and ours as they are.
func (p *clusterReader) readCRDs(ctx context.Context) {
	names := metav1.PartialObjectMetadataList{}
	names.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	if err := p.access.Client.List(ctx, &names); err != nil {
		p.crds.err = p.access.Explain("list CustomResourceDefinitions", err)
		return
	}
	for i := range names.Items {
		p.crdNames = append(p.crdNames, names.Items[i].Name)
	}
	wanted := slices.DeleteFunc(slices.Clone(p.wantedCRDs), func(d apiextensionsv1.CustomResourceDefinition) bool { return !slices.Contains(p.crdNames, d.Name) })
	found, errs := access.Parallel(wanted, atOnce, func(want apiextensionsv1.CustomResourceDefinition) (o apiextensionsv1.CustomResourceDefinition, err error) {
		err = p.access.Client.Get(ctx, types.NamespacedName{Name: want.Name}, &o)
		return o, err
	})
	for i, err := range errs {
		if err != nil {
			p.crds.err = p.access.Explain("read CustomResourceDefinition "+wanted[i].Name, err)
		} else {
			p.crds.items = append(p.crds.items, found[i])
		}
	}
}

// readAgents reads the pods of the node agents: those of DaemonSets that use the
// node's network.
func (p *clusterReader) readAgents(ctx context.Context) {
	for i := range p.Installation.Components {
		o := &p.Installation.Components[i]
		if o.Kind != "DaemonSet" {
			continue
		}
		pods := list[corev1.Pod](ctx, p.access, "Pods of namespace "+o.Namespace, &corev1.PodList{}, client.InNamespace(o.Namespace))
		if pods.err != nil {
			p.agents.err = pods.err
			return
		}
		for _, pod := range pods.items {
			if pod.Spec.HostNetwork && slices.ContainsFunc(pod.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == o.Kind && r.Name == o.Name }) {
				p.agents.items = append(p.agents.items, pod)
			}
		}
	}
}

// readEvents reads those of the namespaces where pods of ours run, the last first.
func (p *clusterReader) readEvents(ctx context.Context) {
	namespaces := []string{p.access.LiqoNamespace}
	add := func(ns string) {
		if ns != "" && !slices.Contains(namespaces, ns) {
			namespaces = append(namespaces, ns)
		}
	}
	for i := range p.Installation.Components {
		add(p.Installation.Components[i].Namespace)
	}
	for i := range p.Peers {
		add(p.Peers[i].Namespace)
	}
	p.events = readEvents(ctx, p.access, namespaces)
}

// readEvents reads those of some namespaces, the last first.
func readEvents(ctx context.Context, c *access.Cluster, namespaces []string, o ...client.ListOption) (all read[corev1.Event]) {
	found, errs := access.Parallel(namespaces, atOnce, func(ns string) ([]corev1.Event, error) {
		r := list[corev1.Event](ctx, c, "Events of namespace "+ns, &corev1.EventList{}, append(slices.Clip(o), client.InNamespace(ns))...)
		return r.items, r.err
	})
	all.items = slices.Concat(found...)
	for _, err := range errs {
		if err != nil {
			all.err = err
		}
	}
	slices.SortFunc(all.items, func(a, b corev1.Event) int { return survey.EventTime(&b).Compare(survey.EventTime(&a)) })
	return all
}

// isAbout tells whether an event is about an object, rather than about an earlier one of its name.
func isAbout(e *corev1.Event, kind string, o client.Object) bool {
	of := e.InvolvedObject
	return of.Kind == kind && of.Namespace == o.GetNamespace() && of.Name == o.GetName() && (of.UID == "" || of.UID == o.GetUID())
}

// clockAhead compares the API server's clock, which it tells with every answer,
// with ours; nil: not known.
func clockAhead(ctx context.Context, c *access.Cluster) *time.Duration {
	httpClient, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return nil
	}
	base, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/version").String(), nil)
	if err != nil {
		return nil
	}
	asked := time.Now()
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil
	}
	resp.Body.Close()
	told, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return nil
	}
	// It tells whole seconds, half a second too little on average.
	ahead := told.Add(500 * time.Millisecond).Sub(midpoint(asked, time.Now()))
	return &ahead
}

// midpoint is when, most likely, a question was answered.
func midpoint(asked, answered time.Time) time.Time { return asked.Add(answered.Sub(asked) / 2) }
