package exporter

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

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
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceimports,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services;namespaces;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch

// Reconcile looks at one Service, whose name is that of the request, and at the ServiceExport of that name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, exported, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	p := Build(f)
	if err := r.applyIPs(ctx, f.PassOn.IPs, p.IPs); err != nil {
		return ctrl.Result{}, err
	}
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
	var ips ipamv1alpha1.IPList
	if err := r.List(ctx, &ips, client.InNamespace(name.Namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: name.Name}, client.HasLabels{networkingv1beta1.LabelPassedOnFrom}); err != nil {
		return f, nil, fmt.Errorf("list IPs: %w", err)
	}
	f.PassOn.IPs = ips.Items
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
		var made discoveryv1.EndpointSliceList
		if err := r.Users.List(ctx, &made, client.UnsafeDisableDeepCopy, client.InNamespace(name.Namespace), client.MatchingFields{description.ByService: name.Name}); err != nil {
			return f, nil, fmt.Errorf("list EndpointSlices: %w", err)
		}
		f.Slices = made.Items
	}
	var labels map[string]string
	if f.Service != nil {
		labels = f.Service.Labels
	}
	if f.Peers, err = r.peers(ctx, name, labels); err != nil {
		return f, nil, err
	}
	if err := r.passOn(ctx, name, &f); err != nil {
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

// applyIPs makes those that are wanted of those that are there.
func (r *Reconciler) applyIPs(ctx context.Context, there []ipamv1alpha1.IP, wanted []*ipamv1alpha1.IP) error {
	kept := map[string]bool{}
	for _, ip := range wanted {
		kept[ip.Name] = true
		if _, err := apply.Object(ctx, r.Client, nil, ip); err != nil && !apply.NamespaceEnds(err) {
			return err
		}
	}
	for i := range there {
		if ip := &there[i]; !kept[ip.Name] && ip.DeletionTimestamp.IsZero() {
			if err := apply.Delete(ctx, r.Client, ip); err != nil {
				return err
			}
		}
	}
	return nil
}

// passOn reads what of other clusters may be passed on. In most clusters that is nothing, which takes one look.
func (r *Reconciler) passOn(ctx context.Context, name types.NamespacedName, f *Facts) error {
	may := map[string]bool{} // by peer
	some := false
	for _, p := range f.Peers {
		may[p.ID] = p.PassOn
		some = some || p.PassOn
	}
	if !some && f.Service != nil {
		return nil
	}
	imported := new(mcsv1beta1.ServiceImport)
	if err := r.Get(ctx, name, imported); err != nil || imported.Labels[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue || !imported.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err)
	}
	f.PassOn.Import = imported
	var all discoveryv1.EndpointSliceList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy, client.InNamespace(name.Namespace), client.MatchingLabels{
		mcsv1beta1.LabelServiceName: name.Name, discoveryv1.LabelServiceName: imported.Annotations[description.AnnotationDerived],
	}); err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	for i := range all.Items {
		s := &all.Items[i]
		source := sourceOf(s)
		allowed, peer := may[source]
		switch {
		case !peer || s.Labels[networkingv1beta1.LabelPassedOnFrom] != "": // of this cluster, or passed on to it
		case allowed:
			f.PassOn.Slices = append(f.PassOn.Slices, *s)
		case !slices.Contains(f.PassOn.Withheld, source):
			f.PassOn.Withheld = append(f.PassOn.Withheld, source)
		}
	}
	f.PassOn.Others = map[string]int{}
	for _, cluster := range f.PassOn.clusters() {
		var ips ipamv1alpha1.IPList
		if err := r.List(ctx, &ips, client.UnsafeDisableDeepCopy, client.MatchingLabels{networkingv1beta1.LabelPassedOnFrom: cluster}); err != nil {
			return fmt.Errorf("list IPs: %w", err)
		}
		for i := range ips.Items {
			if ip := &ips.Items[i]; ip.Namespace != name.Namespace || ip.Labels[mcsv1beta1.LabelServiceName] != name.Name {
				f.PassOn.Others[cluster]++
			}
		}
	}
	return nil
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
