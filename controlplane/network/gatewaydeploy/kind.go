package gatewaydeploy

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// mode is the end of the tunnel that a gateway holds, as in its flags and in the
// name of its Lease.
type mode string

const (
	modeServer mode = "server"
	modeClient mode = "client"
)

// kind is what tells WgGatewayServer from WgGatewayClient.
type kind struct {
	name string
	// parent is the kind from which objects of this kind are rendered.
	parent     string
	mode       mode
	connection networkingv1beta1.ConnectionType
	new        func() client.Object
	list       func() client.ObjectList
	// view shows an object of this kind. Its pointers point into it.
	view func(client.Object) *gateway
}

// gateway is a WgGatewayServer or WgGatewayClient.
type gateway struct {
	client.Object
	kind       *kind
	deployment *networkingv1beta1.DeploymentTemplate
	service    *networkingv1beta1.ServiceTemplate // nil: a client has none
	metrics    *networkingv1beta1.Metrics
	secretRef  string

	endpoint         **networkingv1beta1.Endpoint // nil: a client has none
	internalEndpoint **networkingv1beta1.InternalEndpoint
	keys             **corev1.ObjectReference
	publicKey        *[]byte
	publicKeyTime    *metav1.Time
	conditions       *[]metav1.Condition
}

var serverKind = kind{
	name: "WgGatewayServer", parent: "GatewayServer", mode: modeServer, connection: networkingv1beta1.ConnectionServer,
	new:  func() client.Object { return new(networkingv1beta1.WgGatewayServer) },
	list: func() client.ObjectList { return new(networkingv1beta1.WgGatewayServerList) },
	view: func(o client.Object) *gateway {
		s := o.(*networkingv1beta1.WgGatewayServer)
		return &gateway{
			Object: s, deployment: &s.Spec.Deployment, service: &s.Spec.Service, metrics: s.Spec.Metrics, secretRef: s.Spec.SecretRef.Name,
			endpoint: &s.Status.Endpoint, internalEndpoint: &s.Status.InternalEndpoint, keys: &s.Status.SecretRef, publicKey: &s.Status.PublicKey,
			publicKeyTime: &s.Status.PublicKeyTime, conditions: &s.Status.Conditions,
		}
	},
}

var clientKind = kind{
	name: "WgGatewayClient", parent: "GatewayClient", mode: modeClient, connection: networkingv1beta1.ConnectionClient,
	new:  func() client.Object { return new(networkingv1beta1.WgGatewayClient) },
	list: func() client.ObjectList { return new(networkingv1beta1.WgGatewayClientList) },
	view: func(o client.Object) *gateway {
		c := o.(*networkingv1beta1.WgGatewayClient)
		return &gateway{
			Object: c, deployment: &c.Spec.Deployment, metrics: c.Spec.Metrics, secretRef: c.Spec.SecretRef.Name,
			internalEndpoint: &c.Status.InternalEndpoint, keys: &c.Status.SecretRef, publicKey: &c.Status.PublicKey,
			publicKeyTime: &c.Status.PublicKeyTime, conditions: &c.Status.Conditions,
		}
	},
}

// other is the kind at the other end of a tunnel.
func (k *kind) other() *kind {
	if k.mode == modeServer {
		return &clientKind
	}
	return &serverKind
}

// get reads the gateway of this kind.
func (k *kind) get(ctx context.Context, c client.Reader, key client.ObjectKey) (*gateway, error) {
	o := k.new()
	if err := c.Get(ctx, key, o); err != nil {
		return nil, err
	}
	g := k.view(o)
	g.kind = k
	return g, nil
}

// self refers to the gateway as the owner of what it cannot be without.
func (g *gateway) self() metav1.OwnerReference {
	return ownedBy(networkingv1beta1.GroupVersion.String(), g.kind.name, g.GetName(), g.GetUID())
}

// ownerOf refers to the owner of an object that was made for the gateway, if it has one.
func (g *gateway) ownerOf(o client.Object) *metav1.OwnerReference {
	owner := g.self()
	switch o.(type) {
	case *corev1.Secret, *networkingv1beta1.Connection:
		owner = g.family()
	}
	return &owner
}

// family refers to the owner of what outlives a new rendering of the gateway: the
// GatewayServer or GatewayClient it was rendered from. A gateway that was written by
// hand has none, and is it itself.
func (g *gateway) family() metav1.OwnerReference {
	o := metav1.GetControllerOf(g)
	if o == nil || o.Kind != g.kind.parent {
		return g.self()
	}
	return ownedBy(o.APIVersion, o.Kind, o.Name, o.UID)
}
