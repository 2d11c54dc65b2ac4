// Package offloading runs the controllers by which pods of one cluster run in another.
//
//	provider: remotenamespaces, quota, shadowpod,              what other clusters have here
//	          shadowendpointslice
//	consumer: namespacemap, namespaceoffloading, scheduling    which namespaces, and which of their pods
//	          virtualnode, servingcert                         the nodes that stand for other clusters
//	          apiserver                                        how their pods reach their API server
package offloading

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/fairqueue"
	"github.com/sluice-net/sluice/controlplane/finalizers"
	"github.com/sluice-net/sluice/controlplane/offloading/apiserver"
	"github.com/sluice-net/sluice/controlplane/offloading/namespacemap"
	"github.com/sluice-net/sluice/controlplane/offloading/namespaceoffloading"
	"github.com/sluice-net/sluice/controlplane/offloading/placement"
	"github.com/sluice-net/sluice/controlplane/offloading/quota"
	"github.com/sluice-net/sluice/controlplane/offloading/remotenamespaces"
	"github.com/sluice-net/sluice/controlplane/offloading/scheduling"
	"github.com/sluice-net/sluice/controlplane/offloading/servingcert"
	"github.com/sluice-net/sluice/controlplane/offloading/shadowendpointslice"
	"github.com/sluice-net/sluice/controlplane/offloading/shadowpod"
	"github.com/sluice-net/sluice/controlplane/offloading/virtualnode"
)

// Options say how the controllers work.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// PodSecurity is the level of the namespaces of other clusters: restricted, baseline or privileged.
	PodSecurity string
	// MaxNamespaces is how many namespaces another cluster may have here.
	MaxNamespaces int
	// NamespaceQuota says how many objects of a kind may be in each of them, as spec.hard of a ResourceQuota does.
	NamespaceQuota corev1.ResourceList
	// NoAPIServerAccess keeps pods that run in other clusters from the API server of this one.
	NoAPIServerAccess bool
	// LimitsEnforcement is that of the Quotas of other clusters.
	LimitsEnforcement offloadingv1beta1.LimitsEnforcement
}

// What finalizers of Liqo's are removed from:
//
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps;namespaceoffloadings;virtualnodes,verbs=get;list;watch;patch

// SetupWithManager adds the controllers to mgr. peerings sees the Secrets of peerings.
func SetupWithManager(mgr ctrl.Manager, peerings cache.Cache, o Options) error {
	id := remember(identify.Cluster{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), LiqoNamespace: o.LiqoNamespace}.ID)
	made, err := namespaceCache(mgr)
	if err != nil {
		return err
	}
	whose, err := consumerOf(made)
	if err != nil {
		return err
	}
	queues := fairqueue.By(whose)
	for _, c := range []struct {
		name string
		err  error
	}{
		{"remotenamespaces", remotenamespaces.SetupWithManager(mgr, made, remotenamespaces.Options{
			LiqoNamespace: o.LiqoNamespace, PodSecurity: o.PodSecurity, MaxNamespaces: o.MaxNamespaces, Quota: o.NamespaceQuota,
		})},
		{"shadowpod", shadowpod.SetupWithManager(mgr, made, queues)},
		{"shadowendpointslice", shadowendpointslice.SetupWithManager(mgr, made, queues, o.LiqoNamespace)},
		{"quota", quota.SetupWithManager(mgr, o.LimitsEnforcement)},
		{"namespacemap", namespacemap.SetupWithManager(mgr, id, o.LiqoNamespace)},
		{"namespaceoffloading", namespaceoffloading.SetupWithManager(mgr, id, o.LiqoNamespace)},
		{"virtualnode", virtualnode.SetupWithManager(mgr, peerings, virtualnode.Options{LiqoNamespace: o.LiqoNamespace, ID: id})},
		{"apiserver", apiserver.SetupWithManager(mgr, o.LiqoNamespace, !o.NoAPIServerAccess)},
		{"scheduling", scheduling.SetupWithManager(mgr, o.LiqoNamespace)},
		{"servingcert", servingcert.SetupWithManager(mgr)},
		{"finalizers", finalizers.SetupWithManager(mgr,
			finalizers.Of{Kind: new(offloadingv1beta1.NamespaceMap), Finalizers: []string{offloadingv1beta1.FinalizerNamespaceMap, authv1beta1.FinalizerReplicated}},
			finalizers.Of{Kind: new(offloadingv1beta1.NamespaceOffloading), Finalizers: []string{offloadingv1beta1.FinalizerNamespaceOffloading}},
			finalizers.Of{Kind: new(offloadingv1beta1.VirtualNode), Finalizers: []string{offloadingv1beta1.FinalizerVirtualNode}},
		)},
	} {
		if c.err != nil {
			return fmt.Errorf("set up %s: %w", c.name, c.err)
		}
	}
	return nil
}

// remember asks until there is an answer, which never changes.
func remember(ask func(context.Context) (string, error)) func(context.Context) (string, error) {
	var mu sync.Mutex
	answer := ""
	return func(ctx context.Context) (_ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if answer == "" {
			answer, err = ask(ctx)
		}
		return answer, err
	}
}

// namespaceCache adds to mgr a cache of the namespaces that controllers have made.
func namespaceCache(mgr ctrl.Manager) (cache.Cache, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Namespace{}: {Label: labels.SelectorFromSet(labels.Set{networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue})},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("new cache of namespaces: %w", err)
	}
	return c, mgr.Add(c)
}

// consumerOf tells for whom the namespace of an object was made: a consumer may have many. It is the namespace itself that it
// tells if none was, and until namespaces knows all, as it must not wait.
func consumerOf(namespaces cache.Cache) (func(ctrl.Request) string, error) {
	all, err := namespaces.GetInformer(context.Background(), new(corev1.Namespace), cache.BlockUntilSynced(false))
	return func(r ctrl.Request) string {
		n := new(corev1.Namespace)
		if all.HasSynced() && namespaces.Get(context.Background(), client.ObjectKey{Name: r.Namespace}, n, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}) == nil {
			if c, ok := placement.ConsumerOf(n); ok {
				return c.ID
			}
		}
		return r.Namespace
	}, err
}
