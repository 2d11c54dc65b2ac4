package doctor

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/admin/survey"
)

func TestInTheWay(t *testing.T) {
	gw := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"networking.liqo.io/component": "gateway"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "geneve", ContainerPort: 6091, Protocol: corev1.ProtocolUDP}, {Name: "metrics", ContainerPort: 6091, Protocol: corev1.ProtocolTCP},
		}}}},
	}
	udp, tcp := corev1.ProtocolUDP, corev1.ProtocolTCP
	number := func(p *corev1.Protocol, n int32) networkingv1.NetworkPolicyPort {
		port := intstr.FromInt32(n)
		return networkingv1.NetworkPolicyPort{Protocol: p, Port: &port}
	}
	name := func(n string) networkingv1.NetworkPolicyPort {
		port := intstr.FromString(n)
		return networkingv1.NetworkPolicyPort{Protocol: &udp, Port: &port}
	}
	span := func(from, to int32) networkingv1.NetworkPolicyPort {
		p := number(&udp, from)
		p.EndPort = &to
		return p
	}
	block := func(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
	}
	pods := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
	type (
		spec = networkingv1.NetworkPolicySpec
		in   = networkingv1.NetworkPolicyIngressRule
		out  = networkingv1.NetworkPolicyEgressRule
		port = networkingv1.NetworkPolicyPort
		peer = networkingv1.NetworkPolicyPeer
	)
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	ingress, egress := both[:1], both[1:]
	nodes := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	fromNodes := flow{direction: networkingv1.PolicyTypeIngress, hosts: nodes, port: 6091}
	fromAll := flow{direction: networkingv1.PolicyTypeIngress, port: 51840}
	toServer := flow{direction: networkingv1.PolicyTypeEgress, hosts: nodes[:1], port: 32009}
	for _, tt := range []struct {
		name     string
		flow     flow
		policies []spec
		blocked  int // policies in the way
	}{
		{"no policy", fromNodes, nil, 0},
		{"one for other pods", fromNodes, []spec{{PolicyTypes: both, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}}, 0},
		{"one for this pod by its label", fromNodes, []spec{{PolicyTypes: both, PodSelector: metav1.LabelSelector{MatchLabels: gw.Labels}}}, 1},
		{"deny all", fromNodes, []spec{{PolicyTypes: ingress}}, 1},
		{"two that deny", fromNodes, []spec{{PolicyTypes: ingress}, {PolicyTypes: both}}, 2},
		{"the other direction", fromNodes, []spec{{PolicyTypes: egress}}, 0},
		{"without types it is ingress", fromNodes, []spec{{}}, 1},
		{"without types and rules it is not egress", toServer, []spec{{}}, 0},
		{"without types, with rules, it is egress", toServer, []spec{{Egress: []out{{To: []peer{pods}}}}}, 1},
		{"a rule for all", fromNodes, []spec{{Ingress: []in{{}}}}, 0},
		{"one of two lets pass", fromNodes, []spec{{PolicyTypes: ingress}, {Ingress: []in{{}}}}, 0},
		{"the port", fromNodes, []spec{{Ingress: []in{{Ports: []port{number(&udp, 6091)}}}}}, 0},
		{"another port", fromNodes, []spec{{Ingress: []in{{Ports: []port{number(&udp, 6092)}}}}}, 1},
		{"the port of TCP", fromNodes, []spec{{Ingress: []in{{Ports: []port{number(&tcp, 6091)}}}}}, 1},
		{"no protocol is TCP", fromNodes, []spec{{Ingress: []in{{Ports: []port{number(nil, 6091)}}}}}, 1},
		{"all of UDP", fromNodes, []spec{{Ingress: []in{{Ports: []port{{Protocol: &udp}}}}}}, 0},
		{"the port in a span", fromNodes, []spec{{Ingress: []in{{Ports: []port{span(6000, 6091)}}}}}, 0},
		{"the port beyond a span", fromNodes, []spec{{Ingress: []in{{Ports: []port{span(6000, 6090)}}}}}, 1},
		{"the port by name", fromNodes, []spec{{Ingress: []in{{Ports: []port{name("geneve")}}}}}, 0},
		{"a name of TCP", fromNodes, []spec{{Ingress: []in{{Ports: []port{name("metrics")}}}}}, 1},
		{"a name at the other end", toServer, []spec{{Egress: []out{{Ports: []port{name("geneve")}}}}}, 1},
		{"from pods only", fromNodes, []spec{{Ingress: []in{{From: []peer{pods}}}}}, 1},
		{"from the nodes", fromNodes, []spec{{Ingress: []in{{From: []peer{pods, block("192.0.2.0/24")}}}}}, 0},
		{"from one of the nodes", fromNodes, []spec{{Ingress: []in{{From: []peer{block("192.0.2.1/32")}}}}}, 1},
		{"from all but a node", fromNodes, []spec{{Ingress: []in{{From: []peer{block("0.0.0.0/0", "192.0.2.2/32")}}}}}, 1},
		{"the nodes by two policies", fromNodes, []spec{{Ingress: []in{{From: []peer{block("192.0.2.1/32")}}}}, {Ingress: []in{{From: []peer{block("192.0.2.2/32")}}}}}, 0},
		{"from anywhere", fromAll, []spec{{Ingress: []in{{From: []peer{block("0.0.0.0/0")}}}}}, 0},
		{"from almost anywhere", fromAll, []spec{{Ingress: []in{{From: []peer{block("0.0.0.0/0", "10.0.0.0/8")}}}}}, 1},
		{"from a net", fromAll, []spec{{Ingress: []in{{From: []peer{block("192.0.2.0/24")}}}}}, 1},
		{"what is no CIDR", fromNodes, []spec{{Ingress: []in{{From: []peer{block("192.0.2.0")}}}}}, 1},
		{"to the server", toServer, []spec{{PolicyTypes: both, Egress: []out{{To: []peer{block("192.0.2.1/32")}, Ports: []port{number(&udp, 32009)}}}}}, 0},
		{"to nobody", toServer, []spec{{PolicyTypes: egress}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var policies []networkingv1.NetworkPolicy
			for _, s := range tt.policies {
				policies = append(policies, networkingv1.NetworkPolicy{Spec: s})
			}
			if got := blockingPolicies(policies, gw, tt.flow); len(got) != tt.blocked {
				t.Errorf("%d policies are in the way, want %d", len(got), tt.blocked)
			}
		})
	}
}

