// Package namespaceoffloading tells of each offloaded namespace how far it is, and marks it, so that its pods are fit for
// virtual nodes. The namespaces themselves are asked for by package namespacemap.
package namespaceoffloading

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// finalizer is what another implementation leaves on a NamespaceOffloading.
const finalizer = "namespaceoffloading-controller.liqo.io/finalizer"

// policyKind is the kind by which pods are changed as they are made.
var policyKind = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}

// Reconciler keeps the status of NamespaceOffloadings and the label of their namespaces.
type Reconciler struct {
	client.Client
	// ID tells the ID of this cluster.
	ID func(context.Context) (string, error)
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	now           func() metav1.Time
}

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings/status,verbs=patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps;virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch

// Reconcile looks at one namespace: the name of the request is always the same.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := new(offloadingv1beta1.NamespaceOffloading)
	err := r.Get(ctx, req.NamespacedName, o)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	there := err == nil
	kept, err := r.kept(ctx, req.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.label(ctx, req.Namespace, there && placement.Offloads(o, kept) && o.Spec.PodOffloadingStrategy != offloadingv1beta1.LocalPodOffloadingStrategy); err != nil {
		return ctrl.Result{}, err
	}
	if !there {
		return ctrl.Result{}, nil
	}
	if !o.DeletionTimestamp.IsZero() {
		if err := apply.RemoveFinalizers(ctx, r.Client, o, finalizer); err != nil || len(o.Finalizers) == 0 {
			return ctrl.Result{}, err
		}
	}
	f, err := r.gather(ctx, o)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	f.Kept = kept
	wrote, err := apply.Status(ctx, r.Client, o, func() { o.Status = Build(f) })
	if wrote {
		log.FromContext(ctx).V(1).Info("status", "phase", o.Status.OffloadingPhase)
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// kept says why a namespace is never offloaded; empty: it can be.
func (r *Reconciler) kept(ctx context.Context, name string) (string, error) {
	ns := namespace()
	err := r.Get(ctx, client.ObjectKey{Name: name}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return placement.Kept(nil, r.LiqoNamespace)(name), nil // its creation wakes this
	case err != nil:
		return "", err
	}
	return reserved.FromOffloading(name, ns.Labels, r.LiqoNamespace), nil
}

// label has the label on the namespace, or not.
func (r *Reconciler) label(ctx context.Context, name string, wanted bool) error {
	ns := namespace()
	if err := r.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
		return client.IgnoreNotFound(err)
	}
	var value *string
	if wanted {
		value = new(networkingv1beta1.LabelTrue)
	}
	have, there := ns.Labels[offloadingv1beta1.LabelSchedulingEnabled]
	if there == wanted && (!wanted || have == *value) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": ns.ResourceVersion, "labels": map[string]*string{offloadingv1beta1.LabelSchedulingEnabled: value},
	}})
	if err != nil {
		return err
	}
	if err := client.IgnoreNotFound(r.Patch(ctx, ns, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(apply.FieldOwner))); err != nil {
		return fmt.Errorf("label namespace %s: %w", name, err)
	}
	log.FromContext(ctx).Info("namespace", "offloaded", wanted)
	return nil
}

// namespace is a Namespace of which only the metadata are read.
func namespace() *metav1.PartialObjectMetadata {
	ns := new(metav1.PartialObjectMetadata)
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

func (r *Reconciler) gather(ctx context.Context, o *offloadingv1beta1.NamespaceOffloading) (Facts, error) {
	var (
		requests offloadingv1beta1.NamespaceMapList
		virtual  offloadingv1beta1.VirtualNodeList
		nodes    corev1.NodeList
	)
	for list, options := range map[client.ObjectList][]client.ListOption{
		&requests: nil, &virtual: nil,
		&nodes: {client.MatchingLabels{networkingv1beta1.LabelNodeType: networkingv1beta1.NodeTypeVirtual}},
	} {
		if err := r.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
			return Facts{}, err
		}
	}
	f := Facts{Offloading: o, Providers: map[string]Provider{}, Now: r.now()}
	for i := range virtual.Items {
		v := &virtual.Items[i]
		if v.DeletionTimestamp.IsZero() {
			p := f.Providers[string(v.Spec.ClusterID)]
			p.Nodes = append(p.Nodes, placement.NodeOf(v, nodes.Items))
			f.Providers[string(v.Spec.ClusterID)] = p
		}
	}
	for i := range requests.Items {
		if m := &requests.Items[i]; placement.IsRequest(m) {
			p := f.Providers[m.Name]
			p.Map = m
			p.Nodes = append(p.Nodes, placement.LeftOver(p.Nodes, nodes.Items, m.Name)...)
			f.Providers[m.Name] = p
		}
	}
	var err error
	if f.Admits, err = r.admits(); err != nil {
		return Facts{}, err
	}
	f.Own, err = r.ID(ctx)
	return f, err
}

// admits tells whether the API server serves the kind by which pods are changed as they are made.
func (r *Reconciler) admits() (bool, error) {
	_, err := r.RESTMapper().RESTMapping(policyKind, "v1")
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
