package kubelab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestPolicyRules(t *testing.T) {
	tests := []struct {
		name string
		spec string // of a policy in the namespace app
		want string // the rules of the chains of app/web, on node-1
	}{
		{"nothing may come", `{podSelector: {}, policyTypes: [Ingress]}`, `ingress: counter drop`},
		{"everything may come", `{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`, `ingress: return; counter drop`},
		{"another pod is meant", `{podSelector: {matchLabels: {app: other}}, policyTypes: [Ingress]}`, ``},
		{"a block with a hole", `{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 6091, protocol: UDP}]}]}`,
			`ingress: ip saddr 10.0.0.0/8 ip saddr != 10.1.0.0/16 udp dport 6091 return; counter drop`},
		{"pods of the namespace", `{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`,
			`ingress: ip saddr { 10.243.1.5 } return; counter drop`},
		{"pods of other namespaces", `{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {name: monitoring}}}], ports: [{port: metrics}]}]}`,
			`ingress: ip saddr { 10.243.0.9 } tcp dport 8082 return; counter drop`},
		{"nobody is such a pod", `{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]}`,
			`ingress: counter drop`},
		{"ports", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80, endPort: 90}, {protocol: UDP}]}]}`,
			`egress: tcp dport 80-90 return; meta l4proto udp return; counter drop`},
		{"both directions", `{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`,
			`ingress: counter drop; egress: ip daddr 0.0.0.0/0 return; counter drop`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"}}
			if err := yaml.UnmarshalStrict([]byte(tt.spec), &p.Spec); err != nil {
				t.Fatal(err)
			}
			facts := policyFacts{
				policies: []*networkingv1.NetworkPolicy{p},
				pods: []*corev1.Pod{
					policyPod("app", "web", "node-1", "10.243.0.5"), policyPod("app", "client", "node-2", "10.243.1.5"),
					policyPod("monitoring", "prometheus", "node-1", "10.243.0.9"),
				},
				namespaces: []*corev1.Namespace{
					{ObjectMeta: metav1.ObjectMeta{Name: "app"}},
					{ObjectMeta: metav1.ObjectMeta{Name: "monitoring", Labels: map[string]string{"name": "monitoring"}}},
				},
			}
			if diff := cmp.Diff(tt.want, chainsOf(facts.rules("node-1"), "app/web")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func policyPod(namespace, name, node, addr string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8082}},
		}}},
		Status: corev1.PodStatus{PodIP: addr},
	}
}

// chainsOf returns the chains of a pod, in one line.
func chainsOf(script, pod string) string {
	var out []string
	for _, chain := range strings.Split(script, "\tchain ")[1:] {
		head, body, _ := strings.Cut(chain, "\n")
		if !strings.HasSuffix(head, "# "+pod) {
			continue
		}
		name, _, _ := strings.Cut(head, "-")
		rules, _, _ := strings.Cut(body, "\n\t}")
		out = append(out, name+": "+strings.ReplaceAll(strings.TrimSpace(rules), "\n\t\t", "; "))
	}
	return strings.Join(out, "; ")
}
