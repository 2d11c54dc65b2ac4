package gatewaydeploy

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// annotationNodePort keeps the node port of a Service while its type has none; those of
// several tunnels are separated by commas.
const annotationNodePort = "networking.liqo.io/last-node-port"

// How long a node port is asked for that the API server says is taken, and how often.
// It gives back the port of a Service a moment after the Service is seen to be gone.
const (
	portPatience = time.Second
	portInterval = 100 * time.Millisecond
)

// keepNodePorts lets the Service ask for the node ports that it had last, where the spec
// asks for none. The peer's client is configured with them, and other free ones, which
// a new Service would be given, would cut the client off.
func (f *Facts) keepNodePorts(p *Plan, s *corev1.Service) {
	tunnels := f.Gateway.tunnels(s)
	last, some := make([]int32, len(tunnels)), false
	asks := s.DeepCopy()
	for n, i := range tunnels {
		port := int32(0)
		if s.Spec.Ports[i].NodePort == 0 {
			port = f.lastNodePort(n, portsAt(s, tunnels))
		}
		last[n], some = port, some || port != 0
		if port != 0 && !slices.ContainsFunc(asks.Spec.Ports, func(o corev1.ServicePort) bool { return o.NodePort == port }) {
			asks.Spec.Ports[i].NodePort = port
		}
	}
	switch {
	case !some:
	case typeOf(s) == corev1.ServiceTypeClusterIP:
		s.Annotations = labels.Merge(s.Annotations, map[string]string{annotationNodePort: networkingv1beta1.PortsText(last)})
	case s.Spec.AllocateLoadBalancerNodePorts != nil && !*s.Spec.AllocateLoadBalancerNodePorts:
	case !equality.Semantic.DeepEqual(s.Spec, asks.Spec):
		p.AnyPort = s.DeepCopy()
		s.Spec = asks.Spec
	}
}

// lastNodePort is the node port of the n-th of some ports of the Service as far as it is
// known, else 0. A port in the status that is the Service's own was no node port.
func (f *Facts) lastNodePort(n int, wanted []int32) int32 {
	own := wanted
	if f.Service != nil {
		ports := f.Service.Spec.Ports
		i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP && p.Port == wanted[n] })
		added := i < 0 && n > 0
		if i < 0 && n == 0 { // the first one has another number now, or there is one before it
			i = udpPort(f.Service)
			added = i >= 0 && slices.Contains(wanted, ports[i].Port)
		}
		switch {
		case added && typeOf(f.Service) != corev1.ServiceTypeClusterIP:
			return 0 // what is known is of others
		case !added && i >= 0 && ports[i].NodePort != 0:
			return ports[i].NodePort
		}
		if noted := strings.Split(f.Service.Annotations[annotationNodePort], ","); n < len(noted) {
			if port, err := strconv.ParseUint(noted[n], 10, 16); err == nil && port > 0 {
				return int32(port)
			}
		}
		for _, p := range ports {
			own = append(slices.Clip(own), p.Port)
		}
	}
	if last := *f.Gateway.endpoint; last != nil {
		if all := last.AllPorts(); n < len(all) && !slices.Contains(own, all[n]) {
			return all[n]
		}
	}
	return 0
}

// maxTunnels is how many ports an endpoint can have.
const maxTunnels = 64

// tunnels are the ports of a Service that are WireGuard's, by their index, one for each
// tunnel: those that the annotation names, in its order, or else the first of UDP.
func (g *gateway) tunnels(s *corev1.Service) (indexes []int) {
	for number := range strings.SplitSeq(g.GetAnnotations()[networkingv1beta1.AnnotationTunnelPorts], ",") {
		i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Protocol == corev1.ProtocolUDP && strconv.Itoa(int(p.Port)) == number
		})
		if i >= 0 && len(indexes) < maxTunnels && !slices.Contains(indexes, i) {
			indexes = append(indexes, i)
		}
	}
	if i := udpPort(s); i >= 0 && len(indexes) == 0 {
		return []int{i}
	}
	return indexes
}

// portsAt are the numbers of some ports of a Service.
func portsAt(s *corev1.Service, indexes []int) (ports []int32) {
	for _, i := range indexes {
		ports = append(ports, s.Spec.Ports[i].Port)
	}
	return ports
}

// udpPort is the index of the first port of UDP, -1 if there is none.
func udpPort(s *corev1.Service) int {
	return slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP })
}

func typeOf(s *corev1.Service) corev1.ServiceType {
	return cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)
}

// applyObject makes an object. A Service whose node ports of before cannot be had gets
// any other ones, because a gateway at another port is better than none.
func (r *reconciler) applyObject(ctx context.Context, p *Plan, o client.Object) error {
	_, err := apply.Object(ctx, r, r.live, o)
	if _, service := o.(*corev1.Service); !service || p.AnyPort == nil || o.GetName() != p.AnyPort.Name {
		return err
	}
	for end := time.Now().Add(portPatience); portTaken(err) && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(portInterval):
		}
		_, err = apply.Object(ctx, r, r.live, o)
	}
	if _, refused := apply.Refusal(err); refused {
		_, err = apply.Object(ctx, r, r.live, p.AnyPort)
	}
	return err
}

// portTaken tells whether another Service has the node port.
func portTaken(err error) bool {
	message, refused := apply.Refusal(err)
	return refused && strings.Contains(message, "provided port is already allocated")
}

// moved tells whether peers that knew the first endpoint have to be told the second.
func moved(before, now *networkingv1beta1.Endpoint) bool {
	return before != nil && now != nil && (!slices.Equal(before.AllPorts(), now.AllPorts()) || !slices.Equal(before.Addresses, now.Addresses))
}
