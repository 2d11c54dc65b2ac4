package peering

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Slice says what to ask a provider for.
type Slice struct {
	// Class says who at the provider decides; empty: "default".
	Class string
	// Resources are asked for. What is absent is up to the provider.
	Resources corev1.ResourceList
	// VirtualNode asks for a virtual node that has what is granted. The controller makes it.
	VirtualNode bool
}

// NewResourceSlice returns a request for resources. m names it and the provider.
func NewResourceSlice(m Metadata, s Slice) *authv1beta1.ResourceSlice {
	o := &authv1beta1.ResourceSlice{
		ObjectMeta: m.of("", map[string]string{
			authv1beta1.LabelReplication: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationDestination: m.RemoteClusterID,
		}),
		Spec: authv1beta1.ResourceSliceSpec{Class: s.Class, Resources: s.Resources},
	}
	if s.VirtualNode {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, authv1beta1.AnnotationCreateVirtualNode, networkingv1beta1.LabelTrue)
	}
	o.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind("ResourceSlice"))
	return o
}

// Request asks a provider for resources, and waits for its answer. m names the slice and the provider; without a
// namespace it is made in the tenant namespace of that.
func Request(ctx context.Context, consumer *access.Cluster, m Metadata, s Slice, o Options, tell progress.Func) error {
	return request(ctx, consumer, nil, m, s, false, o, tell)
}

// request does what Request does and, if that is wanted, waits for the virtual node. Where the provider is at hand, messages
// name commands for it.
func request(ctx context.Context, consumer, provider *access.Cluster, m Metadata, s Slice, awaitNode bool, o Options, tell progress.Func) error {
	ctx, cancel := withTimeout(ctx, o)
	defer cancel()
	e, err := lookAlone(ctx, consumer, m.RemoteClusterID, &o, tell)
	if err != nil {
		return err
	}
	if e.namespaceFound() == nil {
		return e.Errorf("there is no tenant namespace for cluster %s; nothing was changed: run 'liqoctl authenticate' first", m.RemoteClusterID)
	}
	if err := e.requireTenantNamespace(ctx); err != nil {
		return err
	}
	m.Namespace, e.peer.Cluster = e.namespace, provider
	without := false
	if s.VirtualNode { // no controller would make it
		enabled, err := e.offloads(ctx)
		if err != nil {
			return err
		}
		s.VirtualNode, without = enabled, !enabled
	}
	taken, err := e.nodeNameTaken(ctx, m.Name)
	switch {
	case err != nil:
		return err
	case taken != "" && !s.VirtualNode:
		tell.Warning(e.Name, fmt.Sprintf("A virtual node for ResourceSlice %s needs another name: %s", m.Name, taken))
	case taken != "" && provider != nil: // the identity is there by now
		return e.Errorf("%s; choose another name: %s", taken, e.Command("create", "resourceslice", "NAME", "--remote-cluster-id", m.RemoteClusterID))
	case taken != "":
		return e.Errorf("%s; nothing was changed: choose another name, or use --no-virtual-node", taken)
	}
	slice := NewResourceSlice(m, s)
	var p plan
	made := p.add(nil, e.sliceMade(slice))
	authenticated := p.add(after(made), e.sliceDecided(slice, authv1beta1.SliceAuthentication))
	granted := p.add(after(authenticated), e.sliceDecided(slice, authv1beta1.SliceResources))
	if awaitNode {
		p.add(after(granted), e.nodeReady(slice.Name))
	}
	if err := p.run(ctx, tell); err != nil {
		return err
	}
	if without {
		tell.Warning(e.Name, "Only the resources are granted: there is no virtual node, because offloading is not enabled in this cluster; enable it with the following command, then run this command again: "+e.enableOffloading())
	}
	return nil
}

// requireTenantNamespace fails if the user has named a namespace from which nothing is copied to the provider: one that has
// neither the label of the peering nor an object of it.
func (e *end) requireTenantNamespace(ctx context.Context) error {
	if n := e.namespaceFound(); !e.NamespaceGiven || n.Labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue ||
		len(e.found.configurations) > 0 || len(e.found.gateways()) > 0 {
		return nil
	}
	here, err := e.identityNamespaces(ctx, client.InNamespace(e.namespace))
	if apierrors.IsForbidden(err) || len(here) > 0 {
		return nil // the provider's answer, or none, tells
	}
	if err != nil {
		return err
	}
	everywhere, hint := *e.Cluster, "create the ResourceSlice where the identity for that cluster is"
	everywhere.NamespaceGiven = false
	all := &end{Cluster: &everywhere, peer: e.peer, options: e.options}
	names, err := all.identityNamespaces(ctx)
	if err != nil || len(names) == 0 { // which a user of one namespace may not ask
		if spaces, err := all.namespaces(ctx); err == nil {
			names = (&found{namespaces: spaces}).labelled(e.peer.id)
		}
	}
	if len(names) > 0 {
		hint = "run the command with -n " + names[0]
	}
	return e.Errorf("namespace %s is not a tenant namespace of cluster %s: nothing in it is sent to that cluster; nothing was changed; %s", e.namespace, e.peer.id, hint)
}

