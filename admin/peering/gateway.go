package peering

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// gateway is a GatewayServer or GatewayClient: what both have, in one shape.
type gateway struct {
	client.Object
	server *networkingv1beta1.GatewayServer // one of them is nil
	client *networkingv1beta1.GatewayClient
	// noConditions: the cluster's objects of this kind have none.
	noConditions bool
}

func newGateway(end networkingv1beta1.ConnectionType) *gateway {
	if end == networkingv1beta1.ConnectionServer {
		return serverGateway(new(networkingv1beta1.GatewayServer))
	}
	return clientGateway(new(networkingv1beta1.GatewayClient))
}

func serverGateway(s *networkingv1beta1.GatewayServer) *gateway {
	return &gateway{Object: s, server: s}
}
func clientGateway(c *networkingv1beta1.GatewayClient) *gateway {
	return &gateway{Object: c, client: c}
}

func (g *gateway) kind() string {
	if g.server != nil {
		return "GatewayServer"
	}
	return "GatewayClient"
}

// keys refers to the Secret with the gateway's keys; nil while there is none.
func (g *gateway) keys() *corev1.ObjectReference {
	if g.server != nil {
		return g.server.Status.SecretRef
	}
	return g.client.Status.SecretRef
}

// publicKey is the one that the controllers tell; nil where they do not, as Liqo's.
func (g *gateway) publicKey() []byte {
	if g.server != nil {
		return g.server.Status.PublicKey
	}
	return g.client.Status.PublicKey
}

// keysSecret is the name of the Secret with the keys of this end's gateway, which there is or will be.
func (e *end) keysSecret() string {
	for _, g := range e.gateways(e.role) {
		if ref := g.keys(); ref != nil && g.GetNamespace() == e.namespace {
			return ref.Name
		}
	}
	return generatedSecret(e.gateway())
}

// made refers to what was rendered from the template; nil while there is nothing.
func (g *gateway) made() *corev1.ObjectReference {
	if g.server != nil {
		return g.server.Status.ServerRef
	}
	return g.client.Status.ClientRef
}

// foreign tells whether the gateway is of another technology than this project's, or
// whether other controllers keep it. Its object need not have our conditions.
func (g *gateway) foreign() bool {
	if g.noConditions {
		return true
	}
	made := g.made()
	return made != nil && made.GroupVersionKind().Group != networkingv1beta1.GroupVersion.Group
}

// pod is where the pod is found that leads; nil: there is none.
func (g *gateway) pod() *networkingv1beta1.InternalEndpoint {
	if g.server != nil {
		return g.server.Status.InternalEndpoint
	}
	return g.client.Status.InternalEndpoint
}

func (g *gateway) conditions() []metav1.Condition {
	if g.server != nil {
		return g.server.Status.Conditions
	}
	return g.client.Status.Conditions
}

// template is what the gateway is rendered from.
func (g *gateway) template() corev1.ObjectReference {
	if g.server != nil {
		return g.server.Spec.ServerTemplateRef
	}
	return g.client.Spec.ClientTemplateRef
}

// String names the object: "GatewayServer liqo-tenant-milan/milan".
func (g *gateway) String() string {
	return g.kind() + " " + g.GetNamespace() + "/" + g.GetName()
}
