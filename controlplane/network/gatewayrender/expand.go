package gatewayrender

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// expand gives the object of a server a port for each of several tunnels. A template
// speaks of the first (.Spec.Endpoint.Port): lists cannot be rendered. Ports that it
// lists itself stay as they are. The container needs no others: what it names is for people,
// and a change of it would replace the pod, which follows the GatewayServer by itself. A
// client opens no ports, and what an object of another technology looks like is not known.
func (g *gateway) expand(u *unstructured.Unstructured, from string) *Problem {
	if len(g.ports) < 2 || g.endpoint == nil || u.GroupVersionKind() != g.kind.own() {
		return nil
	}
	service := []string{"spec", "service", "spec", "ports"}
	list, _, _ := unstructured.NestedSlice(u.Object, service...) // as the kind has it
	at := indexOf(list, g.ports[0])
	if at < 0 {
		return &Problem{networkingv1beta1.ReasonFirstPortOnly, fmt.Sprintf(
			"spec.endpoint.ports has %d entries, but the Service of %s has no port of protocol UDP that is {{ .Spec.Endpoint.Port }}, the first: it has to have one, and the others are added",
			len(g.ports), from)}
	}
	if name, _ := list[at].(map[string]any)["name"].(string); name == "" {
		list[at].(map[string]any)["name"] = portName(g.ports[0]) // required of several
	}
	for i, p := range g.ports {
		if indexOf(list, p) >= 0 {
			continue
		}
		port := map[string]any{"name": portName(p), "protocol": string(corev1.ProtocolUDP), "port": int64(p), "targetPort": int64(p)}
		if i < len(g.nodePorts) {
			port["nodePort"] = int64(g.nodePorts[i])
		}
		list = append(list, port)
	}
	_ = unstructured.SetNestedSlice(u.Object, list, service...)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = make(map[string]string)
	}
	annotations[networkingv1beta1.AnnotationTunnelPorts] = networkingv1beta1.PortsText(g.ports)
	u.SetAnnotations(annotations)
	return nil
}

// portName is the name of a port of the Service that is one of several tunnels.
func portName(port int32) string { return fmt.Sprintf("wireguard-%d", port) }

// indexOf finds the UDP port of a number, -1 if it is not in the list.
func indexOf(list []any, port int32) int {
	return slices.IndexFunc(list, func(v any) bool {
		p, _ := v.(map[string]any)
		return p["protocol"] == string(corev1.ProtocolUDP) && fmt.Sprint(p["port"]) == strconv.Itoa(int(port))
	})
}
