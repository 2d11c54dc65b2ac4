package peering

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

func TestMovedFrom(t *testing.T) {
	have := networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: "NodePort", NodePort: 30742}
	several := networkingv1beta1.ServerEndpoint{Ports: []int32{51840, 51841}, ServiceType: "NodePort", NodePorts: []int32{30742}}
	for _, tt := range []struct {
		name  string
		have  networkingv1beta1.ServerEndpoint
		flags ServerFlags
		want  bool
	}{
		{"no flags", have, ServerFlags{}, false},
		{"the same", have, ServerFlags{ServiceType: "NodePort", Ports: []int32{51840}, NodePorts: []int32{30742}}, false},
		{"a template is no endpoint", have, ServerFlags{Template: TemplateFlags{Name: "fast"}}, false},
		{"another type", have, ServerFlags{ServiceType: "LoadBalancer"}, true},
		{"another port", have, ServerFlags{Ports: []int32{51841}}, true},
		{"another node port", have, ServerFlags{NodePorts: []int32{30743}}, true},
		{"an address", have, ServerFlags{LoadBalancerIP: "192.0.2.1"}, true},
		{"the first of several", several, ServerFlags{Ports: []int32{51840}, NodePorts: []int32{30742}}, false},
		{"one more", have, ServerFlags{Ports: []int32{51840, 51841}, NodePorts: []int32{30742, 30743}}, false},
		{"one before it", have, ServerFlags{Ports: []int32{51839, 51840}}, true},
		{"another second", several, ServerFlags{Ports: []int32{51840, 51842}}, false},
		{"none of several", several, ServerFlags{Ports: []int32{51839}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.flags.movedFrom(tt.have); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSuccessor(t *testing.T) {
	old := &networkingv1beta1.GatewayServer{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec: networkingv1beta1.GatewayServerSpec{
			MTU: 1400, Endpoint: networkingv1beta1.ServerEndpoint{Port: 51000, ServiceType: "NodePort", NodePort: 30742},
			SecretRef: corev1.LocalObjectReference{Name: "mine"}, ServiceLabels: map[string]string{"x": "y"},
		},
	}
	ref := ServerTemplate("fast", "liqo")
	for _, tt := range []struct {
		name  string
		flags Options
		want  networkingv1beta1.ServerEndpoint
		mtu   int
	}{
		{"another type has no node port", Options{Server: ServerFlags{ServiceType: "LoadBalancer"}}, networkingv1beta1.ServerEndpoint{Port: 51000, ServiceType: "LoadBalancer"}, 1400},
		{"another port keeps the node port", Options{Server: ServerFlags{Ports: []int32{51840}}}, networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: "NodePort", NodePort: 30742}, 1400},
		{"all", Options{MTU: 1300, Server: ServerFlags{ServiceType: "LoadBalancer", Ports: []int32{1}, NodePorts: []int32{30001}, LoadBalancerIP: "192.0.2.1"}},
			networkingv1beta1.ServerEndpoint{Port: 1, ServiceType: "LoadBalancer", NodePort: 30001, LoadBalancerIP: "192.0.2.1"}, 1300},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.flags.successor(old, ref)
			want := &networkingv1beta1.GatewayServer{
				TypeMeta: typeMeta("GatewayServer"), ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", Labels: map[string]string{"a": "b"}},
				Spec: networkingv1beta1.GatewayServerSpec{ServerTemplateRef: ref, MTU: tt.mtu, Endpoint: tt.want, SecretRef: old.Spec.SecretRef, ServiceLabels: old.Spec.ServiceLabels},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTunnelsChangeInPlace(t *testing.T) {
	one := networkingv1beta1.ServerEndpoint{Port: 500, ServiceType: "NodePort", NodePort: 30500}
	three := networkingv1beta1.ServerEndpoint{Ports: []int32{500, 501, 502}, ServiceType: "NodePort", NodePorts: []int32{30500, 30501, 30502}}
	for _, tt := range []struct {
		name  string
		have  networkingv1beta1.ServerEndpoint
		flags ServerFlags
		want  networkingv1beta1.ServerEndpoint
	}{
		{"no flags", three, ServerFlags{}, three},
		{"a list of one stays", networkingv1beta1.ServerEndpoint{Ports: []int32{500}}, ServerFlags{Ports: []int32{500}}, networkingv1beta1.ServerEndpoint{Ports: []int32{500}}},
		{"more", one, ServerFlags{Ports: []int32{500, 501}}, networkingv1beta1.ServerEndpoint{Ports: []int32{500, 501}, ServiceType: "NodePort", NodePort: 30500}},
		{"more, with node ports", one, ServerFlags{Ports: []int32{500, 501}, NodePorts: []int32{30500, 30501}},
			networkingv1beta1.ServerEndpoint{Ports: []int32{500, 501}, ServiceType: "NodePort", NodePorts: []int32{30500, 30501}}},
		{"fewer", three, ServerFlags{Ports: []int32{500}}, one},
		{"one in between less", three, ServerFlags{Ports: []int32{500, 502}},
			networkingv1beta1.ServerEndpoint{Ports: []int32{500, 502}, ServiceType: "NodePort", NodePorts: []int32{30500, 30502}}},
		{"one in between more", three, ServerFlags{Ports: []int32{500, 503, 501}}, networkingv1beta1.ServerEndpoint{Ports: []int32{500, 503, 501}, ServiceType: "NodePort", NodePort: 30500}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := *tt.have.DeepCopy()
			tt.flags.change(&got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditionMissing(t *testing.T) {
	for _, tt := range []struct {
		name       string
		conditions []metav1.Condition
		made       *corev1.ObjectReference
		want       string
		complaint  bool
	}{
		{name: "none, of another technology", made: &corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Tunnel"}},
		{name: "none", want: "GatewayServer n/s has no condition Deployed: no controller has processed it yet"},
		{name: "true", conditions: []metav1.Condition{{Type: "Deployed", Status: "True", ObservedGeneration: 2}}},
		{name: "true for an older spec", conditions: []metav1.Condition{{Type: "Deployed", Status: "True", ObservedGeneration: 1}},
			want: "GatewayServer n/s: the controllers have not processed its latest version yet"},
		{name: "false", conditions: []metav1.Condition{{Type: "Deployed", Status: "False", ObservedGeneration: 2, Reason: "DeploymentNotReady", Message: "no pod."}}, want: "GatewayServer n/s: no pod"},
		{name: "false until somebody cures it", conditions: []metav1.Condition{{Type: "Deployed", Status: "False", ObservedGeneration: 2, Reason: "ObjectRefused", Message: "no"}}, want: "GatewayServer n/s: no", complaint: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := serverIn("n", "s", 0)
			g.server.Generation, g.server.Status.Conditions, g.server.Status.ServerRef = 2, tt.conditions, tt.made
			missing, err := conditionMissing(g, networkingv1beta1.ConditionDeployed)
			check(t, missing, err, tt.want, tt.complaint)
		})
	}
}

// TestExposedWithoutLoadBalancer: a Service that gets no address shows why from the beginning, and ends the work when a cloud
// would have given it one, unless the user has said how long to wait.
func TestExposedWithoutLoadBalancer(t *testing.T) {
	const why = "GatewayServer tenant/s: Service gw-s has no address"
	for _, tt := range []struct {
		name  string
		o     Options
		gets  time.Duration // when the address comes; 0: never
		after time.Duration
		ends  string
	}{
		{"never", Options{Timeout: 10 * time.Minute}, 0, unassignedFor, "waiting for gateway server Service to have an address: " + why},
		{"as late as in slow clouds", Options{Timeout: 10 * time.Minute}, 3 * time.Minute, 3 * time.Minute, ""},
		{"with a timeout of the user's", Options{Timeout: 10 * time.Minute, UntilTimeout: true}, 0, 10 * time.Minute, "timed out after 10m0s while waiting for gateway server Service to have an address: " + why},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := serverIn("tenant", "s", 0).server
				g.Status.Conditions = []metav1.Condition{{Type: "EndpointReady", Status: "False", Reason: "WaitingForLoadBalancer", Message: "Service gw-s has no address"}}
				c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(g).Build()
				e := newPair(&access.Cluster{}, &access.Cluster{Client: c}, &tt.o)[1]
				e.namespace, e.found.servers = "tenant", []*gateway{serverIn("tenant", "s", 0)}
				if tt.gets > 0 {
					time.AfterFunc(tt.gets, func() {
						g.Status.Conditions[0].Status = "True"
						g.Status.Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}}
						if err := c.Update(t.Context(), g); err != nil {
							t.Error(err)
						}
					})
				}
				s := e.exposed()
				s.clues = nil
				var p plan
				p.add(nil, s)
				ctx, cancel := withTimeout(t.Context(), tt.o)
				defer cancel()
				var told script
				began := time.Now()
				err := p.run(ctx, told.tell(began))
				if errText(err) != tt.ends {
					t.Errorf("error %q, want %q", errText(err), tt.ends)
				}
				if took := time.Since(began); took < tt.after || took > tt.after+time.Second {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
				var warned []string
				for _, l := range told.lines {
					if strings.Contains(l, " warn ") {
						warned = append(warned, l)
					}
				}
				if len(warned) != 1 || !strings.HasPrefix(warned[0], "15s ") || !strings.Contains(warned[0], "with --gw-server-service-type NodePort") {
					t.Errorf("warnings: %q", warned)
				}
				if want := "0s  ... Waiting for gateway server Service to have an address: " + why; !slices.Contains(told.lines, want) {
					t.Errorf("%q was not told:\n%s", want, strings.Join(told.lines, "\n"))
				}
			})
		})
	}
}

// In a cluster of Liqo the usual names are those of its templates.
func TestTemplateOfAdopted(t *testing.T) {
	c := &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}}
	for _, tt := range []struct {
		role    networkingv1beta1.ConnectionType
		flags   TemplateFlags
		adopted bool
		want    string
	}{
		{networkingv1beta1.ConnectionServer, TemplateFlags{}, false, "wireguard-server"},
		{networkingv1beta1.ConnectionServer, TemplateFlags{}, true, "sluice-wireguard-server"},
		{networkingv1beta1.ConnectionClient, TemplateFlags{}, true, "sluice-wireguard-client"},
		{networkingv1beta1.ConnectionServer, TemplateFlags{Name: "wireguard-server"}, true, "wireguard-server"},
	} {
		ref, err := TemplateRef(c, tt.role, tt.flags, tt.adopted)
		if err != nil || ref.Name != tt.want || ref.Namespace != "liqo" {
			t.Errorf("%+v: %+v, %v", tt, ref, err)
		}
	}
}
