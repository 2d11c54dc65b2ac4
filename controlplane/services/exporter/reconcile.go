package exporter

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/reserved"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// Reconciler keeps the ExportedServices of one Service.
type Reconciler struct {
	client.Client
	// Users sees Services, EndpointSlices and Namespaces, but not those that the controllers make.
	Users         client.Reader
	LiqoNamespace string
}

// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports,verbs=get;list;watch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports/status,verbs=patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=exportedservices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services;namespaces;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch

// Reconcile looks at one Service, whose name is that of the request, and at the ServiceExport of that name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, exported, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	p := Build(f)
	wanted := map[string]bool{}
	for _, e := range p.Exported {
		wanted[e.Namespace] = true
		if _, err := apply.Object(ctx, r.Client, nil, e); err != nil && !apply.NamespaceEnds(err) {
			return ctrl.Result{}, err
		}
	}
	for i := range exported {
		if e := &exported[i]; !wanted[e.Namespace] && e.DeletionTimestamp.IsZero() {
			if err := apply.Delete(ctx, r.Client, e); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	if f.Export == nil {
		return ctrl.Result{}, nil
	}
	live := f.Export.DeepCopy()
	_, err = apply.Status(ctx, r.Client, live, func() {
		for _, c := range p.Conditions {
			c.ObservedGeneration = live.Generation
			meta.SetStatusCondition(&live.Status.Conditions, c)
		}
	})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// gather reads what the export of a Service depends on, and the ExportedServices that there are of it.
func (r *Reconciler) gather(ctx context.Context, name types.NamespacedName) (f Facts, exported []networkingv1beta1.ExportedService, err error) {
	var all networkingv1beta1.ExportedServiceList
	object := name.Namespace + "." + name.Name
	if err := r.List(ctx, &all, client.MatchingFields{byName: object}); err != nil {
		return f, nil, fmt.Errorf("list ExportedServices: %w", err)
	}
	export := new(mcsv1beta1.ServiceExport)
	if err := r.Get(ctx, name, export); client.IgnoreNotFound(err) != nil {
		return f, nil, fmt.Errorf("get the ServiceExport: %w", err)
	} else if err != nil || !export.DeletionTimestamp.IsZero() {
		return f, all.Items, nil
	}
	f.Export = export
	namespace := new(corev1.Namespace)
	if err := r.Users.Get(ctx, client.ObjectKey{Name: name.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return f, nil, fmt.Errorf("get the Namespace: %w", err)
	}
	f.Reserved = description.Reserved(name.Namespace, name.Name, r.LiqoNamespace, namespace.Labels)
	service := new(corev1.Service)
	switch err := r.Users.Get(ctx, name, service); {
	case client.IgnoreNotFound(err) != nil:
		return f, nil, fmt.Errorf("get the Service: %w", err)
	case err == nil && service.DeletionTimestamp.IsZero():
		f.Service = service
		var slices discoveryv1.EndpointSliceList
		if err := r.Users.List(ctx, &slices, client.UnsafeDisableDeepCopy, client.InNamespace(name.Namespace), client.MatchingFields{description.ByService: name.Name}); err != nil {
			return f, nil, fmt.Errorf("list EndpointSlices: %w", err)
		}
		f.Slices = slices.Items
	}
	var labels map[string]string
	if f.Service != nil {
		labels = f.Service.Labels
	}
	if f.Peers, err = r.peers(ctx, name, labels); err != nil {
		return f, nil, err
	}
	var networks ipamv1alpha1.NetworkList
	if err := r.List(ctx, &networks, client.UnsafeDisableDeepCopy, client.InNamespace(r.LiqoNamespace),
		client.MatchingLabels{ipamv1alpha1.LabelNetworkType: ipamv1alpha1.NetworkTypePodCIDR}); err != nil {
		return f, nil, fmt.Errorf("list Networks: %w", err)
	}
	for i := range networks.Items {
		if p, err := netip.ParsePrefix(string(networks.Items[i].Spec.CIDR)); err == nil {
			f.PodCIDRs = append(f.PodCIDRs, p.Masked())
		}
	}
	f.Taken, err = reserved.Addresses(ctx, r.Client, r.Users)
	return f, all.Items, err
}

// peers are the peerings for a Service with these labels, and how much each is told of beside it.
func (r *Reconciler) peers(ctx context.Context, of types.NamespacedName, labels map[string]string) ([]Peer, error) {
	var configurations networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &configurations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Configurations: %w", err)
	}
	peers := peersOf(configurations.Items, of, labels)
	for i := range peers {
		var others networkingv1beta1.ExportedServiceList
		if err := r.List(ctx, &others, client.UnsafeDisableDeepCopy, client.InNamespace(peers[i].Namespace)); err != nil {
			return nil, fmt.Errorf("list ExportedServices: %w", err)
		}
		for j := range others.Items {
			if o := &others.Items[j]; o.Name != of.Namespace+"."+of.Name {
				peers[i].Services++
				peers[i].Endpoints += o.Spec.Endpoints()
			}
		}
	}
	return peers, nil
}
