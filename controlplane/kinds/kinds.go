// Package kinds defines what the controllers cache of a cluster: the kinds they
// know, and which parts of each object they keep in memory. In a cluster of
// 100 000 pods this makes the difference between a small program and a large one.
package kinds

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// Lease is the name of the Lease that the leader of the controllers holds.
const Lease = "liqo-controller"

// Scheme knows the kinds of Kubernetes, of CRDs and of this project.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, networkingv1beta1.AddToScheme, ipamv1alpha1.AddToScheme,
		authv1beta1.AddToScheme, corev1beta1.AddToScheme, offloadingv1beta1.AddToScheme, mcsv1beta1.Install,
	} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("kinds registered twice: %v", err))
		}
	}
	return s
}

// Fields calls f with the path and the type of every field of a schema.
func Fields(s *apiextensionsv1.JSONSchemaProps, at string, f func(path, typ string)) {
	if s == nil {
		return
	}
	for name := range s.Properties {
		p := s.Properties[name]
		path := strings.TrimPrefix(at+"."+name, ".")
		f(path, p.Type)
		Fields(&p, path, f)
	}
	if s.Items != nil {
		Fields(s.Items.Schema, at, f)
	}
	if s.AdditionalProperties != nil {
		Fields(s.AdditionalProperties.Schema, at, f)
	}
}

// Cache limits the kinds that others use too. Of those that the controllers
// make, only objects with the label liqo.io/managed are seen, so everything that
// they make must carry it. Of Secrets, those labelled as keys of gateways: read
// others past the cache. Of CRDs, those of gateway templates.
func Cache() cache.Options {
	managed := cache.ByObject{Label: selector(networkingv1beta1.LabelManaged)}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:    {Transform: Pod},
			&corev1.Node{}:   {Transform: Node},
			&corev1.Secret{}: {Label: selector(networkingv1beta1.LabelGatewayResource)},
			&apiextensionsv1.CustomResourceDefinition{}: {Label: selector(networkingv1beta1.LabelGatewayTemplate)},
			&corev1.Service{}:               managed,
			&corev1.ResourceQuota{}:         managed,
			&corev1.ServiceAccount{}:        managed,
			&appsv1.Deployment{}:            managed,
			&rbacv1.Role{}:                  managed,
			&rbacv1.RoleBinding{}:           managed,
			&rbacv1.ClusterRoleBinding{}:    managed,
			&coordinationv1.Lease{}:         managed,
			&discoveryv1.EndpointSlice{}:    managed,
			&networkingv1.NetworkPolicy{}:   managed,
			&policyv1.PodDisruptionBudget{}: managed,
		},
	}
}

func selector(mark string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{mark: networkingv1beta1.LabelTrue})
}

// DaemonSet is the kind of owner whose pods run wherever there is a node.
const DaemonSet = "DaemonSet"

// Pod keeps of a Pod what the controllers read. The rest of what is cached of
// it is zero.
func Pod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // a tombstone
	}
	kept := &corev1.Pod{
		TypeMeta:   p.TypeMeta,
		ObjectMeta: strip(p.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
	}
	if c := metav1.GetControllerOf(p); c != nil && c.Kind == DaemonSet { // offloading does not drain it
		kept.OwnerReferences = []metav1.OwnerReference{{Kind: DaemonSet, Controller: c.Controller}}
	}
	if p.Spec.NodeName == "" {
		kept.Spec.RuntimeClassName = p.Spec.RuntimeClassName
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil || v.Ephemeral != nil { // offloading has to know that there is one
				kept.Spec.Volumes = []corev1.Volume{{Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: new(corev1.PersistentVolumeClaimVolumeSource)}}}
				break
			}
		}
		if of, ok := p.Spec.NodeSelector[networkingv1beta1.LabelNodeType]; ok {
			kept.Spec.NodeSelector = map[string]string{networkingv1beta1.LabelNodeType: of}
		}
		for _, t := range p.Spec.Tolerations {
			if t.Key == "" || t.Key == offloadingv1beta1.TaintNotAllowed {
				kept.Spec.Tolerations = append(kept.Spec.Tolerations, t)
			}
		}
	}
	if p.Labels[networkingv1beta1.LabelComponent] != networkingv1beta1.ComponentGateway {
		kept.Labels = nil
		return kept, nil
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{c}
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: c.State})
	}
	return kept, nil
}

// Node keeps of a Node its labels, addresses and whether it is ready.
func Node(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	kept := &corev1.Node{TypeMeta: n.TypeMeta, ObjectMeta: strip(n.ObjectMeta), Status: corev1.NodeStatus{Addresses: n.Status.Addresses}}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			// Without the heartbeat, so that a node that is well never changes.
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept, nil
}

func strip(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: m.Labels,
	}
}
