package v1beta1

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/text"
)

// Endpoint is where a gateway server can be reached: one tunnel for each port.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.port) && has(self.ports))",message="port and ports exclude each other: set one of them"
// +kubebuilder:validation:XValidation:rule="has(self.port) || (has(self.ports) && size(self.ports) > 0)",message="set port, or ports with at least one entry"
// +kubebuilder:validation:XValidation:rule="!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)",message="every entry of ports must be different"
type Endpoint struct {
	// Addresses holds IP addresses or DNS names. The first one is dialled.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || self.matches('^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*[.]?$')",message="an address is an IP address or a DNS name, without a port (that is in port) and without brackets"
	Addresses []string `json:"addresses,omitempty"`
	// Port is the port of the only tunnel. Excludes ports.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Ports holds the port of each tunnel. Excludes port.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
	// Protocol is the transport protocol of the tunnel.
	//
	// +kubebuilder:validation:Enum=TCP;UDP
	// +kubebuilder:default=UDP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
}

// InternalEndpoint is where the nodes of the gateway's own cluster reach the active gateway pod.
type InternalEndpoint struct {
	// IP is the address of the active gateway pod.
	IP Address `json:"ip,omitempty"`
	// Node is the name of the node on which it runs.
	Node string `json:"node,omitempty"`
}

// AllPorts are the ports of the tunnels, however they are written: Port, or Ports.
func (e *Endpoint) AllPorts() []int32 { return allPorts(e.Port, e.Ports) }

// SetPorts sets the ports of the tunnels: one is Port, several are Ports.
func (e *Endpoint) SetPorts(ports []int32) { e.Port, e.Ports = onePort(ports) }

// AllPorts are the ports of the tunnels, however they are written: Port, or Ports.
func (e *ServerEndpoint) AllPorts() []int32 { return allPorts(e.Port, e.Ports) }

// SetPorts sets the ports of the tunnels: one is Port, several are Ports.
func (e *ServerEndpoint) SetPorts(ports []int32) { e.Port, e.Ports = onePort(ports) }

// AllNodePorts are the node ports that are asked for, of the first tunnels: NodePort, or NodePorts.
func (e *ServerEndpoint) AllNodePorts() []int32 { return allPorts(e.NodePort, e.NodePorts) }

// SetNodePorts asks for node ports: one is NodePort, several are NodePorts.
func (e *ServerEndpoint) SetNodePorts(ports []int32) { e.NodePort, e.NodePorts = onePort(ports) }

// PortsText is how ports are written in flags and annotations: separated by commas.
func PortsText(ports []int32) string { return text.Join(ports, ",") }

func allPorts(port int32, ports []int32) []int32 {
	if port != 0 {
		return []int32{port}
	}
	return ports
}

func onePort(ports []int32) (port int32, several []int32) {
	if len(ports) == 1 {
		return ports[0], nil
	}
	return 0, ports
}
