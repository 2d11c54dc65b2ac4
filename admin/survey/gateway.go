package survey

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Gateway is this cluster's end of a tunnel: a GatewayServer or a GatewayClient.
type Gateway struct {
	Kind      string // GatewayServer, GatewayClient
	Namespace string
	Name      string
	Role      networkingv1beta1.ConnectionType
	Created   time.Time
	Deleting  bool
	MTU       int
	Template  corev1.ObjectReference
	// ServiceType is that of a server.
	ServiceType corev1.ServiceType
	// Endpoint is where the server of the two is found: of a server that of its
	// status, of a client that of its spec. Nil: a server has none yet.
	Endpoint *networkingv1beta1.Endpoint
	// Generation is that of the spec, to compare with observedGeneration.
	Generation int64
	Conditions []metav1.Condition
	// Keys is nil while there are none.
	Keys *Keys
	// Pods are sorted: the active one first.
	Pods []Pod
	// Report is what the active pod answered, nil where it was not asked or did
	// not answer; ReportErr says why it did not.
	Report    *GatewayReport
	ReportErr error
}

// String names the object: "GatewayServer liqo-tenant-milan/milan".
func (g *Gateway) String() string { return g.Kind + " " + g.Namespace + "/" + g.Name }

// Active is the pod that leads, nil where there is none.
func (g *Gateway) Active() *Pod {
	if len(g.Pods) == 0 || !g.Pods[0].Active {
		return nil
	}
	return &g.Pods[0]
}

// labelled is a Gateway with the metadata of its object.
type labelled struct {
	*Gateway
	meta metav1.ObjectMeta
}

// gateways are the servers and the clients, in the order in which they have the
// right to serve: those that are being deleted last, and else the oldest first.
func (f *facts) gateways() []labelled {
	var out []labelled
	for i := range f.servers {
		out = append(out, labelled{serverOf(&f.servers[i]), f.servers[i].ObjectMeta})
	}
	for i := range f.clients {
		out = append(out, labelled{clientOf(&f.clients[i]), f.clients[i].ObjectMeta})
	}
	slices.SortFunc(out, func(a, b labelled) int {
		return cmp.Or(trueFirst(!a.Deleting, !b.Deleting), older(a.Created, b.Created, a.String(), b.String()))
	})
	return out
}

func serverOf(o *networkingv1beta1.GatewayServer) *Gateway {
	return &Gateway{
		Kind: "GatewayServer", Namespace: o.Namespace, Name: o.Name, Role: networkingv1beta1.ConnectionServer,
		Created: o.CreationTimestamp.Time, Deleting: !o.DeletionTimestamp.IsZero(), Generation: o.Generation,
		MTU: o.Spec.MTU, Template: o.Spec.ServerTemplateRef, ServiceType: o.Spec.Endpoint.ServiceType, Endpoint: o.Status.Endpoint,
		Keys: keysOf(o.Status.SecretRef, o.Status.PublicKey, o.Status.PublicKeyTime), Conditions: o.Status.Conditions,
	}
}

func clientOf(o *networkingv1beta1.GatewayClient) *Gateway {
	return &Gateway{
		Kind: "GatewayClient", Namespace: o.Namespace, Name: o.Name, Role: networkingv1beta1.ConnectionClient,
		Created: o.CreationTimestamp.Time, Deleting: !o.DeletionTimestamp.IsZero(), Generation: o.Generation,
		MTU: o.Spec.MTU, Template: o.Spec.ClientTemplateRef, Endpoint: &o.Spec.Endpoint,
		Keys: keysOf(o.Status.SecretRef, o.Status.PublicKey, o.Status.PublicKeyTime), Conditions: o.Status.Conditions,
	}
}
