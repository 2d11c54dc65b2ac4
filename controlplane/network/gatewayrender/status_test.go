package gatewayrender

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

const madeObject = `
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServer
metadata: {name: server, namespace: tenant, uid: u2, generation: 7}
status:
  endpoint: {addresses: [172.19.0.8], port: 32009, protocol: UDP}
  internalEndpoint: {ip: 10.0.0.7, node: n1}
  secretRef: {name: gw-server, namespace: tenant}
  conditions:
  - {type: KeysReady, status: "True", reason: KeysGenerated, message: k, observedGeneration: 7, lastTransitionTime: "2026-01-02T03:04:05Z"}
  - {type: Deployed, status: "False", reason: DeploymentNotReady, message: d, observedGeneration: 6, lastTransitionTime: "2026-01-02T03:04:05Z"}
  - {type: Other, status: "True", reason: X, message: "", observedGeneration: 7, lastTransitionTime: "2026-01-02T03:04:05Z"}
`

func TestObserve(t *testing.T) {
	made := object(t, madeObject)
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	rendered := metav1.Condition{Type: "TemplateRendered", Status: "True", Reason: "TemplateRendered", ObservedGeneration: 3, Message: "WgGatewayServer server is as T liqo/t says"}
	keys := metav1.Condition{Type: "KeysReady", Status: "True", Reason: "KeysGenerated", Message: "k", ObservedGeneration: 3}
	deployed := metav1.Condition{Type: "Deployed", Status: "False", Reason: "DeploymentNotReady", Message: "d", ObservedGeneration: 2}
	older := func(c metav1.Condition) metav1.Condition { c.ObservedGeneration = 2; return c }
	full := networkingv1beta1.GatewayServerStatus{
		Endpoint:         &networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8"}, Port: 32009, Protocol: corev1.ProtocolUDP},
		InternalEndpoint: &networkingv1beta1.InternalEndpoint{IP: "10.0.0.7", Node: "n1"},
		SecretRef:        &corev1.ObjectReference{Name: "gw-server", Namespace: "tenant"},
		ServerRef:        &corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServer", Name: "server", Namespace: "tenant", UID: "u2"},
	}
	with := func(s networkingv1beta1.GatewayServerStatus, conditions ...metav1.Condition) networkingv1beta1.GatewayServerStatus {
		s.Conditions = conditions
		return s
	}
	plan := Plan{Object: made, Template: "T liqo/t"}
	pipe := made.DeepCopy()
	pipe.SetAPIVersion("example.org/v1")
	pipe.SetKind("Pipe")
	other := full
	other.ServerRef = reference(pipe)
	otherPorts := other
	otherPorts.Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8"}, Ports: []int32{32009, 501}, Protocol: corev1.ProtocolUDP}
	for _, tt := range []struct {
		name    string
		ports   []int32
		before  networkingv1beta1.GatewayServerStatus
		outcome Outcome
		want    networkingv1beta1.GatewayServerStatus
	}{
		{"an object that is as it should be", nil, with(full, metav1.Condition{Type: "EndpointReady"}, metav1.Condition{Type: "InternalNetworkReady"}),
			Outcome{Plan: plan, Object: made},
			with(full, metav1.Condition{Type: "InternalNetworkReady"}, rendered, keys, deployed)},
		{"one that was changed just now speaks of the generation before", nil, networkingv1beta1.GatewayServerStatus{}, Outcome{Plan: plan, Object: made, Wrote: true},
			with(full, rendered, older(keys), deployed)},
		{"one that is there in a moment", nil, with(full, keys), Outcome{Plan: plan, Wrote: true}, with(networkingv1beta1.GatewayServerStatus{
			Endpoint: full.Endpoint, InternalEndpoint: full.InternalEndpoint, SecretRef: full.SecretRef, ServerRef: full.ServerRef,
		}, keys, rendered)},
		{"a bad template leaves what there is", nil, networkingv1beta1.GatewayServerStatus{},
			Outcome{Plan: Plan{Problem: &Problem{"TemplateInvalid", "bad"}}, Object: made},
			with(full, metav1.Condition{Type: "TemplateRendered", Status: "False", Reason: "TemplateInvalid", Message: "bad", ObservedGeneration: 3}, older(keys), deployed)},
		{"a bad template and nothing there", nil, with(full, keys, deployed), Outcome{Plan: Plan{Problem: &Problem{"TemplateInvalid", "bad"}}},
			with(networkingv1beta1.GatewayServerStatus{}, metav1.Condition{Type: "TemplateRendered", Status: "False", Reason: "TemplateInvalid", Message: "bad", ObservedGeneration: 3})},
		{"a refusal", nil, networkingv1beta1.GatewayServerStatus{}, Outcome{Plan: plan, Object: made, Refused: &Problem{"ObjectRefused", "no"}},
			with(full, metav1.Condition{Type: "TemplateRendered", Status: "False", Reason: "ObjectRefused", Message: "no", ObservedGeneration: 3}, older(keys), deployed)},
		{"a template that has no place for several ports", []int32{500, 501}, full,
			Outcome{Plan: Plan{Object: made, Template: "T liqo/t", FirstPort: &Problem{"FirstPortOnly", "why"}}, Object: made},
			with(full, rendered, metav1.Condition{Type: "AllPortsServed", Status: "False", Reason: "FirstPortOnly", ObservedGeneration: 3, Message: "why"}, keys, deployed)},
		{"several ports, of which the Service has the first so far", []int32{500, 501}, with(full, metav1.Condition{Type: "AllPortsServed"}), Outcome{Plan: plan, Object: made},
			with(full, rendered, keys, deployed)},
		{"another technology that has one tunnel", []int32{500, 501}, full, Outcome{Plan: Plan{Object: pipe, Template: "T t"}, Object: pipe},
			with(other, metav1.Condition{Type: "TemplateRendered", Status: "True", Reason: "TemplateRendered", ObservedGeneration: 3, Message: "Pipe server is as T t says"},
				metav1.Condition{Type: "AllPortsServed", Status: "False", Reason: "FirstPortOnly", ObservedGeneration: 3,
					Message: "spec.endpoint.ports has 2 entries, but Pipe server has 1 in its status.endpoint: let T t pass on the others"}, keys, deployed)},
		{"another technology that has several", []int32{32009, 501}, full,
			Outcome{Plan: Plan{Object: pipe, Template: "T t"}, Object: changed(changed(pipe, nil, "status", "endpoint", "port"), []any{int64(32009), int64(501)}, "status", "endpoint", "ports")},
			with(otherPorts, metav1.Condition{Type: "TemplateRendered", Status: "True", Reason: "TemplateRendered", ObservedGeneration: 3, Message: "Pipe server is as T t says"}, keys, deployed)},
		{"one port in the list", []int32{500}, full, Outcome{Plan: plan, Object: made}, with(full, rendered, keys, deployed)},
		{"an endpoint without a port is none", nil, networkingv1beta1.GatewayServerStatus{}, Outcome{Plan: plan, Object: changed(made, map[string]any{"addresses": []any{"a"}}, "status", "endpoint")},
			with(networkingv1beta1.GatewayServerStatus{InternalEndpoint: full.InternalEndpoint, SecretRef: full.SecretRef, ServerRef: full.ServerRef}, rendered, keys, deployed)},
		{"a status that is none of a gateway", nil, networkingv1beta1.GatewayServerStatus{}, Outcome{Plan: plan, Object: changed(made, "x", "status", "endpoint")},
			with(networkingv1beta1.GatewayServerStatus{ServerRef: full.ServerRef}, metav1.Condition{Type: "TemplateRendered", Status: "False", Reason: "TemplateInvalid", ObservedGeneration: 3,
				Message: "T liqo/t: WgGatewayServer server has a status that is not one of a gateway: " + statusError(changed(made, "x", "status", "endpoint")).Error()})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := testServer(func(s *networkingv1beta1.GatewayServer) {
				s.Status = *tt.before.DeepCopy()
				if tt.ports != nil {
					s.Spec.Endpoint.Port, s.Spec.Endpoint.Ports = 0, tt.ports
				}
			})
			serverKind.gatewayOf(s).observe(tt.outcome)
			if diff := cmp.Diff(tt.want, s.Status, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, c := range s.Status.Conditions {
				if c.Type == "KeysReady" && tt.before.Conditions == nil && !c.LastTransitionTime.Equal(&at) {
					t.Errorf("KeysReady since %v, not %v", c.LastTransitionTime, at)
				}
			}
		})
	}
}

