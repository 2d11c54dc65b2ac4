package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Connection shows the state of the tunnel between two clusters, as seen from one of them. The gateway writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo,shortName=conn
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Latency",type=string,JSONPath=`.status.latency.value`,priority=1
type Connection struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   ConnectionSpec   `json:"spec,omitzero"`
	Status ConnectionStatus `json:"status,omitzero"`
}

// ConnectionSpec says which gateway the Connection belongs to.
type ConnectionSpec struct {
	// Type is the end of the tunnel that this cluster holds.
	Type ConnectionType `json:"type"`
	// GatewayRef names the gateway.
	GatewayRef corev1.ObjectReference `json:"gatewayRef"`
}

// ConnectionType is one of the two ends of a tunnel.
//
// +kubebuilder:validation:Enum=Server;Client
type ConnectionType string

// The two ends of a tunnel.
const (
	// ConnectionServer waits for the other end.
	ConnectionServer ConnectionType = "Server"
	// ConnectionClient dials the other end.
	ConnectionClient ConnectionType = "Client"
)

// ConnectionStatus is the state of the tunnel.
type ConnectionStatus struct {
	// Value is Connecting, Connected or Error.
	Value ConnectionValue `json:"value,omitempty"`
	// Latency is the last measured round trip through the tunnel.
	Latency ConnectionLatency `json:"latency,omitzero"`
	// Conditions say what the gateway made of the objects of its peering, and what to do about it.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConnectionValue is the state of a tunnel. The schema takes any string: a peer of another version may know more.
type ConnectionValue string

// The states of a tunnel.
const (
	// Connecting means that the peer has not answered yet.
	Connecting ConnectionValue = "Connecting"
	// Connected means that the peer answers.
	Connected ConnectionValue = "Connected"
	// ConnectionError means that the peer answered once and does not any more.
	ConnectionError ConnectionValue = "Error"
)

// ConnectionLatency is a measured round trip.
type ConnectionLatency struct {
	// Value is the time with its unit, as 12ms or 850μs, or N/A.
	Value string `json:"value,omitempty"`
	// Timestamp is when it was measured.
	Timestamp metav1.Time `json:"timestamp,omitzero"`
}

// ConnectionList is a list of Connections.
//
// +kubebuilder:object:root=true
type ConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Connection `json:"items"`
}
