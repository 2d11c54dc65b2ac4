// Package virtualnode turns granted ResourceSlices into VirtualNodes, keeps one process for each provider, which makes Nodes
// of them, and removes what is left when they are gone.
package virtualnode

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/controllers"
	"github.com/sluice-net/sluice/controlplane/enqueue"
)

// Options say how processes are run.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// ID tells the ID of this cluster.
	ID func(context.Context) (string, error)
}

// SetupWithManager adds the reconcilers to mgr. peerings sees the Secrets of peerings.
func SetupWithManager(mgr ctrl.Manager, peerings cache.Cache, o Options) error {
	s := &slicer{Client: mgr.GetClient(), Secrets: peerings, Recorder: mgr.GetEventRecorder("liqo-controller")}
	p := &processes{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), id: o.ID, liqoNamespace: o.LiqoNamespace, now: metav1.Now}
	d := &drainer{Client: mgr.GetClient(), now: time.Now, liqoNamespace: o.LiqoNamespace}
	return errors.Join(s.setup(mgr, peerings), p.setup(mgr), d.setup(mgr))
}

func (r *slicer) setup(mgr ctrl.Manager, peerings cache.Cache) error {
	return controllers.New(mgr, "virtualnode-slice", controllers.Options{}).
		For(new(authv1beta1.ResourceSlice)).
		Owns(new(offloadingv1beta1.VirtualNode), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind(peerings, new(corev1.Secret), handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *corev1.Secret) []ctrl.Request {
			name := o.Labels[authv1beta1.LabelResourceSliceName]
			if name == "" {
				return nil
			}
			return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.Namespace, Name: name}}}
		}))).
		Complete(apply.RequeueOnConflict(r))
}

func (r *processes) setup(mgr ctrl.Manager) error {
	made := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[offloadingv1beta1.LabelComponent] == offloadingv1beta1.ComponentVirtualKubelet
	}))
	labelled := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[networkingv1beta1.LabelRemoteClusterID]}}}
	})
	return controllers.New(mgr, "virtualnode-process", controllers.Options{}).
		Watches(new(offloadingv1beta1.VirtualNode), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			v, ok := o.(*offloadingv1beta1.VirtualNode)
			if !ok || v.Spec.ClusterID == "" {
				return nil
			}
			return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: v.Namespace, Name: string(v.Spec.ClusterID)}}}
		})).
		// The process goes with the last of them.
		Watches(new(corev1.Node), handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(predicate.NewPredicateFuncs(isVirtual), comesOrGoes())).
		Watches(new(appsv1.Deployment), labelled, made).
		Watches(new(corev1.ServiceAccount), labelled, made).
		// It names the image.
		Watches(new(offloadingv1beta1.VkOptionsTemplate), handler.EnqueueRequestsFromMapFunc(r.all)).
		Watches(new(rbacv1.Role), labelled, made).
		// What a tenant namespace leaves behind, and rights in offloaded namespaces.
		Watches(new(rbacv1.ClusterRoleBinding), handler.EnqueueRequestsFromMapFunc(ofBinding), made).
		Watches(new(rbacv1.RoleBinding), handler.EnqueueRequestsFromMapFunc(ofBinding), made).
		// It changes whenever other namespaces are offloaded.
		Watches(new(offloadingv1beta1.NamespaceMap), &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(new(corev1.Namespace), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			id := o.GetLabels()[networkingv1beta1.LabelRemoteClusterID]
			if id == "" {
				return nil
			}
			return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetName(), Name: id}}}
		})).
		Complete(apply.RequeueOnConflict(r))
}

// ofBinding are the requests for the process that a binding is for.
func ofBinding(_ context.Context, o client.Object) []ctrl.Request {
	var subjects []rbacv1.Subject
	switch b := o.(type) {
	case *rbacv1.ClusterRoleBinding:
		subjects = b.Subjects
	case *rbacv1.RoleBinding:
		subjects = b.Subjects
	}
	if len(subjects) != 1 {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: subjects[0].Namespace, Name: o.GetLabels()[networkingv1beta1.LabelRemoteClusterID]}}}
}

// all are the requests for every provider.
func (r *processes) all(ctx context.Context, _ client.Object) (requests []ctrl.Request) {
	var virtual offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &virtual, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list VirtualNodes")
	}
	for i := range virtual.Items {
		v := &virtual.Items[i]
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: v.Namespace, Name: string(v.Spec.ClusterID)}})
	}
	return requests
}

// ofNode are the requests for the processes that may keep a Node.
func (r *processes) ofNode(ctx context.Context, n client.Object) []ctrl.Request {
	id := n.GetLabels()[networkingv1beta1.LabelRemoteClusterID]
	return enqueue.Each(ctx, r, new(appsv1.DeploymentList), func(d client.Object) client.ObjectKey {
		return client.ObjectKey{Namespace: d.GetNamespace(), Name: id}
	}, client.MatchingLabels{
		networkingv1beta1.LabelRemoteClusterID: id, offloadingv1beta1.LabelComponent: offloadingv1beta1.ComponentVirtualKubelet,
	})
}

func (r *drainer) setup(mgr ctrl.Manager) error {
	named := func(name string) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: name}}}
	}
	return controllers.New(mgr, "virtualnode-drain", controllers.Options{}).
		For(new(corev1.Node), builder.WithPredicates(predicate.NewPredicateFuncs(isVirtual), predicate.LabelChangedPredicate{})).
		Watches(new(offloadingv1beta1.VirtualNode), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request { return named(o.GetName()) }),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// The last pod.
		Watches(new(corev1.Pod), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" {
				return named(p.Spec.NodeName)
			}
			return nil
		}), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		// Without one nobody ends the pods.
		WatchesMetadata(new(corev1.Namespace), handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(comesOrGoes())).
		Complete(apply.RequeueOnConflict(r))
}

// ofNamespace are the requests for the Nodes of a tenant namespace.
func (r *drainer) ofNamespace(ctx context.Context, ns client.Object) []ctrl.Request {
	id := ns.GetLabels()[networkingv1beta1.LabelRemoteClusterID]
	if id == "" {
		return nil
	}
	return enqueue.Each(ctx, r, new(corev1.NodeList), client.ObjectKeyFromObject, ofPeer(id))
}

// isVirtual tells whether a Node stands for another cluster.
func isVirtual(n client.Object) bool {
	return n.GetLabels()[networkingv1beta1.LabelNodeType] == networkingv1beta1.NodeTypeVirtual
}

func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}