func TestTrafficOf(t *testing.T) {
	report := func(started time.Time, s survey.TunnelStats) *survey.GatewayReport {
		return &survey.GatewayReport{Started: started, DataPlane: survey.DataPlane{Tunnel: s}}
	}
	before := survey.TunnelStats{TxInitiations: 3, RxInitiations: 1, TxResponses: 1, RxResponses: 2, TxBytes: 1000, RxBytes: 900}
	after := survey.TunnelStats{TxInitiations: 4, RxInitiations: 1, TxResponses: 1, RxResponses: 2, TxBytes: 1148, RxBytes: 900}
	for _, tt := range []struct {
		name string
		b, a *survey.GatewayReport
		want traffic
	}{
		{"the same process", report(now, before), report(now, after), traffic{txInitiations: 1, txBytes: 148}},
		{"a new process", report(now, before), report(now.Add(time.Second), survey.TunnelStats{RxInitiations: 2, RxBytes: 50}), traffic{rxInitiations: 2, rxBytes: 50}},
		{"a new peer starts from zero", report(now, before), report(now, survey.TunnelStats{TxInitiations: 3, RxInitiations: 1, TxResponses: 1, RxResponses: 2, TxBytes: 148}),
			traffic{txBytes: 148}},
	} {
		got := trafficOf(tt.b, tt.a)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(traffic{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if (traffic{}).sent() || (traffic{}).received() || !(traffic{txResponses: 1}).sent() || !(traffic{rxInitiations: 1}).received() {
		t.Error("sent and received")
	}
}
