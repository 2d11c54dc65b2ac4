package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/peeraddress"
	"github.com/sluice-net/sluice/controlplane/reserved"
	"github.com/sluice-net/sluice/controlplane/services/description"
)

// Reconciler keeps the ExportedServices of one Service.
type Reconciler struct {
	client.Client
	// Users sees Services, EndpointSlices and Namespaces, but not those that the controllers make.
	Users         client.Reader
	LiqoNamespace string
	// Reader reads past every cache.
	Reader client.Reader
	Clock  clock.PassiveClock
}

// retry is when what was in the way is looked at again: nobody tells when it goes.
const retry = time.Minute

// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports,verbs=get;list;watch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports/status,verbs=patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=exportedservices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=importedservices,verbs=get;list;watch
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceimports,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services;namespaces;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch

// Reconcile looks at one Service, whose name is that of the request, and at the ServiceExport of that name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, exported, again, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gather: %w", err)
	}
	p := Build(f)
	if p.makes(f.PassOn.IPs) {
		// The cache may not yet know those that were made last. For all other changes, of which a peer may tell without end, it
		// will do.
		if err := r.count(ctx, r.Reader, req.NamespacedName, &f.PassOn); err != nil {
			return ctrl.Result{}, err
		}
		p = Build(f)
	}
	refused, err := r.applyIPs(ctx, p.IPs)
	if err != nil {
		return ctrl.Result{}, err
	}
	p.add(refused)
	untold, failed := r.applyExported(ctx, p.Exported)
	p.fail(untold)
	wanted := map[string]bool{}
	for _, e := range p.Exported {
		wanted[e.Namespace] = true
	}
	for i := range exported {
		if e := &exported[i]; !wanted[e.Namespace] && e.DeletionTimestamp.IsZero() {
			if err := apply.Delete(ctx, r.Client, e); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	if failed != nil {
		return ctrl.Result{}, failed
	}
	// Only when no peer is told of an address any more may it be granted for something else.
	if len(untold) == 0 {
		if err := r.deleteIPs(ctx, &f.PassOn, p.IPs); err != nil {
			return ctrl.Result{}, err
		}
	}
	if f.Export == nil {
		return ctrl.Result{}, nil
	}
	if again == 0 && (p.Full || len(refused)+len(untold) > 0) {
		again = retry
	}
	live := f.Export.DeepCopy()
	_, err = apply.Status(ctx, r.Client, live, func() {
		for _, c := range p.Conditions {
			c.ObservedGeneration = live.Generation
			meta.SetStatusCondition(&live.Status.Conditions, c)
		}
	})
	return ctrl.Result{RequeueAfter: again}, client.IgnoreNotFound(err)
}

// gather reads what the export of a Service depends on, and the ExportedServices that there are of it. Again is
// when to look once more although nothing changed.
func (r *Reconciler) gather(ctx context.Context, name types.NamespacedName) (f Facts, exported []networkingv1beta1.ExportedService, again time.Duration, err error) {
	var all networkingv1beta1.ExportedServiceList
	object := name.Namespace + "." + name.Name
	if err := r.List(ctx, &all, client.MatchingFields{byName: object}); err != nil {
		return f, nil, 0, fmt.Errorf("list ExportedServices: %w", err)
	}
	if err := r.imported(ctx, name, &f.PassOn); err != nil {
		return f, nil, 0, err
	}
	export := new(mcsv1beta1.ServiceExport)
	if err := r.Get(ctx, name, export); client.IgnoreNotFound(err) != nil {
		return f, nil, 0, fmt.Errorf("get the ServiceExport: %w", err)
	} else if err != nil || !export.DeletionTimestamp.IsZero() {
		return f, all.Items, 0, nil
	}
	f.Export = export
	namespace := new(corev1.Namespace)
	if err := r.Users.Get(ctx, client.ObjectKey{Name: name.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return f, nil, 0, fmt.Errorf("get the Namespace: %w", err)
	}
	f.Reserved = description.Reserved(name.Namespace, name.Name, r.LiqoNamespace, namespace.Labels)
	service := new(corev1.Service)
	switch err := r.Users.Get(ctx, name, service); {
	case client.IgnoreNotFound(err) != nil:
		return f, nil, 0, fmt.Errorf("get the Service: %w", err)
	case err == nil && service.DeletionTimestamp.IsZero():
		f.Service = service
		var made discoveryv1.EndpointSliceList
		if err := r.Users.List(ctx, &made, client.UnsafeDisableDeepCopy, client.InNamespace(name.Namespace), client.MatchingFields{description.ByService: name.Name}); err != nil {
			return f, nil, 0, fmt.Errorf("list EndpointSlices: %w", err)
		}
		f.Slices = made.Items
	}
	var labels map[string]string
	if f.Service != nil {
		labels = f.Service.Labels
	}
	if f.Peers, err = r.peers(ctx, name, labels); err != nil {
		return f, nil, 0, err
	}
	if again, err = r.passOn(ctx, name, &f); err != nil {
		return f, nil, 0, err
	}
	var networks ipamv1alpha1.NetworkList
	if err := r.List(ctx, &networks, client.UnsafeDisableDeepCopy, client.InNamespace(r.LiqoNamespace),
		client.MatchingLabels{ipamv1alpha1.LabelNetworkType: ipamv1alpha1.NetworkTypePodCIDR}); err != nil {
		return f, nil, 0, fmt.Errorf("list Networks: %w", err)
	}
	for i := range networks.Items {
		if p, err := netip.ParsePrefix(string(networks.Items[i].Spec.CIDR)); err == nil {
			f.PodCIDRs = append(f.PodCIDRs, p.Masked())
		}
	}
	f.Taken, err = reserved.Addresses(ctx, r.Client, r.Users)
	return f, all.Items, again, err
}

// imported reads the ServiceImport of a name, and the IPs that were made for it.
func (r *Reconciler) imported(ctx context.Context, name types.NamespacedName, o *PassOn) error {
	live := new(mcsv1beta1.ServiceImport)
	if err := r.Get(ctx, name, live); err != nil || live.Labels[networkingv1beta1.LabelManaged] != networkingv1beta1.LabelTrue || !live.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err) // the IPs of one that is gone go with it
	}
	o.Import = live
	var ips ipamv1alpha1.IPList
	if err := r.List(ctx, &ips, client.InNamespace(name.Namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: name.Name}, client.HasLabels{networkingv1beta1.LabelPassedOnFrom}); err != nil {
		return fmt.Errorf("list IPs: %w", err)
	}
	for i := range ips.Items {
		if metav1.IsControlledBy(&ips.Items[i], live) { // anybody can write labels
			o.IPs = append(o.IPs, ips.Items[i])
		}
	}
	return nil
}

