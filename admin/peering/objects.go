package peering

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/objectname"
)

// Defaults of what a command line may leave out.
const (
	DefaultMTU                      = 1340
	DefaultServicePort        int32 = 51840
	DefaultServiceType              = corev1.ServiceTypeLoadBalancer
	DefaultServerTemplateName       = "wireguard-server"
	DefaultClientTemplateName       = "wireguard-client"
	// DefaultServerTemplateType and DefaultClientTemplateType are the kinds of the
	// templates as group, version and resource.
	DefaultServerTemplateType = "networking.liqo.io/v1beta1/wggatewayservertemplates"
	DefaultClientTemplateType = "networking.liqo.io/v1beta1/wggatewayclienttemplates"
)

// Bounds of the MTU: those of the API.
const (
	MinMTU = 576
	MaxMTU = 65455
)

// MaxTunnels is how many ports a gateway can have: that of the API.
const MaxTunnels = 64

// FieldOwner is the name under which everything is written.
const FieldOwner = "liqoctl"

// LabelManagedBy, with the value FieldOwner, marks the namespaces and the
// RoleBindings that were made here. Only those are deleted again.
const LabelManagedBy = "app.kubernetes.io/managed-by"

// Metadata is what the objects of a peering have in common.
type Metadata struct {
	// Name is the object's; empty: one made of RemoteClusterID.
	Name string
	// Namespace is where it lives.
	Namespace string
	// RemoteClusterID is the cluster at the other end, seen from where the object
	// is applied.
	RemoteClusterID string
	// Labels and Annotations are the user's, for everything that is created. They
	// do not replace those by which the object is found.
	Labels, Annotations map[string]string
}

// of returns the metadata of an object, with labels of its own.
func (m Metadata) of(name string, own map[string]string) metav1.ObjectMeta {
	labels := maps.Clone(m.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	maps.Copy(labels, own)
	if m.RemoteClusterID != "" {
		labels[networkingv1beta1.LabelRemoteClusterID] = m.RemoteClusterID
	}
	return metav1.ObjectMeta{Name: cmp.Or(m.Name, name), Namespace: m.Namespace, Labels: labels, Annotations: maps.Clone(m.Annotations)}
}

// NewTenantNamespace returns the namespace of the peering's objects. It admits
// only pods without any privilege, as our gateways need none; where Liqo runs,
// whose gateways are privileged, it is for the cluster to say which.
func NewTenantNamespace(m Metadata, liqo bool) *corev1.Namespace {
	m.Namespace = ""
	labels := map[string]string{networkingv1beta1.LabelTenantNamespace: networkingv1beta1.LabelTrue, LabelManagedBy: FieldOwner}
	if !liqo {
		labels[networkingv1beta1.LabelPodSecurity] = "restricted"
	}
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: m.of(TenantNamespaceName(m.RemoteClusterID), labels),
	}
}

// NewConfiguration returns the Configuration that tells a cluster the network of
// the remote one.
func NewConfiguration(m Metadata, remote networkingv1beta1.ClusterConfig) *networkingv1beta1.Configuration {
	return &networkingv1beta1.Configuration{
		TypeMeta:   typeMeta("Configuration"),
		ObjectMeta: m.of(GatewayName(m.RemoteClusterID), nil),
		Spec:       networkingv1beta1.ConfigurationSpec{Remote: *remote.DeepCopy()},
	}
}

// ServerOptions describe a GatewayServer. What is zero has the default.
type ServerOptions struct {
	// Template is what the gateway is rendered from. The default lives in
	// LiqoNamespace.
	Template corev1.ObjectReference
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// MTU is the largest packet that the tunnel carries, the same at both ends.
	MTU int
	// ServiceType is how the gateway is exposed.
	ServiceType corev1.ServiceType
	// Ports are those of the Service, one for each tunnel.
	Ports []int32
	// NodePorts asks for these, for the first tunnels; the others have any.
	NodePorts []int32
	// LoadBalancerIP asks for this address; empty: any.
	LoadBalancerIP string
}

