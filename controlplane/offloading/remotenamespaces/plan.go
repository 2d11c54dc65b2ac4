package remotenamespaces

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// Options say what consumers get.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// PodSecurity is the level of the namespaces: restricted, baseline or privileged.
	PodSecurity string
	// MaxNamespaces is how many namespaces one consumer may have.
	MaxNamespaces int
	// Quota says how many objects of a kind may be in each, as spec.hard of a ResourceQuota does.
	Quota corev1.ResourceList
}

// Facts are what a plan is made of.
type Facts struct {
	Options
	// Name is that of the NamespaceMap.
	Name types.NamespacedName
	// Map is nil if there is none, or it is no copy.
	Map *offloadingv1beta1.NamespaceMap
	// Tenant is that of the namespace of the map, if it may ask, drained or not, else nil.
	Tenant *authv1beta1.Tenant
	// Namespaces are all that were made for any NamespaceMap, and those whose names are asked for.
	Namespaces []corev1.Namespace
	// Uncounted are those of Quota that the cluster does not count yet.
	Uncounted []corev1.ResourceName
}

// maxMessage bounds what is told of one namespace, in bytes: a NamespaceMap has up to 1000.
const maxMessage = 300

// Plan says what is to be.
type Plan struct {
	// Ensure are the namespaces that are to be, by their names at the consumer.
	Ensure map[string]*corev1.Namespace
	// Remove are those to be deleted.
	Remove []*corev1.Namespace
	// Mapping is the status, if all of Ensure can be done.
	Mapping map[string]offloadingv1beta1.RemoteNamespaceStatus
	// Refused says why a namespace is not made, by its name at the consumer.
	Refused map[string]string
}

// Build decides which namespaces there are to be for a NamespaceMap.
//
//	situation                                              namespace          phase
//	the map is gone, or no copy                            deleted            (none)
//	the Tenant is drained                                  deleted            CreationLoopBackOff
//	the map is labelled for another cluster                left as it is      CreationLoopBackOff
//	the name is not for consumers                          not made           CreationLoopBackOff
//	there is one that was not made for this                left as it is      CreationLoopBackOff
//	there is none, and the Tenant is not ready             not made           CreationLoopBackOff
//	there is none, and the consumer has its number         not made           CreationLoopBackOff
//	it is being deleted                                    left as it is      Terminating
//	else                                                   made, or kept      Accepted
//	it is not asked for any more                           deleted            Terminating
func Build(f Facts) Plan {
	p := Plan{Ensure: map[string]*corev1.Namespace{}, Mapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{}, Refused: map[string]string{}}
	live := make(map[string]*corev1.Namespace, len(f.Namespaces))
	for i := range f.Namespaces {
		live[f.Namespaces[i].Name] = &f.Namespaces[i]
	}
	wanted := f.wanted()
	count := f.count()
	taken := map[string]string{}
	for _, local := range slices.Sorted(maps.Keys(wanted)) {
		remote := wanted[local]
		there := live[remote]
		why := f.refuse(local, remote, there, count)
		if other := taken[remote]; why == "" && other != "" {
			why = fmt.Sprintf("namespace %s would get the same name", other)
		}
		phase := offloadingv1beta1.MappingAccepted
		switch {
		case why != "":
			p.Refused[local], phase = why, offloadingv1beta1.MappingCreationLoopBackOff
		case there != nil && !there.DeletionTimestamp.IsZero():
			phase = offloadingv1beta1.MappingTerminating
		default:
			if there == nil {
				count++
			}
			p.Ensure[local] = f.namespace(local, remote)
		}
		if why == "" {
			taken[remote] = local
		}
		p.Mapping[local] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: phase, Message: text.Cut(why, maxMessage)}
	}
	for i := range f.Namespaces {
		n := &f.Namespaces[i]
		local := n.Annotations[offloadingv1beta1.AnnotationOriginalName]
		if !f.madeForThis(n) || wanted[local] == n.Name && !drained(f.Tenant) {
			continue
		}
		if n.DeletionTimestamp.IsZero() {
			p.Remove = append(p.Remove, n)
		}
		if _, again := p.Mapping[local]; !again && f.Map != nil {
			p.Mapping[local] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: n.Name, Phase: offloadingv1beta1.MappingTerminating}
		}
	}
	return p
}

// wanted is what is asked for, and may be.
func (f Facts) wanted() map[string]string {
	if f.Map == nil || !f.Map.DeletionTimestamp.IsZero() {
		return nil
	}
	return f.Map.Spec.DesiredMapping
}

func drained(t *authv1beta1.Tenant) bool {
	return t != nil && t.Spec.TenantCondition == authv1beta1.TenantDrained
}

