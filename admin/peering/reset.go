package peering

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
)

// rightsToReset are those that it takes to remove what was found.
func (e *end) rightsToReset() []access.Permission {
	all := e.rightsToDisconnect()
	may := func(verb, group, resource, namespace string) {
		p := access.Permission{Verb: verb, Group: group, Resource: resource, Namespace: namespace}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	for _, c := range e.found.configurations {
		may("delete", networkingv1beta1.GroupVersion.Group, "configurations", c.Namespace)
	}
	for _, n := range e.tenantNamespaces() {
		may("list", networkingv1beta1.GroupVersion.Group, "publickeies", n)
		may("delete", networkingv1beta1.GroupVersion.Group, "publickeies", n)
	}
	for _, n := range e.found.namespaces {
		if e.mayDelete(&n) {
			may("delete", "", "namespaces", "")
		}
	}
	return all
}

// tenantNamespaces are all in which there is anything of the peering.
func (e *end) tenantNamespaces() (names []string) {
	for _, n := range e.found.namespaces {
		names = append(names, n.Name)
	}
	for _, g := range e.found.gateways() {
		names = append(names, g.GetNamespace())
	}
	for _, c := range e.found.configurations {
		names = append(names, c.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// forget deletes the Configurations and PublicKeys of the peer.
func (e *end) forget() *step {
	s := &step{in: e.Cluster, waiting: "Deleting network configuration", done: "Network configuration correctly deleted"}
	if len(e.found.configurations) == 0 {
		s.done = "Network configuration already deleted"
	}
	s.try = func(ctx context.Context) (missing string, err error) {
		for i := range e.found.configurations {
			c := &e.found.configurations[i]
			left, err := e.remove(ctx, c, fmt.Sprintf("Configuration %s/%s", c.Namespace, c.Name))
			if err == nil && left == "" {
				left, err = e.remainsOfConfiguration(ctx, c)
			}
			if err != nil || left != "" && e.options.Wait {
				return left, err
			}
		}
		for _, namespace := range e.tenantNamespaces() {
			if left, err := e.forgetKeys(ctx, namespace); err != nil || left != "" && e.options.Wait {
				return left, err
			}
		}
		return "", e.tellOfKeys(ctx, s)
	}
	s.clues = e.controllerClues
	return s
}

// forgetKeys deletes the public keys of the peer.
func (e *end) forgetKeys(ctx context.Context, namespace string) (left string, err error) {
	var list networkingv1beta1.PublicKeyList
	err = e.list(ctx, "PublicKeys", &list, client.InNamespace(namespace), client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: e.peer.id})
	if err != nil {
		return "", err
	}
	return e.removeAll(ctx, objects(list.Items)...)
}

// tellOfKeys says which keys are kept: those that no controller created.
func (e *end) tellOfKeys(ctx context.Context, s *step) error {
	for _, namespace := range e.tenantNamespaces() {
		stray, err := e.strayKeys(ctx, namespace, nil) // the gateways are gone, and nobody names any
		if err != nil {
			return err
		}
		for _, name := range stray {
			s.note(progress.Warning, fmt.Sprintf("Secret %s/%s with keys for cluster %s is kept, because no controller created it: before you connect the clusters again, "+
				"delete it with 'kubectl -n %s delete secret %s', or name it in spec.secretRef of a gateway", namespace, name, e.peer.id, namespace, name))
		}
	}
	return nil
}

// mayDelete tells whether a tenant namespace is one that is to be deleted if
// nothing of anybody else is in it.
func (e *end) mayDelete(n *corev1.Namespace) bool {
	if !e.isTenantNamespace(n) {
		return false
	}
	return e.options.DeleteNamespaces || e.options.OwnNamespaces && n.Labels[LabelManagedBy] == FieldOwner
}

// isTenantNamespace tells whether a namespace has the labels of one for the peer, and is not being deleted.
func (e *end) isTenantNamespace(n *corev1.Namespace) bool {
	return n.DeletionTimestamp == nil && n.Labels[networkingv1beta1.LabelTenantNamespace] == networkingv1beta1.LabelTrue && n.Labels[networkingv1beta1.LabelRemoteClusterID] == e.peer.id
}

// removeNamespace deletes the tenant namespaces if that is wanted and nothing of
// anybody else is in them.
func (e *end) removeNamespace() *step {
	s := &step{in: e.Cluster}
	var doomed []*corev1.Namespace
	for i := range e.found.namespaces {
		if n := &e.found.namespaces[i]; e.mayDelete(n) {
			doomed = append(doomed, n)
			s.waiting = "Deleting namespace " + n.Name
		}
	}
	kept := make(map[string]bool)
	s.try = func(ctx context.Context) (missing string, err error) {
		for _, n := range doomed {
			if kept[n.Name] {
				continue
			}
			others, err := e.othersIn(ctx, n.Name)
			if err != nil {
				return "", err
			}
			if len(others) > 0 {
				kept[n.Name] = true
				s.note(progress.Warning, e.keptBecause(n.Name, others))
				continue
			}
			left, err := e.remove(ctx, n, "namespace "+n.Name)
			if err != nil || left != "" && e.options.Wait {
				return left, err
			}
		}
		return "", nil
	}
	return s
}

// keptBecause says why a namespace is kept, and who deletes what is in it.
func (e *end) keptBecause(namespace string, others []string) string {
	why := fmt.Sprintf("Namespace %s is kept, because it contains objects that do not belong to the peering: %s", namespace, text.Few(others))
	if slices.ContainsFunc(others, ofIdentities) {
		why += "; 'liqoctl unpeer' removes identities, tenants and resources"
	}
	if slices.ContainsFunc(others, func(o string) bool { return strings.HasSuffix(o, ofPeeringUser) }) {
		why += "; 'liqoctl delete peering-user --consumer-cluster-id " + e.peer.id + "' removes peering users"
	}
	return why
}

// ofPeeringUser ends the text of an object of othersIn that GeneratePeeringUser has made.
const ofPeeringUser = " of a peering user"

// ofIdentities tells whether an object of othersIn is of the peering beyond the network.
func ofIdentities(object string) bool {
	kind, _, _ := strings.Cut(object, " ")
	return slices.Contains([]string{"Identity", "Tenant", "ResourceSlice"}, kind)
}

// othersIn names the objects of a namespace that are neither what every namespace
// holds, nor made by the controllers, nor belong to something that is listed
// itself. What cannot be listed might be there.
func (e *end) othersIn(ctx context.Context, namespace string) ([]string, error) {
	lists, err := discovery.ServerPreferredNamespacedResources(e.Clientset.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, e.Explain("look up the kinds of objects", err)
	}
	kinds := access.Listable(lists, func(kind schema.GroupVersionKind) bool { return !transient[kind.Kind] })
	const atOnce = 16
	found, errs := access.Parallel(kinds, atOnce, func(kind schema.GroupVersionKind) ([]string, error) { return e.othersOf(ctx, kind, namespace) })
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	names := slices.Concat(found...)
	slices.Sort(names) // API servers name their kinds in any order
	return names, nil
}

// transient kinds say nothing about whether a namespace is in use.
var transient = map[string]bool{"Event": true, "Lease": true, "EndpointSlice": true, "Endpoints": true, "PodMetrics": true}

// everywhere is what each namespace holds.
var everywhere = []string{"ServiceAccount default", "ConfigMap kube-root-ca.crt", "ConfigMap openshift-service-ca.crt", "ConfigMap istio-ca-root-cert"}

// leftByPeering tells whether an object is what Liqo's liqoctl, or a consumer that was away, leaves at the end of a peering:
// it is of no use without a Tenant or an Identity, which would keep the namespace themselves.
func (e *end) leftByPeering(kind schema.GroupVersionKind, m *metav1.PartialObjectMetadata) bool {
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Secret"}:
		return authv1beta1.OfHandshake(m.Name, m.Labels) && m.Labels[networkingv1beta1.LabelRemoteClusterID] == e.peer.id
	case authv1beta1.GroupVersion.WithKind("ResourceSlice").GroupKind(), authv1beta1.GroupVersion.WithKind("Renew").GroupKind(),
		offloadingv1beta1.GroupVersion.WithKind("NamespaceMap").GroupKind():
		return m.Labels[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue && m.Labels[authv1beta1.LabelReplicationOrigin] == e.peer.id
	}
	return false
}

func (e *end) othersOf(ctx context.Context, kind schema.GroupVersionKind, namespace string) (names []string, err error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = e.Client.List(ctx, &list, client.InNamespace(namespace))
	switch {
	case apierrors.IsForbidden(err):
		return []string{kind.Kind + "s, which the user of " + e.Origin + " may not list"}, nil
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return nil, nil
	case err != nil:
		return nil, e.Explain(fmt.Sprintf("list %ss in namespace %s", kind.Kind, namespace), err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		name := kind.Kind + " " + m.Name
		ours := m.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue ||
			// Not a Secret, say: keys that somebody made himself carry the label too.
			kind.Group == networkingv1beta1.GroupVersion.Group && m.Labels[networkingv1beta1.LabelRemoteClusterID] == e.peer.id ||
			e.leftByPeering(kind, m)
		if len(m.OwnerReferences) == 0 && !ours && !slices.Contains(everywhere, name) {
			if m.Labels[authv1beta1.LabelPeeringUser] != "" {
				name += ofPeeringUser
			}
			names = append(names, name)
		}
	}
	return names, nil
}
