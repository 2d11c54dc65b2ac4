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

// gatewayStatus is what the status of both tells.
type gatewayStatus struct {
	keys       *corev1.ObjectReference             // the Secret with the gateway's keys; nil while there is none
	publicKey  []byte                              // as the controllers tell it; nil where they do not, as Liqo's
	made       *corev1.ObjectReference             // what was rendered from the template; nil while there is nothing
	pod        *networkingv1beta1.InternalEndpoint // where the pod is found that leads; nil: there is none
	conditions []metav1.Condition
}

func (g *gateway) status() gatewayStatus {
	if g.server != nil {
		s := &g.server.Status
		return gatewayStatus{s.SecretRef, s.PublicKey, s.ServerRef, s.InternalEndpoint, s.Conditions}
	}
	s := &g.client.Status
	return gatewayStatus{s.SecretRef, s.PublicKey, s.ClientRef, s.InternalEndpoint, s.Conditions}
}

// keysSecret is the name of the Secret with the keys of this end's gateway, which there is or will be.
func (e *end) keysSecret() string {
	for _, g := range e.gateways(e.role) {
		if ref := g.status().keys; ref != nil && g.GetNamespace() == e.namespace {
			return ref.Name
		}
	}
	return generatedSecret(e.gateway())
}

// foreign tells whether the gateway is of another technology than this project's, or
// whether other controllers keep it. Its object need not have our conditions.
func (g *gateway) foreign() bool {
	if g.noConditions {
		return true
	}
	made := g.status().made
	return made != nil && made.GroupVersionKind().Group != networkingv1beta1.GroupVersion.Group
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
