package release

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
	"github.com/sluice-net/sluice/controlplane/objectname"
	"github.com/sluice-net/sluice/deploy"
)

// items are the objects of a list, with their kinds.
func items(list client.ObjectList, scheme *runtime.Scheme) ([]client.Object, error) {
	raw, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	objects := make([]client.Object, 0, len(raw))
	for _, r := range raw {
		o, ok := r.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is not a client.Object", r)
		}
		if o.GetObjectKind().GroupVersionKind().Empty() {
			kind, err := apiutil.GVKForObject(o, scheme)
			if err != nil {
				return nil, err
			}
			o.GetObjectKind().SetGroupVersionKind(kind)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// madeKinds are the kinds of Kubernetes and its projects of which the controllers create objects.
var madeKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Version: "v1", Kind: "Service"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Version: "v1", Kind: "ResourceQuota"},
	{Group: mcsv1beta1.GroupName, Version: mcsv1beta1.SchemeGroupVersion.Version, Kind: mcsv1beta1.ServiceImportKindName},
}

// removeManaged removes what the controllers have made: objects of our kinds and
// of others. What users made stays, unless its kind goes.
func (r *Removal) removeManaged(ctx context.Context) error {
	managed := client.MatchingLabels{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue}
	ours, err := r.ourKinds(ctx)
	if err != nil {
		return err
	}
	objects, err := r.listKinds(ctx, slices.Concat(ours, madeKinds), managed)
	if err != nil {
		return err
	}
	users, err := r.peeringUsers(ctx)
	if err != nil {
		return err
	}
	objects = append(objects, users...)
	// Those that somebody else made carry the label of gateways, too.
	keys, err := r.listKind(ctx, secretKind, managed, client.MatchingLabels{networkingv1beta1.LabelGatewayResource: networkingv1beta1.LabelTrue})
	if err != nil {
		return err
	}
	objects = append(objects, keys...)
	for _, o := range []client.Object{
		single("v1", "ConfigMap", r.cluster.LiqoNamespace, bootstrap.ClusterIDConfigMap),
		single("coordination.k8s.io/v1", "Lease", r.cluster.LiqoNamespace, kinds.Lease),
	} {
		switch there, err := r.exists(ctx, o); {
		case err != nil:
			return err
		case there:
			objects = append(objects, o)
		}
	}
	return r.delete(ctx, objects)
}

// peeringUsers are the RoleBindings of 'liqoctl generate peering-user', and the Roles that it made for each user before the
// status of a gateway had its public key. A binding of another role is somebody else's, whatever its label says.
func (r *Removal) peeringUsers(ctx context.Context) ([]client.Object, error) {
	labelled, err := r.list(ctx, []client.ObjectList{new(rbacv1.RoleBindingList), new(rbacv1.RoleList)}, client.HasLabels{authv1beta1.LabelPeeringUser})
	return slices.DeleteFunc(labelled, func(o client.Object) bool { return !r.ofPeeringUser(o) }), err
}

func (r *Removal) ofPeeringUser(o client.Object) bool {
	own := objectname.Shorten(o.GetName(), validation.LabelValueMaxLength) // the name of the user's Role
	if b, ok := o.(*rbacv1.RoleBinding); ok {
		switch b.RoleRef {
		case rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: authv1beta1.PeeringUserTenantRole}:
			return true
		case rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: authv1beta1.PeeringUserLiqoRole}:
			return o.GetNamespace() == r.cluster.LiqoNamespace
		}
		if b.RoleRef.Kind != "Role" {
			return false
		}
		own = objectname.Shorten(b.RoleRef.Name, validation.LabelValueMaxLength)
	}
	return o.GetLabels()[authv1beta1.LabelPeeringUser] == own
}

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// removeCredentials removes the Secrets of handshakes and identities, which serve nobody without the kinds. It does not
// rely on the garbage collector, which may not find the kind of their owners any more.
func (r *Removal) removeCredentials(ctx context.Context) error {
	var objects []client.Object
	for _, label := range []string{networkingv1beta1.LabelManaged, authv1beta1.LabelNonce, authv1beta1.LabelSignedNonce} {
		list, err := r.listKind(ctx, secretKind, client.MatchingLabels{label: networkingv1beta1.LabelTrue})
		if err != nil {
			return err
		}
		for _, o := range list {
			if credentialsBy(o) == label {
				objects = append(objects, o)
			}
		}
	}
	return r.delete(ctx, objects)
}

// credentialsBy is the label by which a Secret is one of ours for authentication; empty: it is none. That of 'liqoctl
// create identity' is the user's.
func credentialsBy(secret client.Object) string {
	switch secret.GetName() {
	case authv1beta1.NonceSecret:
		return authv1beta1.LabelNonce
	case authv1beta1.SignedNonceSecret:
		return authv1beta1.LabelSignedNonce
	case authv1beta1.CopiesSecret, authv1beta1.KeysSecret:
		return networkingv1beta1.LabelManaged
	}
	if owner := metav1.GetControllerOf(secret); owner != nil && strings.HasPrefix(owner.APIVersion, authv1beta1.GroupVersion.Group+"/") {
		return networkingv1beta1.LabelManaged
	}
	return ""
}

