package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/network/bootstrap"
)

// AwayError is why an API server could not be asked: it may be there later, by itself.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return e.Err.Error() }
func (e *AwayError) Unwrap() error { return e.Err }

// Preflight tells why the controllers could not work with this cluster: it is
// out of reach, which is an [AwayError], lacks the CRDs, denies a right, or the
// installation is incomplete. Its message says what to do.
func Preflight(ctx context.Context, cfg *rest.Config, o Options) error {
	err := preflight(ctx, cfg, o)
	if err != nil && (ctx.Err() != nil || isAway(err)) && !errors.As(err, new(*AwayError)) {
		return &AwayError{err}
	}
	return err
}

// isAway tells whether an error says that nobody answers, or nobody who can yet.
func isAway(err error) bool {
	var network *net.OpError
	var name *net.DNSError
	return errors.As(err, &network) || errors.As(err, &name) || errors.Is(err, io.EOF) || utilnet.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}

func preflight(ctx context.Context, cfg *rest.Config, o Options) error {
	if err := reach(ctx, cfg); err != nil {
		return err
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{HTTPClient: httpClient, Scheme: kinds.Scheme(), Mapper: mapper})
	if err != nil {
		return err
	}
	resources, err := served(c.Scheme(), mapper, o)
	if err != nil {
		return err
	}
	if err := allowed(ctx, c, o, resources); err != nil {
		return err
	}
	if err := namespaceExists(ctx, c, o.LiqoNamespace); err != nil {
		return err
	}
	o.Bootstrap.LiqoNamespace = o.LiqoNamespace
	if err := bootstrap.Check(ctx, c, o.Bootstrap); err != nil {
		return fmt.Errorf("the installation is incomplete:\n%w", err)
	}
	return nil
}

// reach asks the API server whether it is ready. One that has just started answers, but
// knows only some of the roles: it denies what it will allow, even this question.
func reach(ctx context.Context, cfg *rest.Config) error {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	switch _, err := d.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInternalError(err):
		return &AwayError{fmt.Errorf("the API server %s is not ready: %w\nIf it stays so, look at its /readyz?verbose and at the ClusterRoleBinding system:public-info-viewer, which allows this question", cfg.Host, err)}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server %s does not know who this is: %w\nCheck the token or certificate, in --kubeconfig or of the service account", cfg.Host, err)
	case ctx.Err() != nil:
		return fmt.Errorf("the API server %s does not answer\nCheck that its address is right and that no firewall or network policy is in the way", cfg.Host)
	default:
		return fmt.Errorf("the API server %s cannot be reached: %w\nCheck that its address, in --kubeconfig or of this cluster, is right and that it runs", cfg.Host, err)
	}
}

// served returns the resources that the controllers watch. It fails if the
// cluster lacks one.
func served(scheme *runtime.Scheme, mapper meta.RESTMapper, o Options) ([]schema.GroupVersionResource, error) {
	var resources []schema.GroupVersionResource
	var missing []string
	for _, k := range watchedKinds(scheme, o) {
		switch m, err := mapper.RESTMapping(k.GroupKind(), k.Version); {
		case meta.IsNoMatchError(err):
			missing = append(missing, k.Kind+" ("+k.GroupVersion().String()+")")
		case err != nil:
			return nil, fmt.Errorf("ask the API server what it serves: %w", err)
		default:
			resources = append(resources, m.Resource)
		}
	}
	if len(missing) > 0 {
		more := ""
		if strings.Contains(strings.Join(missing, ""), mcsv1beta1.GroupName) {
			more = "; and for --services: kubectl create -f deploy/mcs"
		}
		return nil, fmt.Errorf("the cluster does not know %s\nInstall the CRDs of this version: kubectl apply --server-side --force-conflicts -f deploy/crds%s", strings.Join(missing, ", "), more)
	}
	return resources, nil
}

