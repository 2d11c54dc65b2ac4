// Package apiserver gives the API server of this cluster an address in the network, by which the pods that run in other
// clusters reach it with their own service accounts. There is one while there are virtual nodes, unless the installation
// says that there is to be none.
package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
)

// service is the Service of the API server.
var service = client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// Reconciler keeps the IP of the API server.
type Reconciler struct {
	client.Client
	// Reader reads past the cache, which has no Services of others.
	Reader client.Reader
	// LiqoNamespace is where the installation lives, and the IP.
	LiqoNamespace string
	// Access is whether offloaded pods reach the API server.
	Access bool
}

// SetupWithManager adds the reconciler to mgr.
func SetupWithManager(mgr ctrl.Manager, liqoNamespace string, access bool) error {
	r := &Reconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), LiqoNamespace: liqoNamespace, Access: access}
	key := client.ObjectKey{Namespace: liqoNamespace, Name: ipamv1alpha1.IPTypeAPIServer}
	ours := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request { return []ctrl.Request{{NamespacedName: key}} })
	return controllers.New(mgr, "apiserver", controllers.Options{}).
		For(new(ipamv1alpha1.IP), builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == key }))).
		// The first and the last.
		Watches(new(offloadingv1beta1.VirtualNode), ours, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(apply.RequeueOnConflict(r))
}

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=create;patch;delete,namespace=liqo

// Reconcile looks at everything. The address of a Service cannot change, and that of an IP cannot either: another one is
// another object.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var virtual offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &virtual, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list VirtualNodes: %w", err)
	}
	address, err := r.address(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted := r.Access && len(virtual.Items) > 0 && address != ""
	live := new(ipamv1alpha1.IP)
	switch err := r.Get(ctx, req.NamespacedName, live); {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, err
	case err == nil && !live.DeletionTimestamp.IsZero():
		return ctrl.Result{}, nil // its end wakes this
	case err == nil && (!wanted || live.Spec.IP != address):
		if live.Labels[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue {
			return ctrl.Result{}, nil // a user's
		}
		log.FromContext(ctx).Info("other clusters reach the API server no more at this address", "IP", live.Status.IP)
		return ctrl.Result{}, apply.Delete(ctx, r.Client, live)
	case !wanted:
		return ctrl.Result{}, nil
	}
	wrote, err := apply.Object(ctx, r.Client, nil, r.ip(req, address))
	if wrote {
		log.FromContext(ctx).Info("offloaded pods reach the API server by an IP", "IP", req.NamespacedName)
	}
	if apply.NamespaceEnds(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// address is that of the Service of the API server; empty: it has none.
func (r *Reconciler) address(ctx context.Context) (ipamv1alpha1.Address, error) {
	s := new(corev1.Service)
	if err := r.Reader.Get(ctx, service, s); err != nil {
		return "", fmt.Errorf("get the Service of the API server: %w", err)
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		return "", nil
	}
	return ipamv1alpha1.Address(s.Spec.ClusterIP), nil
}

// ip is the IP as Liqo has it. It is masqueraded, as the API server cannot answer to an address in another cluster by the
// way the question came: a Service forgets that on another node.
func (r *Reconciler) ip(req ctrl.Request, address ipamv1alpha1.Address) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name, Labels: map[string]string{
			networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, ipamv1alpha1.LabelIPType: ipamv1alpha1.IPTypeAPIServer,
		}},
		Spec: ipamv1alpha1.IPSpec{IP: address, Masquerade: new(true)},
	}
}
