package resourceslice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
)

// Class is a class of storage, of ingresses or of load balancers that consumers are told of.
type Class struct {
	// Name is its name in this cluster.
	Name string
	// Default marks the one that is used where none is named.
	Default bool
}

// maxClasses bounds how many classes of a kind consumers are told of: the status of every slice has them.
const maxClasses = 64

// virtualStorage is the provisioner of the class by which a cluster uses the storage of others, which is not its own to offer.
const virtualStorage = "liqo.io/storage"

// By these annotations Kubernetes knows a default class of storage, the second one in old manifests.
const (
	defaultStorage    = "storageclass.kubernetes.io/is-default-class"
	defaultStorageOld = "storageclass.beta.kubernetes.io/is-default-class"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingressclasses,verbs=list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=list;watch

// describe writes into status what goes with the resources that were granted: the labels of the virtual node, and the
// classes of this cluster. Without resources there is nothing.
func (r *provider) describe(ctx context.Context, status *authv1beta1.ResourceSliceStatus) error {
	status.NodeLabels, status.StorageClasses, status.IngressClasses, status.LoadBalancerClasses = nil, nil, nil, nil
	if len(status.Resources) == 0 {
		return nil
	}
	status.NodeLabels = maps.Clone(r.Options.NodeLabels)
	if r.Options.Volumes {
		var list storagev1.StorageClassList
		if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list StorageClasses: %w", err)
		}
		for _, c := range storageClasses(list.Items) {
			status.StorageClasses = append(status.StorageClasses, authv1beta1.StorageClass{StorageClassName: c.Name, Default: c.Default})
		}
	}
	ingresses := r.Options.IngressClasses
	if len(ingresses) == 0 {
		var list networkingv1.IngressClassList
		if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list IngressClasses: %w", err)
		}
		ingresses = ingressClasses(list.Items)
	}
	for _, c := range ingresses {
		status.IngressClasses = append(status.IngressClasses, authv1beta1.IngressClass{IngressClassName: c.Name, Default: c.Default})
	}
	for _, c := range r.Options.LoadBalancerClasses {
		status.LoadBalancerClasses = append(status.LoadBalancerClasses, authv1beta1.LoadBalancerClass{LoadBalancerClassName: c.Name, Default: c.Default})
	}
	return nil
}

func storageClasses(all []storagev1.StorageClass) []Class {
	var own []metav1.Object
	for i := range all {
		if all[i].Provisioner != virtualStorage {
			own = append(own, &all[i])
		}
	}
	return choose(own, defaultStorage, defaultStorageOld)
}

func ingressClasses(all []networkingv1.IngressClass) []Class {
	var own []metav1.Object
	for i := range all {
		own = append(own, &all[i])
	}
	return choose(own, networkingv1.AnnotationIsDefaultIngressClass)
}

// choose returns the classes in the order of their names, but for those that are being deleted. The default is the one
// that Kubernetes takes: of those that an annotation marks the newest, of these the first by name. Of more than maxClasses
// the last ones are left out, but never the default.
func choose(all []metav1.Object, marks ...string) (classes []Class) {
	all = slices.DeleteFunc(all, func(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil })
	slices.SortFunc(all, func(a, b metav1.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	newest := -1
	for i, o := range all {
		marked := slices.ContainsFunc(marks, func(m string) bool { return o.GetAnnotations()[m] == "true" })
		if marked && (newest < 0 || o.GetCreationTimestamp().After(all[newest].GetCreationTimestamp().Time)) {
			newest = i
		}
	}
	for i, o := range all {
		if i == newest || len(classes) < maxClasses && (newest < i || len(classes) < maxClasses-1) {
			classes = append(classes, Class{Name: o.GetName(), Default: i == newest})
		}
	}
	return classes
}