// watchedKinds returns those of our groups, and those of Kubernetes that are watched.
func watchedKinds(scheme *runtime.Scheme, o Options) []schema.GroupVersionKind {
	var ks []schema.GroupVersionKind
	groups := []schema.GroupVersion{networkingv1beta1.GroupVersion, ipamv1alpha1.GroupVersion}
	if !o.NoForeignClusters {
		groups = append(groups, corev1beta1.GroupVersion)
	}
	if o.Authentication != nil {
		groups = append(groups, authv1beta1.GroupVersion)
		if o.Authentication.Slices.Volumes {
			ks = append(ks, storagev1.SchemeGroupVersion.WithKind("StorageClass"))
		}
		if len(o.Authentication.Slices.IngressClasses) == 0 {
			ks = append(ks, networkingv1.SchemeGroupVersion.WithKind("IngressClass"))
		}
	}
	if o.Offloading != nil {
		groups = append(groups, offloadingv1beta1.GroupVersion)
	}
	if o.Services != nil {
		groups = append(groups, mcsv1beta1.SchemeGroupVersion)
		ks = append(ks, corev1.SchemeGroupVersion.WithKind("Namespace"))
	}
	for _, gv := range groups {
		for name, t := range scheme.KnownTypes(gv) {
			// The group holds lists, and options of requests, too.
			if t.PkgPath() == metaPackage || strings.HasSuffix(name, "List") || o.Services == nil && slices.Contains(kindsOfServices, name) {
				continue
			}
			ks = append(ks, gv.WithKind(name))
		}
	}
	for kind := range kinds.Cache().ByObject {
		if _, quota := kind.(*corev1.ResourceQuota); quota && o.Offloading == nil {
			continue // only namespaces of other clusters have them
		}
		if k, err := apiutil.GVKForObject(kind, scheme); err == nil {
			ks = append(ks, k)
		}
	}
	slices.SortFunc(ks, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return ks
}

// kindsOfServices are those of networking.liqo.io by which clusters tell each other of Services.
var kindsOfServices = []string{"ExportedService", "ImportedService"}

const metaPackage = "k8s.io/apimachinery/pkg/apis/meta/v1"

// allowed asks for the rights without which the controllers would wait for ever:
// to watch, to make the installation and to lead. It asks for all of them at once:
// one after the other they take a distant API server longer than a start may last.
func allowed(ctx context.Context, c client.Client, o Options, resources []schema.GroupVersionResource) error {
	wanted := rights(o, resources)
	denied, errs := make([]string, len(wanted)), make([]error, len(wanted))
	var asked sync.WaitGroup
	for i, a := range wanted {
		asked.Go(func() {
			review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
			if errs[i] = c.Create(ctx, &review); errs[i] == nil && !review.Status.Allowed {
				denied[i] = describe(a)
			}
		})
	}
	asked.Wait()
	for _, err := range errs {
		if apierrors.IsForbidden(err) {
			return nil // a cluster that does not let ask: the controllers' log will tell
		}
		if err != nil {
			return fmt.Errorf("ask for rights: %w", err)
		}
	}
	if denied = slices.DeleteFunc(denied, func(d string) bool { return d == "" }); len(denied) > 0 {
		return errors.New("the cluster denies these rights:\n  " + strings.Join(denied, "\n  ") +
			"\nInstall the roles of this version (kubectl apply -f deploy/manifests), or bind them to the user of --kubeconfig; check --liqo-namespace")
	}
	return nil
}

func rights(o Options, resources []schema.GroupVersionResource) []authorizationv1.ResourceAttributes {
	var rs []authorizationv1.ResourceAttributes
	for _, r := range resources {
		for _, verb := range []string{"list", "watch"} {
			rs = append(rs, authorizationv1.ResourceAttributes{Group: r.Group, Resource: r.Resource, Verb: verb})
		}
	}
	rs = append(rs,
		authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "create", Namespace: o.LiqoNamespace},
		authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "get", Namespace: o.LiqoNamespace, Name: bootstrap.ClusterIDConfigMap},
		authorizationv1.ResourceAttributes{Group: ipamv1alpha1.GroupVersion.Group, Resource: "networks", Verb: "create", Namespace: o.LiqoNamespace},
	)
	if o.LeaderElection == nil {
		return rs
	}
	lease := authorizationv1.ResourceAttributes{Group: coordinationv1.GroupName, Resource: "leases", Verb: "create", Namespace: o.LiqoNamespace}
	rs = append(rs, lease)
	lease.Name = kinds.Lease
	for _, verb := range []string{"get", "update"} {
		lease.Verb = verb
		rs = append(rs, lease)
	}
	return rs
}

// namespaceExists asks for the Liqo namespace. Who may not ask runs in it.
func namespaceExists(ctx context.Context, c client.Client, name string) error {
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, new(corev1.Namespace)); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no namespace %s\nCreate it (kubectl apply -f deploy/manifests), or set --liqo-namespace to the namespace of the installation", name)
	case err != nil && !apierrors.IsForbidden(err):
		return fmt.Errorf("get the Liqo namespace: %w", err)
	}
	return nil
}

func describe(a authorizationv1.ResourceAttributes) string {
	s := a.Verb + " " + schema.GroupResource{Group: a.Group, Resource: a.Resource}.String()
	if a.Namespace != "" {
		s += " in namespace " + a.Namespace
	}
	return s
}
