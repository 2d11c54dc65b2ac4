// Package namespacemap asks each provider for the namespaces that are offloaded to it: one NamespaceMap for each provider,
// from its first virtual node to its last.
package namespacemap

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
)

// finalizers are what another implementation leaves on a NamespaceMap.
var finalizers = []string{"namespacemap-controller.liqo.io/finalizer", "crdreplicator.liqo.io/resource"}

// Reconciler keeps the NamespaceMap of each provider.
type Reconciler struct {
	client.Client
	// ID tells the ID of this cluster.
	ID func(context.Context) (string, error)
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
}

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings;virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get;list;watch

// Reconcile looks at one provider: the request is the name that its NamespaceMap has or would have.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	live := new(offloadingv1beta1.NamespaceMap)
	err := r.Get(ctx, req.NamespacedName, live)
	there := err == nil
	switch {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, err
	case there && !live.DeletionTimestamp.IsZero():
		// Its end has it made anew, if it is still wanted.
		return ctrl.Result{}, apply.RemoveFinalizers(ctx, r.Client, live, finalizers...)
	case there && !placement.IsRequest(live):
		return ctrl.Result{}, nil // another cluster's, or nobody's
	}
	f, err := r.gather(ctx, req, there)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	switch {
	case len(f.Nodes) == 0 && there:
		log.FromContext(ctx).Info("the last virtual node is gone", "clusterID", req.Name)
		return ctrl.Result{}, apply.Delete(ctx, r.Client, live)
	case len(f.Nodes) == 0:
		return ctrl.Result{}, nil
	case there:
		return ctrl.Result{}, r.patch(ctx, live, Build(f))
	}
	err = r.Create(ctx, &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name, Labels: map[string]string{
			networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: req.Name,
			authv1beta1.LabelReplication: networkingv1beta1.LabelTrue, authv1beta1.LabelReplicationDestination: req.Name,
		}},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: Build(f)},
	}, client.FieldOwner(apply.FieldOwner))
	if apply.NamespaceEnds(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, nil // the object that is there wakes this
	}
	return ctrl.Result{}, err
}

// patch writes the whole mapping: what else is in it nobody asks for any more.
func (r *Reconciler) patch(ctx context.Context, live *offloadingv1beta1.NamespaceMap, want map[string]string) error {
	if maps.Equal(live.Spec.DesiredMapping, want) && live.Labels[networkingv1beta1.LabelRemoteClusterID] == live.Name {
		return nil
	}
	before := live.DeepCopy()
	live.Spec.DesiredMapping = want
	live.Labels[networkingv1beta1.LabelRemoteClusterID] = live.Name
	return client.IgnoreNotFound(r.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(apply.FieldOwner)))
}

// gather reads what decides. While there is a NamespaceMap, Nodes that are left over count too: without it the provider
// would remove the namespaces under their pods.
func (r *Reconciler) gather(ctx context.Context, req ctrl.Request, there bool) (f Facts, err error) {
	var (
		virtual     offloadingv1beta1.VirtualNodeList
		nodes       corev1.NodeList
		offloadings offloadingv1beta1.NamespaceOffloadingList
		namespaces  metav1.PartialObjectMetadataList
	)
	if err := r.List(ctx, &virtual, client.UnsafeDisableDeepCopy, client.InNamespace(req.Namespace)); err != nil {
		return Facts{}, err
	}
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy, client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: req.Name}); err != nil {
		return Facts{}, err
	}
	if err := r.List(ctx, &offloadings, client.UnsafeDisableDeepCopy); err != nil {
		return Facts{}, err
	}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return Facts{}, err
	}
	f.Kept = placement.Kept(namespaces.Items, r.LiqoNamespace)
	f.Nodes, f.Offloadings = placement.Nodes(virtual.Items, nodes.Items, req.Namespace, req.Name), offloadings.Items
	if there {
		f.Nodes = append(f.Nodes, placement.LeftOver(f.Nodes, nodes.Items, req.Name)...)
	}
	if len(f.Nodes) > 0 {
		f.Own, err = r.ID(ctx)
	}
	return f, err
}
