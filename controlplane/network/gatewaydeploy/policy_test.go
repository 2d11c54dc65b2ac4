package gatewaydeploy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// doors are what a policy lets in, as "UDP 6091 from 192.0.2.0/31".
func doors(p *networkingv1.NetworkPolicy) (out []string) {
	for _, rule := range p.Spec.Ingress {
		from := ""
		for _, peer := range rule.From {
			switch {
			case peer.IPBlock != nil:
				from += " " + peer.IPBlock.CIDR
			case peer.NamespaceSelector != nil && peer.PodSelector == nil:
				from += " pods of " + peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]
			}
		}
		if len(rule.From) == 0 {
			from = " anywhere"
		}
		for _, port := range rule.Ports {
			out = append(out, string(*port.Protocol)+" "+port.Port.String()+" from"+from)
		}
	}
	return out
}

func TestNetworkPolicy(t *testing.T) {
	nodes := func(f *Facts) {
		f.NodePrefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.2/31"), netip.MustParsePrefix("2001:db8::1/128")}
	}
	for _, tt := range []struct {
		name   string
		facts  Facts
		change func(*Facts)
		want   []string // nil: no policy
	}{
		{"switched off", serverFacts(), func(f *Facts) { nodes(f); f.Options.NetworkPolicies = false }, nil},
		{"a server", serverFacts(), nodes, []string{
			"UDP 6091 from 192.0.2.2/31 2001:db8::1/128", "UDP 51840 from anywhere", "TCP 8082 from pods of monitoring"}},
		{"a client", clientFacts(), nodes, []string{"UDP 6091 from 192.0.2.2/31 2001:db8::1/128", "TCP 8082 from pods of monitoring"}},
		{"no node is known: nobody, not everybody", clientFacts(), func(*Facts) {}, []string{"TCP 8082 from pods of monitoring"}},
		{"a CNI that does not match nodes", clientFacts(), func(f *Facts) { nodes(f); f.NodesUnmatched = true }, []string{
			"UDP 6091 from anywhere", "TCP 8082 from pods of monitoring"}},
		{"no metrics, another port of nodes", clientFacts(), func(f *Facts) { nodes(f); f.Options.MetricsNamespace, f.Options.GenevePort = "", 6092 }, []string{
			"UDP 6092 from 192.0.2.2/31 2001:db8::1/128"}},
		{"ports of the template", serverFacts(), func(f *Facts) {
			f.Gateway.service.Spec.Ports[0].TargetPort = intstr.FromString("wireguard")
			f.Gateway.deployment.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "gw-metrics", ContainerPort: 9000}}
		}, []string{"UDP wireguard from anywhere", "TCP 9000 from pods of monitoring"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.facts
			f.Options = Options{LiqoNamespace: "liqo", NetworkPolicies: true, MetricsNamespace: "monitoring"}
			tt.change(&f)
			p := found[networkingv1.NetworkPolicy](Build(f).Objects, "gw-a")
			if p == nil {
				if tt.want != nil {
					t.Error("no policy")
				}
				return
			}
			if diff := cmp.Diff(tt.want, doors(p)); diff != "" {
				t.Errorf("lets in (-want +got):\n%s", diff)
			}
			pods := found[appsv1.Deployment](Build(f).Objects, "gw-a").Spec.Template.Labels
			for k, v := range p.Spec.PodSelector.MatchLabels {
				if pods[k] != v {
					t.Errorf("selects %s=%s, the pods have %q", k, v, pods[k])
				}
			}
			if !slices.Equal(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
				t.Errorf("speaks of %v", p.Spec.PolicyTypes)
			}
		})
	}
}

func TestDisruptionBudget(t *testing.T) {
	for _, tt := range []struct {
		name     string
		on       bool
		replicas int32
		want     bool
	}{
		{"switched off", false, 2, false}, {"one replica may not hold up a drain", true, 1, false}, {"two", true, 2, true},
	} {
		f := serverFacts()
		f.Options.DisruptionBudgets, f.Gateway.deployment.Spec.Replicas = tt.on, &tt.replicas
		b := found[policyv1.PodDisruptionBudget](Build(f).Objects, "gw-a")
		if (b != nil) != tt.want {
			t.Errorf("%s: %v", tt.name, b)
		}
		if b != nil && b.Spec.MaxUnavailable.IntValue() != 1 {
			t.Errorf("%s: %+v", tt.name, b.Spec)
		}
	}
}

// What is not wanted any more goes, but for what somebody else made.
func TestPoliciesAreRemoved(t *testing.T) {
	f := serverFacts()
	ours, theirs := f.meta("gw-a", f.Gateway.self()), metav1.ObjectMeta{Name: "gw-a", Namespace: "t"}
	f.NetworkPolicy, f.DisruptionBudget = &networkingv1.NetworkPolicy{ObjectMeta: ours}, &policyv1.PodDisruptionBudget{ObjectMeta: ours}
	if p := Build(f); len(p.Delete) != 2 {
		t.Errorf("deletes %v", p.Delete)
	}
	f.NetworkPolicy, f.DisruptionBudget = &networkingv1.NetworkPolicy{ObjectMeta: theirs}, &policyv1.PodDisruptionBudget{ObjectMeta: theirs}
	if p := Build(f); len(p.Delete) != 0 {
		t.Errorf("deletes %v", p.Delete)
	}
}
