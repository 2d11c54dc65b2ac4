// Package services runs the controllers by which Services of one cluster are used in others, through the API of
// sigs.k8s.io/mcs-api:
//
//	exporter: ServiceExports    -> ExportedServices, of which the gateways tell the peers
//	importer: ImportedServices, -> ServiceImports, Services and EndpointSlices
//	          as the gateways
//	          heard of them
package services

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication/identify"
	"github.com/sluice-net/sluice/controlplane/services/description"
	"github.com/sluice-net/sluice/controlplane/services/exporter"
	"github.com/sluice-net/sluice/controlplane/services/importer"
)

// Options say how the controllers work.
type Options struct {
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// Alias gives imported Services their own name as well, unless a label of the namespace says otherwise.
	Alias bool
}

// What the gateways get with it (gatewaydeploy), because nobody may grant what he does not have:
//
// +kubebuilder:rbac:groups=networking.liqo.io,resources=importedservices,verbs=get;list;watch;create;patch;update;delete

// SetupWithManager adds the controllers to mgr.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	users, err := userCache(mgr)
	if err != nil {
		return err
	}
	// It never changes, so it is asked for until there is an answer.
	var id atomic.Pointer[string]
	cluster := identify.Cluster{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), LiqoNamespace: o.LiqoNamespace}
	ask := func(ctx context.Context) (string, error) {
		if known := id.Load(); known != nil {
			return *known, nil
		}
		got, err := cluster.ID(ctx)
		if err == nil {
			id.Store(&got)
		}
		return got, err
	}
	if err := importer.SetupWithManager(mgr, users, importer.Options{LiqoNamespace: o.LiqoNamespace, Alias: o.Alias, ID: ask}); err != nil {
		return fmt.Errorf("set up importer: %w", err)
	}
	if err := exporter.SetupWithManager(mgr, users, o.LiqoNamespace); err != nil {
		return fmt.Errorf("set up exporter: %w", err)
	}
	return nil
}

// userCache adds to mgr a cache of the Services and EndpointSlices that are not of this project's making, and of all
// Namespaces. It is as large as what kube-proxy holds on every node.
func userCache(mgr ctrl.Manager) (cache.Cache, error) {
	others, err := labels.NewRequirement(networkingv1beta1.LabelManaged, selection.NotEquals, []string{networkingv1beta1.LabelTrue})
	if err != nil {
		return nil, err
	}
	notOurs := labels.NewSelector().Add(*others)
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Namespace{}:          {Transform: trim},
			&corev1.Service{}:            {Label: notOurs, Transform: trim},
			&discoveryv1.EndpointSlice{}: {Label: notOurs, Transform: trim},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("new cache of users' Services: %w", err)
	}
	if err := c.IndexField(context.Background(), new(discoveryv1.EndpointSlice), description.ByService,
		func(o client.Object) []string { return []string{o.GetLabels()[discoveryv1.LabelServiceName]} }); err != nil {
		return nil, fmt.Errorf("index EndpointSlices: %w", err)
	}
	return c, mgr.Add(c)
}

// trim keeps what is read.
func trim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: strip(o.ObjectMeta)}, nil
	case *corev1.Service:
		return &corev1.Service{ObjectMeta: strip(o.ObjectMeta), Spec: corev1.ServiceSpec{
			Type: o.Spec.Type, Ports: o.Spec.Ports, ClusterIP: o.Spec.ClusterIP,
			SessionAffinity: o.Spec.SessionAffinity, SessionAffinityConfig: o.Spec.SessionAffinityConfig,
			InternalTrafficPolicy: o.Spec.InternalTrafficPolicy, TrafficDistribution: o.Spec.TrafficDistribution,
		}}, nil
	case *discoveryv1.EndpointSlice:
		kept := &discoveryv1.EndpointSlice{ObjectMeta: strip(o.ObjectMeta), AddressType: o.AddressType, Ports: o.Ports}
		for _, e := range o.Endpoints {
			kept.Endpoints = append(kept.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname, NodeName: e.NodeName})
		}
		return kept, nil
	}
	return o, nil // a tombstone
}

func strip(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: m.Labels,
	}
}