// applyIPs makes those that are wanted. Refused says of the first of them that an API server does not take why: the others
// are of use without them.
func (r *Reconciler) applyIPs(ctx context.Context, wanted []*ipamv1alpha1.IP) (refused []string, err error) {
	for _, ip := range wanted {
		_, err := apply.Object(ctx, r.Client, nil, ip)
		if why, is := apply.Refusal(err); is {
			if len(refused) < maxLeft {
				refused = append(refused, fmt.Sprintf("%s is not passed on: %s", ip.Spec.IP, why))
			}
		} else if err != nil && !apply.NamespaceEnds(err) {
			return refused, err
		}
	}
	return refused, nil
}

// applyExported tells each peer, whatever becomes of the others. Refused says of the first whose namespace does not take it
// why.
func (r *Reconciler) applyExported(ctx context.Context, exported []*networkingv1beta1.ExportedService) (refused []string, err error) {
	var failed []error
	for _, e := range exported {
		_, err := apply.Object(ctx, r.Client, nil, e)
		if why, is := apply.Refusal(err); is {
			if len(refused) < maxLeft {
				refused = append(refused, fmt.Sprintf("Cluster %s is not told: %s", e.Labels[networkingv1beta1.LabelRemoteClusterID], why))
			}
		} else if err != nil && !apply.NamespaceEnds(err) {
			failed = append(failed, err)
		}
	}
	return refused, errors.Join(failed...)
}

// deleteIPs deletes those that are not wanted any more.
func (r *Reconciler) deleteIPs(ctx context.Context, o *PassOn, wanted []*ipamv1alpha1.IP) error {
	for i := range o.IPs {
		ip := &o.IPs[i]
		if !ip.DeletionTimestamp.IsZero() || slices.ContainsFunc(wanted, func(w *ipamv1alpha1.IP) bool { return w.Name == ip.Name }) {
			continue
		}
		if err := apply.DeleteOurs(ctx, r.Client, ip, o.owner()); err != nil {
			return err
		}
	}
	return nil
}

// passOn reads what of other clusters may be passed on. In most clusters that is nothing, which takes one look. Again is when
// to look once more.
func (r *Reconciler) passOn(ctx context.Context, name types.NamespacedName, f *Facts) (again time.Duration, err error) {
	some := slices.ContainsFunc(f.Peers, func(p Peer) bool { return p.PassOn })
	if f.PassOn.Import == nil || !some && f.Service != nil {
		return 0, nil
	}
	for _, peer := range f.Peers {
		said := new(networkingv1beta1.ImportedService)
		if err := r.Get(ctx, client.ObjectKey{Namespace: peer.Namespace, Name: name.Namespace + "." + name.Name}, said); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("get the ImportedService: %w", err)
		} else if err != nil || !takes(said, peer.ID) {
			continue
		}
		if !peer.PassOn {
			f.PassOn.Withheld = append(f.PassOn.Withheld, peer.ID)
			continue
		}
		judge, _, err := peeraddress.Gather(ctx, r.Client, r.Users, r.LiqoNamespace, peer.Namespace, peer.ID)
		if err != nil {
			return 0, err
		}
		judge.Addresses = judge.Addresses.Pods()
		foreign := new(corev1beta1.ForeignCluster)
		if err := r.Get(ctx, client.ObjectKey{Name: peer.ID}, foreign); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("get the ForeignCluster: %w", err)
		} else if err != nil {
			foreign = nil
		}
		away, next := description.Away(foreign, r.Clock.Now())
		if next > 0 && (again == 0 || next < again) {
			again = next
		}
		f.PassOn.Sources = append(f.PassOn.Sources, Source{Cluster: peer.ID, Slices: said.Spec.Slices, Address: judge.Here, Away: away != ""})
	}
	return again, r.count(ctx, r.Client, name, &f.PassOn)
}

// count counts the IPs for other Services of the clusters of which this one is passed on.
func (r *Reconciler) count(ctx context.Context, from client.Reader, name types.NamespacedName, o *PassOn) error {
	o.Others = map[string]int{}
	for _, cluster := range o.clusters() {
		var ips ipamv1alpha1.IPList
		if err := from.List(ctx, &ips, client.UnsafeDisableDeepCopy, client.MatchingLabels{networkingv1beta1.LabelPassedOnFrom: cluster}); err != nil {
			return fmt.Errorf("list IPs: %w", err)
		}
		for i := range ips.Items {
			if ip := &ips.Items[i]; ip.Namespace != name.Namespace || ip.Labels[mcsv1beta1.LabelServiceName] != name.Name {
				o.Others[cluster]++
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