// NewGatewayServer returns the end of the tunnel that waits for the other.
func NewGatewayServer(m Metadata, o ServerOptions) *networkingv1beta1.GatewayServer {
	if len(o.Ports) == 0 {
		o.Ports = []int32{DefaultServicePort}
	}
	s := &networkingv1beta1.GatewayServer{
		TypeMeta:   typeMeta("GatewayServer"),
		ObjectMeta: m.of(GatewayName(m.RemoteClusterID), nil),
		Spec: networkingv1beta1.GatewayServerSpec{
			ServerTemplateRef: cmp.Or(o.Template, ServerTemplate("", o.LiqoNamespace)),
			MTU:               cmp.Or(o.MTU, DefaultMTU),
			Endpoint: networkingv1beta1.ServerEndpoint{
				ServiceType:    cmp.Or(o.ServiceType, DefaultServiceType),
				LoadBalancerIP: o.LoadBalancerIP,
			},
		},
	}
	s.Spec.Endpoint.SetPorts(slices.Clone(o.Ports))
	s.Spec.Endpoint.SetNodePorts(slices.Clone(o.NodePorts))
	return s
}

// ClientOptions describe a GatewayClient. What is zero has the default; Addresses
// and Ports have none.
type ClientOptions struct {
	// Template is what the gateway is rendered from. The default lives in
	// LiqoNamespace.
	Template corev1.ObjectReference
	// LiqoNamespace is where the installation lives.
	LiqoNamespace string
	// MTU is the largest packet that the tunnel carries, the same at both ends.
	MTU int
	// Addresses and Ports are where the peer's gateway server is reached: a port for each tunnel.
	Addresses []string
	Ports     []int32
	// Protocol is UDP by default; WireGuard has no other.
	Protocol corev1.Protocol
}

// NewGatewayClient returns the end of the tunnel that dials the other.
func NewGatewayClient(m Metadata, o ClientOptions) *networkingv1beta1.GatewayClient {
	c := &networkingv1beta1.GatewayClient{
		TypeMeta:   typeMeta("GatewayClient"),
		ObjectMeta: m.of(GatewayName(m.RemoteClusterID), nil),
		Spec: networkingv1beta1.GatewayClientSpec{
			ClientTemplateRef: cmp.Or(o.Template, ClientTemplate("", o.LiqoNamespace)),
			MTU:               cmp.Or(o.MTU, DefaultMTU),
			Endpoint: networkingv1beta1.Endpoint{
				Addresses: slices.Clone(o.Addresses), Protocol: cmp.Or(o.Protocol, corev1.ProtocolUDP),
			},
		},
	}
	c.Spec.Endpoint.SetPorts(slices.Clone(o.Ports))
	return c
}

// NewPublicKey returns the object by which a cluster knows the key of the remote
// cluster's gateway: 32 bytes.
func NewPublicKey(m Metadata, key []byte) *networkingv1beta1.PublicKey {
	return &networkingv1beta1.PublicKey{
		TypeMeta: typeMeta("PublicKey"),
		ObjectMeta: m.of(m.RemoteClusterID, map[string]string{
			networkingv1beta1.LabelGatewayResource: networkingv1beta1.LabelTrue,
		}),
		Spec: networkingv1beta1.PublicKeySpec{PublicKey: slices.Clone(key)},
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: kind}
}

// ServerTemplate refers to a template of gateway servers of this project. An
// empty name is the default.
func ServerTemplate(name, namespace string) corev1.ObjectReference {
	return template("WgGatewayServerTemplate", cmp.Or(name, DefaultServerTemplateName), namespace)
}

// ClientTemplate refers to a template of gateway clients of this project. An
// empty name is the default.
func ClientTemplate(name, namespace string) corev1.ObjectReference {
	return template("WgGatewayClientTemplate", cmp.Or(name, DefaultClientTemplateName), namespace)
}

func template(kind, name, namespace string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: kind, Name: name, Namespace: namespace}
}

// Limits of names.
const (
	maxGatewayName   = 60 // gw-NAME is the name of a Service, a DNS label
	maxNamespaceName = 63
	tenantPrefix     = "liqo-tenant-"
)

// TenantNamespaceName is the name of the namespace for a remote cluster where
// there is none yet.
func TenantNamespaceName(remoteClusterID string) string {
	return objectname.Shorten(tenantPrefix+remoteClusterID, maxNamespaceName)
}

// GatewayName is the name of the gateway and of the Configuration for a remote
// cluster: its ID, unless that is too long.
func GatewayName(remoteClusterID string) string {
	return objectname.Shorten(remoteClusterID, maxGatewayName)
}