// refuse says why a namespace is not made or kept; empty: it is.
func (f Facts) refuse(local, remote string, there *corev1.Namespace, count int) string {
	switch {
	case drained(f.Tenant):
		return fmt.Sprintf("the provider has drained cluster %s", f.Tenant.Spec.ClusterID)
	case f.Tenant != nil && f.origin() != string(f.Tenant.Spec.ClusterID):
		return fmt.Sprintf("the label %s is %q; in this namespace it must be %s", authv1beta1.LabelReplicationOrigin, text.Quoted(f.origin()), f.Tenant.Spec.ClusterID)
	case len(validation.IsDNS1123Label(local)) > 0:
		return fmt.Sprintf("%q is not the name of a namespace", text.Quoted(local))
	case len(validation.IsDNS1123Label(remote)) > 0:
		return fmt.Sprintf("%q is not the name of a namespace", text.Quoted(remote))
	case reserved.FromPeers(remote, f.LiqoNamespace):
		return fmt.Sprintf("namespace %s is not for other clusters", remote)
	case there != nil && !f.madeForThis(there):
		return fmt.Sprintf("namespace %s exists and was not made for this: it is left as it is; delete it, or ask the consumer to choose another name", remote)
	case there != nil && there.Annotations[offloadingv1beta1.AnnotationOriginalName] != local:
		return fmt.Sprintf("namespace %s was made for namespace %s of the consumer", remote, text.Quoted(there.Annotations[offloadingv1beta1.AnnotationOriginalName]))
	case there != nil:
		return ""
	case f.Tenant == nil:
		return fmt.Sprintf("namespace %s has no Tenant that is ready", f.Name.Namespace)
	case count >= f.MaxNamespaces:
		return fmt.Sprintf("the consumer has %d namespaces: the provider allows no more", count)
	}
	return ""
}

func (f Facts) origin() string { return f.Map.Labels[authv1beta1.LabelReplicationOrigin] }

// madeForThis tells whether a namespace was made for the map, and may be deleted with it.
func (f Facts) madeForThis(n *corev1.Namespace) bool {
	return n.Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue &&
		n.Annotations[offloadingv1beta1.AnnotationManagedByNamespaceMap] == f.Name.String()
}

// count is how many namespaces the maps of the tenant have.
func (f Facts) count() (n int) {
	for i := range f.Namespaces {
		by := f.Namespaces[i].Annotations[offloadingv1beta1.AnnotationManagedByNamespaceMap]
		if f.Namespaces[i].Labels[networkingv1beta1.LabelManaged] == networkingv1beta1.LabelTrue && strings.HasPrefix(by, f.Name.Namespace+"/") {
			n++
		}
	}
	return n
}

// namespace is what one is to be like.
func (f Facts) namespace(local, remote string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: remote,
		Labels: map[string]string{
			networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: f.origin(), networkingv1beta1.LabelPodSecurity: f.PodSecurity,
		},
		Annotations: map[string]string{
			offloadingv1beta1.AnnotationManagedByNamespaceMap: f.Name.String(), offloadingv1beta1.AnnotationOriginalName: local,
		},
	}}
}

// quota bounds how many objects there are in a namespace.
func (f Facts) quota(namespace string) *corev1.ResourceQuota {
	hard := maps.Clone(f.Quota)
	for _, r := range f.Uncounted {
		delete(hard, r)
	}
	return &corev1.ResourceQuota{ObjectMeta: f.meta(namespace), Spec: corev1.ResourceQuotaSpec{Hard: hard}}
}

// uncounted knows of resources that the cluster does not count yet when that was last seen. The
// kube-controller-manager learns of custom kinds half a minute after their CRDs, counts what a ResourceQuota bounds when
// its spec changes, and otherwise every five minutes. Until then the API server refuses every object of the kind, as it
// does not know how many there are.
type uncounted map[corev1.ResourceName]time.Time

// recount is how long a resource is left out that is not counted. Its return has the ResourceQuota counted again.
const recount = time.Minute

// update looks for such resources of a list in ResourceQuotas, and returns those to be left out now.
func (u uncounted) update(list corev1.ResourceList, quotas []corev1.ResourceQuota, now time.Time) (out []corev1.ResourceName) {
	for i := range quotas {
		s := &quotas[i].Status
		for r := range list {
			_, bounded := s.Hard[r]
			if _, counted := s.Used[r]; bounded && !counted {
				u[r] = now
			}
		}
	}
	maps.DeleteFunc(u, func(_ corev1.ResourceName, seen time.Time) bool { return now.Sub(seen) >= recount })
	return slices.Sorted(maps.Keys(u))
}

// meta is that of what there is in a namespace for the consumer.
func (f Facts) meta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: f.Name.Namespace,
		Labels: map[string]string{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: f.origin()},
	}
}

// binding lets the consumer work in a namespace.
func (f Facts) binding(namespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: f.meta(namespace),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: offloadingv1beta1.VirtualKubeletRemoteRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: f.origin()}},
	}
}

// isCopy tells whether a NamespaceMap comes from a consumer.
func isCopy(m *offloadingv1beta1.NamespaceMap) bool {
	return m.Labels[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue && m.Labels[authv1beta1.LabelReplicationOrigin] != ""
}