func changed(u *unstructured.Unstructured, v any, path ...string) *unstructured.Unstructured {
	u = u.DeepCopy()
	_ = unstructured.SetNestedField(u.Object, v, path...)
	return u
}

func statusError(u *unstructured.Unstructured) error {
	if _, err := readStatus(u); err != nil {
		return err
	}
	return errors.New("the status can be read")
}

func TestNews(t *testing.T) {
	a := metav1.Condition{Type: "TemplateRendered", Status: "False", Reason: "TemplateInvalid", Message: "a"}
	b := metav1.Condition{Type: "TemplateRendered", Status: "False", Reason: "TemplateInvalid", Message: "b"}
	keys := metav1.Condition{Type: "KeysReady", Status: "False", Reason: "X"}
	for _, tt := range []struct {
		name              string
		before, now, want []metav1.Condition
	}{
		{"the first", nil, []metav1.Condition{a}, []metav1.Condition{a}},
		{"the same", []metav1.Condition{a}, []metav1.Condition{a}, nil},
		{"another message", []metav1.Condition{a}, []metav1.Condition{b}, []metav1.Condition{b}},
		{"gone", []metav1.Condition{a}, nil, nil},
		{"somebody else's", nil, []metav1.Condition{keys}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, news(tt.before, tt.now), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
