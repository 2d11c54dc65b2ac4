package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "networking.liqo.io", Version: "v1beta1"}

// AddToScheme makes the kinds of this package known to s. Its signature is that of every other AddToScheme, so that
// callers can list them.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Configuration{}, &ConfigurationList{},
		&GatewayServer{}, &GatewayServerList{},
		&GatewayClient{}, &GatewayClientList{},
		&WgGatewayServer{}, &WgGatewayServerList{},
		&WgGatewayClient{}, &WgGatewayClientList{},
		&WgGatewayServerTemplate{}, &WgGatewayServerTemplateList{},
		&WgGatewayClientTemplate{}, &WgGatewayClientTemplateList{},
		&PublicKey{}, &PublicKeyList{},
		&Connection{}, &ConnectionList{},
		&InternalNode{}, &InternalNodeList{},
		&InternalFabric{}, &InternalFabricList{},
		&GeneveTunnel{}, &GeneveTunnelList{},
		&RouteConfiguration{}, &RouteConfigurationList{},
		&FirewallConfiguration{}, &FirewallConfigurationList{},
		&ExportedService{}, &ExportedServiceList{},
		&ImportedService{}, &ImportedServiceList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