func single(apiVersion, kind, namespace, name string) client.Object {
	u := new(unstructured.Unstructured)
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// ourKinds are the kinds of our groups that the cluster has.
func (r *Removal) ourKinds(ctx context.Context) (kinds []schema.GroupVersionKind, err error) {
	definitions, err := r.definitions(ctx)
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			if v.Served {
				kinds = append(kinds, schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind})
				break
			}
		}
	}
	return kinds, err
}

func (r *Removal) definitions(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := r.cluster.Client.List(ctx, &list); err != nil {
		return nil, r.cluster.Explain("list the CRDs", err)
	}
	return slices.DeleteFunc(list.Items, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return !slices.Contains(ourGroups, d.Spec.Group)
	}), nil
}

// listKind reads the names of the objects of a kind.
func (r *Removal) listKind(ctx context.Context, kind schema.GroupVersionKind, o ...client.ListOption) ([]client.Object, error) {
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := r.cluster.Client.List(ctx, list, o...); err != nil {
		if absent(err) {
			return nil, nil
		}
		return nil, r.cluster.Explain("list "+kind.Kind, err)
	}
	objects := make([]client.Object, len(list.Items))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
		objects[i] = &list.Items[i]
	}
	return objects, nil
}

// listKinds is listKind for several kinds.
func (r *Removal) listKinds(ctx context.Context, kinds []schema.GroupVersionKind, o ...client.ListOption) (all []client.Object, err error) {
	for _, kind := range kinds {
		objects, err := r.listKind(ctx, kind, o...)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// removeObjects removes all objects of our kinds.
func (r *Removal) removeObjects(ctx context.Context) error {
	kinds, err := r.ourKinds(ctx)
	if err != nil {
		return err
	}
	objects, err := r.listKinds(ctx, kinds)
	if err != nil {
		return err
	}
	return r.delete(ctx, objects)
}

// removeKinds removes our CRDs. It is the last thing: the end of a namespace takes
// longer while kinds go away.
func (r *Removal) removeKinds(ctx context.Context) error {
	definitions, err := r.definitions(ctx)
	if err != nil {
		return err
	}
	var objects []client.Object
	for _, d := range definitions {
		d.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		objects = append(objects, &d)
	}
	return r.delete(ctx, objects)
}

// leaveKinds says that they stay.
func (r *Removal) leaveKinds(ctx context.Context) error {
	definitions, err := r.definitions(ctx)
	if err == nil && len(definitions) > 0 {
		r.left("%d CRDs of %s, and the objects that users created of their kinds: remove them with --purge", len(definitions), strings.Join(ourGroups, ", "))
	}
	return err
}

// leaveMultiCluster says that the kinds of the Multi-Cluster Services API stay, which are of no project.
func (r *Removal) leaveMultiCluster(ctx context.Context) error {
	us, err := read(deploy.MultiCluster())
	if err != nil {
		return err
	}
	var crds, objects []string
	for _, u := range us {
		var d apiextensionsv1.CustomResourceDefinition
		switch err := r.cluster.Client.Get(ctx, client.ObjectKeyFromObject(u), &d); {
		case absent(err):
			continue
		case err != nil:
			return r.cluster.Explain("read CRD "+u.GetName(), err)
		}
		created := slices.ContainsFunc(d.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == string(fieldOwner) })
		if !created && at(r.values, "services.enabled") != true {
			continue // they never had to do with us
		}
		crds = append(crds, d.Name)
		list, err := r.listKind(ctx, mcsv1beta1.SchemeGroupVersion.WithKind(d.Spec.Names.Kind))
		if err != nil {
			return err
		}
		for _, o := range list {
			objects = append(objects, describe(o))
		}
	}
	if len(crds) == 0 {
		return nil
	}
	with := ""
	if len(objects) > 0 {
		with = ", and " + text.Few(objects)
	}
	r.left("CRDs %s%s, because other software may use them: if none does, 'kubectl delete crd %s' deletes them and all objects of their kinds",
		strings.Join(crds, " and "), with, strings.Join(crds, " "))
	return nil
}

// leaveExposed names the Services of 'liqoctl expose service', which lead to other clusters.
func (r *Removal) leaveExposed(ctx context.Context) error {
	slice := discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")
	list, err := r.listKind(ctx, slice, client.MatchingLabels{discoveryv1.LabelManagedBy: managedByUs})
	for _, o := range list {
		r.left("Service %[1]s/%[2]s, which leads nowhere now: 'kubectl -n %[1]s delete service %[2]s' deletes it", o.GetNamespace(), o.GetName())
	}
	return err
}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

// removeNamespaces removes the namespaces that liqoctl has made: those of peers, of
// interrupted tests, and at the end that of the installation.
func (r *Removal) removeNamespaces(ctx context.Context) error {
	tenants, err := r.listKind(ctx, namespaceKind, client.MatchingLabels{networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue})
	if err != nil {
		return err
	}
	made, err := r.listKind(ctx, namespaceKind, client.MatchingLabels{labelManagedBy: managedByUs})
	if err != nil {
		return err
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.cluster.LiqoNamespace}}
	own.SetGroupVersionKind(namespaceKind)
	there, err := r.exists(ctx, own)
	if err != nil {
		return err
	}
	isOwn := func(o client.Object) bool { return o.GetName() == own.Name }
	all := slices.DeleteFunc(slices.Concat(tenants, made), isOwn)
	if there {
		all = append(all, own)
	}
	seen := map[string]bool{}
	for _, ns := range all {
		if seen[ns.GetName()] {
			continue
		}
		seen[ns.GetName()] = true
		if ns.GetLabels()[labelManagedBy] != managedByUs {
			if ns.GetDeletionTimestamp() != nil {
				continue // somebody else sees to it
			}
			r.left("namespace %s: liqoctl did not create it", ns.GetName())
			continue
		}
		empty, err := r.empty(ctx, ns.GetName())
		if err != nil {
			return err
		}
		if empty {
			r.namespaces = append(r.namespaces, ns)
		}
	}
	return r.delete(ctx, r.namespaces)
}

