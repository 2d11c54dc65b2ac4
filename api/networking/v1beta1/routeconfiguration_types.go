package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RouteConfiguration is one routing table and the rules that lead to it. Its labels say whether gateways or nodes, and
// which of them, apply it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=rcnf;rcnfg;rcfg;routecfg
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RouteConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   RouteConfigurationSpec   `json:"spec,omitzero"`
	Status RouteConfigurationStatus `json:"status,omitzero"`
}

// RouteConfigurationSpec holds the table.
type RouteConfigurationSpec struct {
	// Table is the routing table.
	//
	// +required
	Table RouteTable `json:"table,omitzero"`
}

// RouteTable is one routing table.
type RouteTable struct {
	// Name names the table. It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the name of a table cannot be changed"
	Name string `json:"name"`
	// Rules holds the rules that lead to the table, each with its routes.
	//
	// +kubebuilder:validation:MinItems=1
	Rules []RoutingRule `json:"rules"`
	// TargetRef names the object for which the table exists. It is informative.
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// RoutingRule selects packets and holds the routes for them. Fields that are set are ANDed; those left out match
// everything.
type RoutingRule struct {
	// IIF is the name of the interface by which the packet came in.
	//
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:\s]*$`
	IIF string `json:"iif,omitempty"`
	// OIF is the name of the interface to which a local socket is bound.
	//
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:\s]*$`
	OIF string `json:"oif,omitempty"`
	// Dst is the prefix of the destination address.
	Dst CIDR `json:"dst,omitempty"`
	// Src is the prefix of the source address.
	Src CIDR `json:"src,omitempty"`
	// FwMark is the packet's mark.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	FwMark *int `json:"fwmark,omitempty"`
	// Priority orders the rules of a host: the lowest comes first. When absent the host chooses.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	Priority *int `json:"priority,omitempty"`
	// Routes holds the routes of the packets that match.
	Routes []Route `json:"routes"`
	// TargetRef names the object for which the rule exists. It is informative.
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// Route is one route. Of the routes that contain a destination the one with the longest prefix is taken.
type Route struct {
	// Dst is the prefix of the destination address.
	Dst CIDR `json:"dst"`
	// Src is the source address of packets that the host itself sends on this route.
	Src Address `json:"src,omitempty"`
	// Gw is the next hop.
	Gw Address `json:"gw,omitempty"`
	// Dev is the name of the interface.
	//
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:\s]*$`
	Dev string `json:"dev,omitempty"`
	// Onlink says that the next hop is reached directly although no route says so.
	Onlink *bool `json:"onlink,omitempty"`
	// Scope is the distance to the destination.
	Scope RouteScope `json:"scope,omitempty"`
	// TargetRef names the object for which the route exists. It is informative.
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// RouteScope is the distance to a destination, as the kernel names it.
//
// +kubebuilder:validation:Enum=global;link;host;site;nowhere
type RouteScope string

// The scopes of a route.
const (
	RouteScopeGlobal  RouteScope = "global"
	RouteScopeLink    RouteScope = "link"
	RouteScopeHost    RouteScope = "host"
	RouteScopeSite    RouteScope = "site"
	RouteScopeNowhere RouteScope = "nowhere"
)

// RouteConfigurationStatus is what the hosts report that apply the table.
type RouteConfigurationStatus struct {
	// Conditions holds one condition for each host.
	//
	// +listType=map
	// +listMapKey=host
	// +listMapKey=type
	Conditions []HostCondition `json:"conditions,omitempty"`
}

// RouteConfigurationList is a list of RouteConfigurations.
//
// +kubebuilder:object:root=true
type RouteConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RouteConfiguration `json:"items"`
}
