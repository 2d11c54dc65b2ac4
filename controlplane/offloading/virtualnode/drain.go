package virtualnode

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

const (
	// recheck is how soon is looked again at what wakes nobody.
	recheck = 30 * time.Second
	// refused is how soon an eviction that a PodDisruptionBudget refused is tried again.
	refused = 5 * time.Second
	// abandoned is how long after its end was due a pod counts as one that nobody will end.
	abandoned = 10 * time.Minute
)

// drainer removes the Nodes that no VirtualNode wants any more. It needs no finalizer: a Node tells by its labels that it
// stands for another cluster, and one without a VirtualNode is left over, whatever happened meanwhile.
type drainer struct {
	client.Client
	now           func() time.Time
	liqoNamespace string
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

// Reconcile looks at one Node.
//
//	a VirtualNode that wants it    pods on it                     the Node
//	yes                            whatever                       stays
//	no                             some                           is cordoned; they are evicted
//	no                             only such as nobody will end   goes, and Kubernetes removes them
//	no                             only of the node itself        goes, and they with it
//	no                             none                           goes
//	no tenant namespace is left    whatever                       goes: nobody could end its pods
func (r *drainer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	n := new(corev1.Node)
	if err := r.Get(ctx, client.ObjectKey{Name: req.Name}, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	peer := n.Labels[networkingv1beta1.LabelRemoteClusterID]
	if !isVirtual(n) || peer == "" || !n.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	wanted, err := r.wanted(ctx, n.Name, peer)
	if err != nil || wanted {
		return ctrl.Result{}, err
	}
	tenant, err := r.tenant(ctx, peer)
	if err != nil {
		return ctrl.Result{}, err
	}
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	left, again := 0, time.Duration(0)
	for i := range pods.Items {
		if p := &pods.Items[i]; tenant && p.Spec.NodeName == n.Name && !r.abandoned(p) && !r.stays(p) {
			if left++; left == 1 {
				if err := r.cordon(ctx, n.Name); err != nil {
					return ctrl.Result{}, err
				}
			}
			if err := r.evict(ctx, p); apierrors.IsTooManyRequests(err) {
				again = refused
			} else if client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, fmt.Errorf("evict pod %s: %w", client.ObjectKeyFromObject(p), err)
			}
		}
	}
	if left > 0 {
		if again == 0 {
			again = recheck
		}
		return ctrl.Result{RequeueAfter: again}, nil // the end of a pod wakes this sooner
	}
	log.FromContext(ctx).Info("no VirtualNode wants the Node any more", "clusterID", peer)
	return ctrl.Result{}, apply.Delete(ctx, r.Client, n)
}

// wanted tells whether a VirtualNode wants the Node.
func (r *drainer) wanted(ctx context.Context, name, peer string) (bool, error) {
	var all offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range all.Items {
		v := &all.Items[i]
		if v.Name == name && string(v.Spec.ClusterID) == peer && v.DeletionTimestamp.IsZero() && (v.Spec.CreateNode == nil || *v.Spec.CreateNode) {
			return true, nil
		}
	}
	return false, nil
}

// tenant tells whether the cluster has a tenant namespace.
func (r *drainer) tenant(ctx context.Context, peer string) (bool, error) {
	namespaces := new(metav1.PartialObjectMetadataList)
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	err := r.List(ctx, namespaces, client.UnsafeDisableDeepCopy, client.MatchingLabels{
		networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: peer,
	})
	return len(namespaces.Items) > 0, err
}

// cordon keeps the scheduler from putting more pods onto the Node.
func (r *drainer) cordon(ctx context.Context, name string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	return client.IgnoreNotFound(r.Patch(ctx, n, patch, client.FieldOwner(apply.FieldOwner)))
}

// evict asks for the end of a pod, unless that is under way.
func (r *drainer) evict(ctx context.Context, p *corev1.Pod) error {
	if !p.DeletionTimestamp.IsZero() {
		return nil
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return r.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
	})
}

func (r *drainer) abandoned(p *corev1.Pod) bool {
	return !p.DeletionTimestamp.IsZero() && r.now().Sub(p.DeletionTimestamp.Time) > abandoned
}

// stays tells whether a pod is of the node itself: of a DaemonSet, which would make another one
// in its place at once, or of the cluster, where a ValidatingAdmissionPolicy lets nobody be
// evicted by this controller.
func (r *drainer) stays(p *corev1.Pod) bool {
	if c := metav1.GetControllerOf(p); c != nil && c.Kind == kinds.DaemonSet {
		return true
	}
	return reserved.SystemNamespace(p.Namespace) || reserved.Installation(p.Namespace, r.liqoNamespace)
}
