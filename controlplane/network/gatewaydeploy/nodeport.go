package gatewaydeploy

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
)

// annotationNodePort keeps the node port of a Service while its type has none.
const annotationNodePort = "networking.liqo.io/last-node-port"

// How long a node port is asked for that the API server says is taken, and how often.
// It gives back the port of a Service a moment after the Service is seen to be gone.
const (
	portPatience = time.Second
	portInterval = 100 * time.Millisecond
)

// keepNodePort lets the Service ask for the node port that it had last, if the spec
// asks for none. The peer's client is configured with it, and another free one, which
// a new Service would be given, would cut the client off.
func (f *Facts) keepNodePort(p *Plan, s *corev1.Service) {
	i := udpPort(s)
	if i < 0 || s.Spec.Ports[i].NodePort != 0 {
		return
	}
	last := f.lastNodePort(s.Spec.Ports[i].Port)
	if last == 0 {
		return
	}
	switch {
	case typeOf(s) == corev1.ServiceTypeClusterIP:
		s.Annotations = labels.Merge(s.Annotations, map[string]string{annotationNodePort: strconv.Itoa(int(last))})
	case s.Spec.AllocateLoadBalancerNodePorts != nil && !*s.Spec.AllocateLoadBalancerNodePorts:
	case !slices.ContainsFunc(s.Spec.Ports, func(o corev1.ServicePort) bool { return o.NodePort == last }):
		p.AnyPort = s.DeepCopy()
		s.Spec.Ports[i].NodePort = last
	}
}

// lastNodePort is the node port of the Service as far as it is known, else 0. port is
// the port of the Service itself: with that in the status, it was no node port.
func (f *Facts) lastNodePort(port int32) int32 {
	if f.Service != nil {
		if i := udpPort(f.Service); i >= 0 && f.Service.Spec.Ports[i].NodePort != 0 {
			return f.Service.Spec.Ports[i].NodePort
		}
		if n, err := strconv.ParseUint(f.Service.Annotations[annotationNodePort], 10, 16); err == nil && n > 0 {
			return int32(n)
		}
	}
	if last := *f.Gateway.endpoint; last != nil && last.Port != port {
		return last.Port
	}
	return 0
}

// udpPort is the index of the port that is WireGuard's, -1 if there is none.
func udpPort(s *corev1.Service) int {
	return slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP })
}

func typeOf(s *corev1.Service) corev1.ServiceType {
	return cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)
}

// applyObject makes an object. A Service whose node port of before cannot be had gets
// any other one, because a gateway at another port is better than none.
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
	return before != nil && now != nil && (before.Port != now.Port || !slices.Equal(before.Addresses, now.Addresses))
}
