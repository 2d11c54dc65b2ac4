package doctor

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// flow is traffic between a pod and something that is no pod: a node, or a host
// somewhere else. Policies let pods pass by selectors, and everything else by its
// address only.
type flow struct {
	// what it is for, in a sentence: "packets from the nodes".
	what      string
	direction networkingv1.PolicyType // seen from the pod
	// hosts are all other ends; none: any address.
	hosts []netip.Addr
	port  int32 // UDP; of the pod for ingress, of the other end for egress
}

// blockingPolicies returns the policies that keep a flow from a pod, nil if it passes.
// What one policy lets pass passes, whatever others say; a direction that no
// policy selects the pod for is open (NetworkPolicy v1).
func blockingPolicies(policies []networkingv1.NetworkPolicy, pod *corev1.Pod, f flow) (blocking []*networkingv1.NetworkPolicy) {
	hosts := f.hosts
	if len(hosts) == 0 {
		hosts = []netip.Addr{{}} // any
	}
	for _, host := range hosts {
		var selecting []*networkingv1.NetworkPolicy
		passes := false
		for i := range policies {
			p := &policies[i]
			if !isolates(p, f.direction) || !selects(&p.Spec.PodSelector, pod.Labels) {
				continue
			}
			selecting = append(selecting, p)
			passes = passes || admits(p, pod, f, host)
		}
		if !passes && len(selecting) > 0 {
			return selecting
		}
	}
	return nil
}

// isolates tells whether a policy is about a direction. Without policyTypes it is
// about ingress, and about egress if it has rules for it.
func isolates(p *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(p.Spec.PolicyTypes) > 0 {
		return slices.Contains(p.Spec.PolicyTypes, direction)
	}
	return direction == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
}

// selects tells whether a selector selects labels. One that cannot be read selects
// nothing: API servers refuse such.
func selects(s *metav1.LabelSelector, l map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(l))
}

// admits tells whether a rule of the policy lets the flow pass.
func admits(p *networkingv1.NetworkPolicy, pod *corev1.Pod, f flow, host netip.Addr) bool {
	if f.direction == networkingv1.PolicyTypeIngress {
		return slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return hasPort(r.Ports, f.port, pod) && hasHost(r.From, host)
		})
	}
	return slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
		return hasPort(r.Ports, f.port, nil) && hasHost(r.To, host)
	})
}

// hasPort tells whether ports of a rule include a UDP port. Names are those of the
// pod's containers; of another end nobody knows them.
func hasPort(ports []networkingv1.NetworkPolicyPort, port int32, pod *corev1.Pod) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol == nil || *p.Protocol != corev1.ProtocolUDP { // nil is TCP
			return false
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.StrVal != "":
			return namedPort(pod, p.Port.StrVal) == port
		case p.EndPort != nil:
			return p.Port.IntVal <= port && port <= *p.EndPort
		}
		return p.Port.IntVal == port
	})
}

func namedPort(pod *corev1.Pod, name string) int32 {
	if pod == nil {
		return 0
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name && p.Protocol == corev1.ProtocolUDP {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// hasHost tells whether peers of a rule include a host, of any address where none
// is given.
func hasHost(peers []networkingv1.NetworkPolicyPeer, host netip.Addr) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock == nil {
			return false // pods only
		}
		block, err := netip.ParsePrefix(p.IPBlock.CIDR)
		if err != nil {
			return false
		}
		if !host.IsValid() {
			return block.Bits() == 0 && len(p.IPBlock.Except) == 0
		}
		return block.Contains(host) && !slices.ContainsFunc(p.IPBlock.Except, func(text string) bool {
			except, err := netip.ParsePrefix(text)
			return err == nil && except.Contains(host)
		})
	})
}
