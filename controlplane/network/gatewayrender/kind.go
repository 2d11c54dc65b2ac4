package gatewayrender

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// kind is what tells GatewayServer from GatewayClient.
type kind struct {
	name string
	// object and template are those of this project.
	object, template string
	// refField is the field that names the template.
	refField string

	new         func() client.Object
	newObject   func() client.Object
	newTemplate func() client.Object
	newList     func() client.ObjectList
	// view shows an object of this kind. Its pointers point into it.
	view func(client.Object) *gateway
}

// gateway is a GatewayServer or GatewayClient.
type gateway struct {
	client.Object
	kind *kind
	ref  corev1.ObjectReference
	// ports and nodePorts are those of spec.endpoint, however they are written there.
	ports, nodePorts []int32
	// spec is what templates see of it: the first of several ports is also the port.
	spec       any
	secretName string
	// serviceLabels and serviceAnnotations are wanted on the gateway's Service.
	serviceLabels, serviceAnnotations map[string]string

	endpoint         **networkingv1beta1.Endpoint // nil: a client has none
	internalEndpoint **networkingv1beta1.InternalEndpoint
	keys             **corev1.ObjectReference
	publicKey        *[]byte
	publicKeyTime    *metav1.Time
	made             **corev1.ObjectReference
	conditions       *[]metav1.Condition
}

var serverKind = kind{
	name: "GatewayServer", object: "WgGatewayServer", template: "WgGatewayServerTemplate", refField: "spec.serverTemplateRef",
	new:         func() client.Object { return new(networkingv1beta1.GatewayServer) },
	newObject:   func() client.Object { return new(networkingv1beta1.WgGatewayServer) },
	newTemplate: func() client.Object { return new(networkingv1beta1.WgGatewayServerTemplate) },
	newList:     func() client.ObjectList { return new(networkingv1beta1.GatewayServerList) },
	view: func(o client.Object) *gateway {
		s := o.(*networkingv1beta1.GatewayServer)
		spec := s.Spec.DeepCopy()
		first(&spec.Endpoint.Port, spec.Endpoint.Ports)
		first(&spec.Endpoint.NodePort, spec.Endpoint.NodePorts)
		return &gateway{
			Object: s, ref: s.Spec.ServerTemplateRef, ports: s.Spec.Endpoint.AllPorts(), nodePorts: s.Spec.Endpoint.AllNodePorts(), spec: spec, secretName: s.Spec.SecretRef.Name,
			serviceLabels: s.Spec.ServiceLabels, serviceAnnotations: s.Spec.ServiceAnnotations,
			endpoint: &s.Status.Endpoint, internalEndpoint: &s.Status.InternalEndpoint,
			keys: &s.Status.SecretRef, publicKey: &s.Status.PublicKey, publicKeyTime: &s.Status.PublicKeyTime,
			made: &s.Status.ServerRef, conditions: &s.Status.Conditions,
		}
	},
}

var clientKind = kind{
	name: "GatewayClient", object: "WgGatewayClient", template: "WgGatewayClientTemplate", refField: "spec.clientTemplateRef",
	new:         func() client.Object { return new(networkingv1beta1.GatewayClient) },
	newObject:   func() client.Object { return new(networkingv1beta1.WgGatewayClient) },
	newTemplate: func() client.Object { return new(networkingv1beta1.WgGatewayClientTemplate) },
	newList:     func() client.ObjectList { return new(networkingv1beta1.GatewayClientList) },
	view: func(o client.Object) *gateway {
		c := o.(*networkingv1beta1.GatewayClient)
		spec := c.Spec.DeepCopy()
		first(&spec.Endpoint.Port, spec.Endpoint.Ports)
		return &gateway{
			Object: c, ref: c.Spec.ClientTemplateRef, ports: c.Spec.Endpoint.AllPorts(), spec: spec, secretName: c.Spec.SecretRef.Name,
			internalEndpoint: &c.Status.InternalEndpoint,
			keys:             &c.Status.SecretRef, publicKey: &c.Status.PublicKey, publicKeyTime: &c.Status.PublicKeyTime,
			made: &c.Status.ClientRef, conditions: &c.Status.Conditions,
		}
	},
}

// first makes the first of several ports the port.
func first(port *int32, ports []int32) {
	if *port == 0 && len(ports) > 0 {
		*port = ports[0]
	}
}

// own is the kind of objects of this project.
func (k *kind) own() schema.GroupVersionKind {
	return networkingv1beta1.GroupVersion.WithKind(k.object)
}

// gatewayOf is view with the kind filled in.
func (k *kind) gatewayOf(o client.Object) *gateway {
	g := k.view(o)
	g.kind = k
	return g
}

// owner refers to the gateway as the owner of what is made of it.
func (g *gateway) owner() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: networkingv1beta1.GroupVersion.String(), Kind: g.kind.name, Name: g.GetName(), UID: g.GetUID(), Controller: new(true),
	}
}

// templateRef is the reference with what is left out filled in.
func (g *gateway) templateRef(liqoNamespace string) corev1.ObjectReference {
	ref := g.ref
	if ref.Kind == "" && ref.APIVersion == "" {
		ref.Kind = g.kind.template
	}
	if ref.APIVersion == "" {
		ref.APIVersion = networkingv1beta1.GroupVersion.String()
	}
	if ref.Namespace == "" {
		ref.Namespace = liqoNamespace
	}
	return ref
}