// identityNamespaces are those that have a Tenant or an identity of the peer.
func (e *end) identityNamespaces(ctx context.Context, in ...client.ListOption) (names []string, err error) {
	secrets, err := e.identitySecrets(ctx, in...)
	if err != nil {
		return nil, e.Explain("list Secrets", err)
	}
	for i := range secrets {
		names = append(names, secrets[i].Namespace)
	}
	var identities authv1beta1.IdentityList
	if err := e.list(ctx, "Identities", &identities, in...); err != nil {
		return nil, err
	}
	var tenants authv1beta1.TenantList
	if err := e.list(ctx, "Tenants", &tenants, in...); err != nil {
		return nil, err
	}
	of := func(id authv1beta1.ClusterID, namespace string) {
		if string(id) == e.peer.id {
			names = append(names, namespace)
		}
	}
	for i := range identities.Items {
		of(identities.Items[i].Spec.ClusterID, identities.Items[i].Namespace)
	}
	for i := range tenants.Items {
		of(tenants.Items[i].Spec.ClusterID, tenants.Items[i].Namespace)
	}
	return names, nil
}

func (e *end) sliceMade(slice *authv1beta1.ResourceSlice) *step {
	s := &step{in: e.Cluster, waiting: "Creating ResourceSlice", done: "ResourceSlice created"}
	s.try = func(ctx context.Context) (missing string, err error) {
		err = e.write.Create(ctx, slice.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			return "", e.Explain("create ResourceSlice "+slice.Name, err)
		}
		var live authv1beta1.ResourceSlice
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(slice), &live); err != nil {
			return "", e.Explain("read ResourceSlice "+slice.Name, err)
		}
		if live.Labels[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue {
			return "", &complaint{fmt.Sprintf("ResourceSlice %s/%s already exists: cluster %s asks this one for resources with it; choose another name", live.Namespace, live.Name, e.peer.id)}
		}
		if live.DeletionTimestamp != nil {
			return "an earlier ResourceSlice is being deleted", nil
		}
		if len(slice.Spec.Resources) > 0 && !equality.Semantic.DeepEqual(slice.Spec.Resources, live.Spec.Resources) {
			s.note(progress.Warning, fmt.Sprintf("ResourceSlice %s already exists and asks for something else: it is left unchanged; change it with 'kubectl -n %s edit rslice %[1]s'", live.Name, live.Namespace))
		}
		if wanted := slice.Annotations[authv1beta1.AnnotationCreateVirtualNode]; wanted != "" && live.Annotations[authv1beta1.AnnotationCreateVirtualNode] != wanted {
			before := live.DeepCopy()
			metav1.SetMetaDataAnnotation(&live.ObjectMeta, authv1beta1.AnnotationCreateVirtualNode, wanted)
			return "", e.Explain("change ResourceSlice "+slice.Name, e.write.Patch(ctx, &live, client.MergeFrom(before)))
		}
		return "", nil // its answer is waited for
	}
	return s
}

// denied is a refusal of the provider.
type denied struct {
	complaint
	about authv1beta1.ResourceSliceConditionType
}

// Unwrap makes a refusal count only after a while, like a complaint of a controller of this cluster: the answer may be
// older than the request.
func (d *denied) Unwrap() error { return &d.complaint }

// sliceDecided waits for one decision of the provider. A refusal is the provider's to change.
func (e *end) sliceDecided(slice *authv1beta1.ResourceSlice, about authv1beta1.ResourceSliceConditionType) *step {
	word := map[authv1beta1.ResourceSliceConditionType]string{authv1beta1.SliceAuthentication: "authentication", authv1beta1.SliceResources: "resources"}[about]
	s := &step{in: e.Cluster, waiting: "Waiting for the answer on " + word, done: fmt.Sprintf("ResourceSlice %s: %s", word, authv1beta1.SliceAccepted), detailed: true}
	var watch obstacleWatch
	refused := false
	s.clues = func(ctx context.Context, told string) []string {
		if refused { // the provider has said why
			return nil
		}
		return e.answerClues(ctx, told)
	}
	s.try = func(ctx context.Context) (missing string, err error) {
		refused = false
		var live authv1beta1.ResourceSlice
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(slice), &live); err != nil {
			return "", e.Explain("read ResourceSlice "+slice.Name, err)
		}
		for _, c := range live.Status.Conditions {
			switch {
			case c.Type != about:
			case c.Status == authv1beta1.SliceAccepted:
				return "", nil
			default:
				refused = true
				return "", &denied{complaint{fmt.Sprintf("cluster %s refused (%s): %s", e.peer.id, c.Reason, c.Message)}, about}
			}
		}
		return watch.missing(ctx, e)
	}
	return s
}
