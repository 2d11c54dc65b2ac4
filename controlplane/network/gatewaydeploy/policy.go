package gatewaydeploy

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// What a gateway listens on, where its template does not say otherwise.
const (
	defaultGenevePort  = 6091
	defaultMetricsPort = 8082
	// metricsPortName is what the templates call that port.
	metricsPortName = "gw-metrics"
)

// networkPolicy adds the NetworkPolicy, or takes it away if none is wanted. It
// speaks of ingress only: where a gateway sends to is decided by its objects.
//
//	node tunnels   UDP 6091           from the addresses of nodes
//	WireGuard      ports of Service   from anywhere; a client opens no door, as the peer only answers
//	metrics        TCP 8082           from the pods of one namespace
//
// The kubelet of a pod's own node always gets through, by the rules of
// NetworkPolicies.
func (f *Facts) networkPolicy(p *Plan) {
	if !f.Options.NetworkPolicies {
		if o := f.NetworkPolicy; o != nil && f.made(o) {
			p.Delete = append(p.Delete, o)
		}
		return
	}
	var rules []networkingv1.NetworkPolicyIngressRule
	if nodes := f.nodePeers(); len(nodes) > 0 || f.NodesUnmatched {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{
			Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, intstr.FromInt32(int32(cmp.Or(f.Options.GenevePort, defaultGenevePort))))},
			From:  nodes,
		})
	}
	if ports := f.wireguardPorts(); len(ports) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: ports})
	}
	if f.Options.MetricsNamespace != "" {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{
			Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, intstr.FromInt32(f.metricsPort()))},
			From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: f.Options.MetricsNamespace},
			}}},
		})
	}
	p.Objects = append(p.Objects, &networkingv1.NetworkPolicy{
		ObjectMeta: f.meta(childName(f.Gateway.GetName()), f.Gateway.self()),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: f.podLabels()}, Ingress: rules,
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	})
}

// nodePeers are the nodes as a policy names them. None is everybody: see
// NodesUnmatched.
func (f *Facts) nodePeers() (peers []networkingv1.NetworkPolicyPeer) {
	if f.NodesUnmatched {
		return nil
	}
	for _, prefix := range f.NodePrefixes {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: prefix.String()}})
	}
	return peers
}

// wireguardPorts are those of the pods to which the Service leads.
func (f *Facts) wireguardPorts() (ports []networkingv1.NetworkPolicyPort) {
	if f.Gateway.service == nil {
		return nil
	}
	for _, p := range f.Gateway.service.Spec.Ports {
		target := p.TargetPort
		if target == (intstr.IntOrString{}) {
			target = intstr.FromInt32(p.Port)
		}
		ports = append(ports, port(cmp.Or(p.Protocol, corev1.ProtocolTCP), target))
	}
	return ports
}

// metricsPort is the port that the template names so.
func (f *Facts) metricsPort() int32 {
	for _, c := range f.Gateway.deployment.Spec.Template.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == metricsPortName {
				return p.ContainerPort
			}
		}
	}
	return defaultMetricsPort
}

func port(protocol corev1.Protocol, number intstr.IntOrString) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number}
}

// disruptionBudget adds the PodDisruptionBudget where one pod can be away, or takes
// it away: with a single replica it would only forbid to drain the node.
func (f *Facts) disruptionBudget(p *Plan) {
	if !f.Options.DisruptionBudgets || f.replicas() < 2 {
		if o := f.DisruptionBudget; o != nil && f.made(o) {
			p.Delete = append(p.Delete, o)
		}
		return
	}
	p.Objects = append(p.Objects, &policyv1.PodDisruptionBudget{
		ObjectMeta: f.meta(childName(f.Gateway.GetName()), f.Gateway.self()),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: f.podLabels()},
		},
	})
}

// podLabels select the pods of the gateway.
func (f *Facts) podLabels() map[string]string {
	return labels.Merge(f.gatewayLabels(), map[string]string{networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway})
}

// made tells whether an object was made for the gateway.
func (f *Facts) made(o client.Object) bool { return metav1.IsControlledBy(o, f.Gateway) }