// empty tells whether nothing of others is in a namespace. If there is, it stays,
// and that is noted.
func (r *Removal) empty(ctx context.Context, namespace string) (bool, error) {
	others, err := r.settledOthers(ctx, namespace)
	if err != nil || len(others) == 0 {
		return err == nil, err
	}
	r.left("namespace %s: it contains %s", namespace, text.Few(others))
	return false, nil
}

// nobodys tells whether nobody would miss an object: the cluster itself creates it in every
// namespace, it only describes others, or liqoctl or the controllers created it.
func nobodys(kind schema.GroupVersionKind, o client.Object) bool {
	if o.GetLabels()[labelManagedBy] == managedByUs || o.GetLabels()[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue {
		return true
	}
	switch kind.Kind {
	case "Event", "PodMetrics", "ControllerRevision":
		return true
	case "ConfigMap":
		return strings.HasSuffix(o.GetName(), "-ca.crt") || o.GetName() == "istio-ca-root-cert"
	case "ServiceAccount":
		return slices.Contains([]string{"default", "builder", "deployer"}, o.GetName())
	case "Secret", "RoleBinding":
		if len(o.GetOwnerReferences()) > 0 || strings.HasPrefix(o.GetName(), "system:") {
			return true
		}
		// What a consumer has signed to get an identity is of no use without the kinds.
		return kind.Kind == "Secret" && authv1beta1.OfHandshake(o.GetName(), o.GetLabels())
	}
	return false
}

// settledOthers is others, after a while in which the garbage collector may remove
// what belonged to objects that are gone.
func (r *Removal) settledOthers(ctx context.Context, namespace string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, collectWithin)
	defer cancel()
	for {
		var owned bool
		names, owned, err = r.others(ctx, namespace)
		if err != nil || !owned {
			return names, err
		}
		r.tell.Waiting(r.cluster.Name, fmt.Sprintf("Waiting until %s in namespace %s is gone", names[0], namespace))
		if !access.Pause(ctx, pause) {
			return names, nil
		}
	}
}

// collectWithin is how long the garbage collector may take.
const collectWithin = 30 * time.Second

// others are the objects of a namespace that somebody would miss. Owned
// says that there are some, all of which belong to other objects.
func (r *Removal) others(ctx context.Context, namespace string) (names []string, owned bool, err error) {
	_, lists, err := r.cluster.Clientset.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, false, r.cluster.Explain("look up the kinds of objects", err)
	}
	found, orphans := map[string]bool{}, 0
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, false, err
		}
		for _, resource := range list.APIResources {
			if !resource.Namespaced || resource.Kind == "Endpoints" { // EndpointSlices tell the same
				continue
			}
			kind := gv.WithKind(resource.Kind)
			objects, err := r.listKind(ctx, kind, client.InNamespace(namespace))
			if err != nil {
				return nil, false, err
			}
			for _, o := range objects {
				if o.GetDeletionTimestamp() != nil || nobodys(kind, o) {
					continue
				}
				found[kind.Kind+" "+o.GetName()] = true
				if len(o.GetOwnerReferences()) == 0 {
					orphans++
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), len(found) > 0 && orphans == 0, nil
}
