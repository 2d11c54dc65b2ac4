package survey

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
)

// ErrOfLiqo is why a gateway or an agent is not asked: the programs of Liqo know none of our commands.
var ErrOfLiqo = errors.New("it is Liqo's, which answers no questions")

// errGatewaysOfLiqo is ErrOfLiqo of all such gateways of a cluster.
var errGatewaysOfLiqo = errors.New("gateways of Liqo are not asked: state and latency are those of their Connections, and traffic, drops and handshakes are not known")

// OfLiqo tells whether a pod is of Liqo's gateway, node agent or virtual kubelet. Its container has the name of ours: beside
// that of the gateway there are two more, and the others get a flag that ours do not have.
func OfLiqo(p *corev1.PodSpec) bool {
	has := func(name, flag string) bool {
		return slices.ContainsFunc(p.Containers, func(c corev1.Container) bool {
			return c.Name == name && (flag == "" || slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, flag) }))
		})
	}
	return has(gatewayProgram, "") && has("wireguard", "") && has("geneve", "") || has(fabricProgram, "--nodename=") ||
		has(offloadingv1beta1.VirtualKubeletName, "--foreign-cluster-id=")
}

// OfLiqo tells whether the pod that leads is Liqo's.
func (g *Gateway) OfLiqo() bool {
	pod := g.Active()
	return pod != nil && pod.OfLiqo
}
