package kubelab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// policyTable is where a node's rules are.
const policyTable = "policies"

// policyFacts are what NetworkPolicies are about.
type policyFacts struct {
	policies   []*networkingv1.NetworkPolicy
	pods       []*corev1.Pod
	namespaces []*corev1.Namespace
}

// rules returns the nftables script that enforces the NetworkPolicies for the
// pods of one node:
//
//   - A pod that no policy of a direction selects is free in that direction;
//     another may do what any rule of any such policy allows.
//   - Answers to what was allowed are allowed. A new policy ends what goes on.
//   - What a node says to its own pods, and they to it, is not judged.
//
// Only IPv4, as the lab has no other.
func (f policyFacts) rules(node string) string {
	var chains, jumps strings.Builder
	for i, pod := range f.sortedPods() {
		if pod.Spec.NodeName != node {
			continue
		}
		for _, d := range directions {
			selecting := f.selecting(pod, d.kind)
			if len(selecting) == 0 {
				continue
			}
			chain := fmt.Sprintf("%s-%d", strings.ToLower(string(d.kind)), i)
			fmt.Fprintf(&chains, "\tchain %s { # %s/%s\n", chain, pod.Namespace, pod.Name)
			for _, p := range selecting {
				for _, match := range d.matches(f, p, pod) {
					fmt.Fprintf(&chains, "\t\t%s\n", strings.TrimSpace(match+" return"))
				}
			}
			chains.WriteString("\t\tcounter drop\n\t}\n")
			fmt.Fprintf(&jumps, "\t\tip %s %s jump %s\n", d.self, pod.Status.PodIP, chain)
		}
	}
	// A table that is there can be deleted, so it is made first.
	script := fmt.Sprintf("table ip %[1]s\ndelete table ip %[1]s\n", policyTable)
	if jumps.Len() == 0 {
		return script
	}
	return script + fmt.Sprintf(`table ip %s {
%s	chain forward {
		type filter hook forward priority filter;
		ct direction reply accept
		ct state related accept
%s	}
}
`, policyTable, chains.String(), jumps.String())
}

// direction is one of the two that a policy is about, as seen from the pod that
// it selects.
type direction struct {
	kind    networkingv1.PolicyType
	self    string // the pod's address in a packet
	matches func(policyFacts, *networkingv1.NetworkPolicy, *corev1.Pod) []string
}

var directions = []direction{
	{networkingv1.PolicyTypeIngress, "daddr", func(f policyFacts, p *networkingv1.NetworkPolicy, pod *corev1.Pod) (out []string) {
		for _, rule := range p.Spec.Ingress {
			out = append(out, product(f.peers("saddr", p.Namespace, rule.From), ports(rule.Ports, pod))...)
		}
		return out
	}},
	{networkingv1.PolicyTypeEgress, "saddr", func(f policyFacts, p *networkingv1.NetworkPolicy, _ *corev1.Pod) (out []string) {
		for _, rule := range p.Spec.Egress {
			out = append(out, product(f.peers("daddr", p.Namespace, rule.To), ports(rule.Ports, nil))...)
		}
		return out
	}},
}

// sortedPods are the pods with a network of their own, in an order that does not
// depend on who tells.
func (f policyFacts) sortedPods() []*corev1.Pod {
	out := slices.DeleteFunc(slices.Clone(f.pods), func(p *corev1.Pod) bool { return p.Spec.HostNetwork || p.Status.PodIP == "" || ended(p) })
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// ended tells whether the pod's address may be another's already.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// selecting returns the policies of one direction that select a pod.
func (f policyFacts) selecting(pod *corev1.Pod, kind networkingv1.PolicyType) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for _, p := range f.policies {
		if p.Namespace == pod.Namespace && slices.Contains(p.Spec.PolicyTypes, kind) && selects(&p.Spec.PodSelector, pod.Labels) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *networkingv1.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// selects tells whether a selector selects an object with these labels. The API
// server has refused what cannot be parsed.
func selects(s *metav1.LabelSelector, of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of))
}

// peers returns a match for each peer of a rule; none means everybody.
func (f policyFacts) peers(side, namespace string, peers []networkingv1.NetworkPolicyPeer) []string {
	if len(peers) == 0 {
		return []string{""}
	}
	var out []string
	for _, peer := range peers {
		if block := peer.IPBlock; block != nil {
			match := fmt.Sprintf("ip %s %s", side, block.CIDR)
			for _, except := range block.Except {
				match += fmt.Sprintf(" ip %s != %s", side, except)
			}
			if !strings.Contains(block.CIDR, ":") {
				out = append(out, match)
			}
			continue
		}
		if addresses := f.addresses(namespace, peer); len(addresses) > 0 {
			out = append(out, fmt.Sprintf("ip %s { %s }", side, strings.Join(addresses, ", ")))
		}
	}
	return out
}

// addresses are those of the pods that a peer names.
func (f policyFacts) addresses(namespace string, peer networkingv1.NetworkPolicyPeer) []string {
	in := map[string]bool{}
	for _, n := range f.namespaces {
		if peer.NamespaceSelector == nil {
			in[n.Name] = n.Name == namespace
		} else {
			in[n.Name] = selects(peer.NamespaceSelector, n.Labels)
		}
	}
	var out []string
	for _, pod := range f.sortedPods() {
		if in[pod.Namespace] && (peer.PodSelector == nil || selects(peer.PodSelector, pod.Labels)) {
			out = append(out, pod.Status.PodIP)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ports returns a match for each port of a rule; none means all. A port's name
// is one of the pod's, and in a rule about others it matches nothing.
func ports(all []networkingv1.NetworkPolicyPort, pod *corev1.Pod) []string {
	if len(all) == 0 {
		return []string{""}
	}
	var out []string
	for _, p := range all {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		proto := strings.ToLower(string(protocol))
		switch {
		case p.Port == nil:
			out = append(out, "meta l4proto "+proto)
		case p.Port.Type == intstr.String:
			for _, number := range named(pod, p.Port.StrVal, protocol) {
				out = append(out, fmt.Sprintf("%s dport %d", proto, number))
			}
		case p.EndPort != nil:
			out = append(out, fmt.Sprintf("%s dport %d-%d", proto, p.Port.IntVal, *p.EndPort))
		default:
			out = append(out, fmt.Sprintf("%s dport %d", proto, p.Port.IntVal))
		}
	}
	return out
}

// named are the numbers of a pod's ports with a name.
func named(pod *corev1.Pod, name string, protocol corev1.Protocol) []int32 {
	if pod == nil {
		return nil
	}
	var out []int32
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol {
				out = append(out, p.ContainerPort)
			}
		}
	}
	return out
}

// product joins every peer with every port.
func product(peers, ports []string) []string {
	var out []string
	for _, peer := range peers {
		for _, port := range ports {
			out = append(out, strings.TrimSpace(peer+" "+port))
		}
	}
	return out
}
