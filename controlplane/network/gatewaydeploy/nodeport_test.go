package gatewaydeploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

func TestServiceKeepsItsNodePort(t *testing.T) {
	remembers := liveService("ClusterIP")
	remembers.Spec.Ports[0].NodePort, remembers.Spec.Ports[1].NodePort = 0, 0
	garbled := remembers.DeepCopy()
	remembers.Annotations = map[string]string{annotationNodePort: "30999"}
	garbled.Annotations = map[string]string{annotationNodePort: "99999"}
	for _, row := range []struct {
		name    string
		wanted  corev1.ServiceType
		fixed   int32
		none    bool // of allocateLoadBalancerNodePorts
		live    *corev1.Service
		last    int32 // port in the status
		want    int32
		anyPort bool
		note    string // the annotation
	}{
		{name: "new", wanted: "NodePort"},
		{name: "settled", wanted: "NodePort", live: liveService("NodePort"), last: 30742, want: 30742, anyPort: true},
		{name: "edited port", wanted: "NodePort", live: liveService("NodePort"), last: 30111, want: 30742, anyPort: true},
		{name: "deleted", wanted: "NodePort", last: 30111, want: 30111, anyPort: true},
		{name: "edited type", wanted: "NodePort", live: garbled, last: 30111, want: 30111, anyPort: true},
		{name: "was a ClusterIP", wanted: "NodePort", live: remembers, last: 51840, want: 30999, anyPort: true},
		{name: "was a load balancer that is gone", wanted: "NodePort", last: 51840},
		{name: "port of the spec", wanted: "NodePort", fixed: 30001, live: liveService("NodePort"), last: 30742, want: 30001},
		{name: "load balancer", wanted: "LoadBalancer", live: liveService("LoadBalancer"), last: 51840, want: 30742, anyPort: true},
		{name: "load balancer without node ports", wanted: "LoadBalancer", none: true, live: liveService("NodePort"), last: 30742},
		{name: "becomes a ClusterIP", wanted: "ClusterIP", live: liveService("NodePort"), last: 30742, note: "30742"},
		{name: "stays a ClusterIP", wanted: "", live: remembers, last: 51840, note: "30999"},
		{name: "always a ClusterIP", wanted: "ClusterIP", live: garbled, last: 51840},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			f.Service = row.live
			spec := &f.Gateway.service.Spec
			spec.Type, spec.Ports[0].NodePort = row.wanted, row.fixed
			if row.none {
				spec.AllocateLoadBalancerNodePorts = new(false)
			}
			if row.last != 0 {
				*f.Gateway.endpoint = &networkingv1beta1.Endpoint{Port: row.last, Addresses: []string{"192.0.2.1"}}
			}
			p := Build(f)
			s := found[corev1.Service](p.Objects, "gw-a")
			if got := s.Spec.Ports[0].NodePort; got != row.want {
				t.Errorf("asks for %d, want %d", got, row.want)
			}
			if (p.AnyPort != nil) != row.anyPort || p.AnyPort != nil && p.AnyPort.Spec.Ports[0].NodePort != 0 {
				t.Errorf("if that is refused: %v", p.AnyPort)
			}
			if got := s.Annotations[annotationNodePort]; got != row.note {
				t.Errorf("remembers %q, want %q", got, row.note)
			}
			if spec.Ports[0].NodePort != row.fixed {
				t.Error("the spec of the gateway was changed")
			}
		})
	}
}

func TestServiceOfSeveralTunnelsKeepsItsNodePorts(t *testing.T) {
	live := func(kind corev1.ServiceType, numbers ...int32) *corev1.Service { // port and node port in turn
		s := liveService(kind)
		s.Spec.Ports = nil
		for i := 0; i < len(numbers); i += 2 {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: "UDP", Port: numbers[i], NodePort: numbers[i+1]})
		}
		return s
	}
	noted := live("ClusterIP", 500, 0, 501, 0)
	noted.Annotations = map[string]string{annotationNodePort: "30500,0,30502"}
	for _, row := range []struct {
		name   string
		kind   corev1.ServiceType
		wanted []int32
		fixed  []int32
		live   *corev1.Service
		last   []int32 // ports in the status
		want   []int32
		note   string
	}{
		{name: "one more", kind: "NodePort", wanted: []int32{500, 501}, live: live("NodePort", 500, 30500), last: []int32{30500}, want: []int32{30500, 0}},
		{name: "one more in between", kind: "NodePort", wanted: []int32{500, 502, 501}, live: live("NodePort", 500, 30500, 501, 30501), last: []int32{30500, 30501}, want: []int32{30500, 0, 30501}},
		{name: "one less", kind: "NodePort", wanted: []int32{500}, live: live("NodePort", 500, 30500, 501, 30501), last: []int32{30500, 30501}, want: []int32{30500}},
		{name: "the first less", kind: "NodePort", wanted: []int32{501}, live: live("NodePort", 500, 30500, 501, 30501), last: []int32{30500, 30501}, want: []int32{30501}},
		{name: "another order", kind: "NodePort", wanted: []int32{501, 500}, live: live("NodePort", 500, 30500, 501, 30501), last: []int32{30500, 30501}, want: []int32{30501, 30500}},
		{name: "another first", kind: "NodePort", wanted: []int32{502, 501}, live: live("NodePort", 500, 30500, 501, 30501), last: []int32{30500, 30501}, want: []int32{30500, 30501}},
		{name: "one before the first", kind: "NodePort", wanted: []int32{499, 500}, live: live("NodePort", 500, 30500), last: []int32{30500}, want: []int32{0, 30500}},
		{name: "of the spec", kind: "NodePort", wanted: []int32{500, 501}, fixed: []int32{0, 30500}, live: live("NodePort", 500, 30500, 501, 30501), want: []int32{0, 30500}},
		{name: "deleted", kind: "NodePort", wanted: []int32{500, 501}, last: []int32{30500, 30501}, want: []int32{30500, 30501}},
		{name: "a load balancer that was deleted", kind: "NodePort", wanted: []int32{500, 501}, last: []int32{500, 501}, want: []int32{0, 0}},
		{name: "becomes a ClusterIP", kind: "ClusterIP", wanted: []int32{500, 501}, live: live("NodePort", 500, 30500, 501, 30501), want: []int32{0, 0}, note: "30500,30501"},
		{name: "was a ClusterIP", kind: "NodePort", wanted: []int32{500, 501, 502}, live: noted, last: []int32{500, 501}, want: []int32{30500, 0, 30502}},
		{name: "another number of a ClusterIP", kind: "ClusterIP", wanted: []int32{600, 601}, live: live("ClusterIP", 500, 0, 501, 0), last: []int32{500, 501}, want: []int32{0, 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			f.Service = row.live
			spec := live(row.kind).Spec
			var numbers []string
			for i, p := range row.wanted {
				spec.Ports = append(spec.Ports, corev1.ServicePort{Protocol: "UDP", Port: p})
				if row.fixed != nil {
					spec.Ports[i].NodePort = row.fixed[i]
				}
				numbers = append(numbers, fmt.Sprint(p))
			}
			f.Gateway.service.Spec = spec
			if len(numbers) > 1 {
				f.Gateway.SetAnnotations(map[string]string{networkingv1beta1.AnnotationTunnelPorts: strings.Join(numbers, ",")})
			}
			if row.last != nil {
				*f.Gateway.endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}}
				(*f.Gateway.endpoint).SetPorts(row.last)
			}
			s := found[corev1.Service](Build(f).Objects, "gw-a")
			var got []int32
			for _, p := range s.Spec.Ports {
				got = append(got, p.NodePort)
			}
			if !slices.Equal(got, row.want) || s.Annotations[annotationNodePort] != row.note {
				t.Errorf("asks for %v, notes %q; want %v, %q", got, s.Annotations[annotationNodePort], row.want, row.note)
			}
		})
	}
}

func TestMoved(t *testing.T) {
	at := func(port int32, addresses ...string) *networkingv1beta1.Endpoint {
		return &networkingv1beta1.Endpoint{Port: port, Addresses: addresses}
	}
	for _, row := range []struct {
		before, now *networkingv1beta1.Endpoint
		want        bool
	}{
		{nil, nil, false}, {nil, at(1, "a"), false}, {at(1, "a"), nil, false}, {at(1, "a"), at(1, "a"), false},
		{at(1, "a"), at(2, "a"), true}, {at(1, "a"), at(1, "b"), true}, {at(1, "a"), at(1, "a", "b"), true},
		{at(1, "a"), &networkingv1beta1.Endpoint{Ports: []int32{1, 2}, Addresses: []string{"a"}}, true},
	} {
		if got := moved(row.before, row.now); got != row.want {
			t.Errorf("from %v to %v: %v", row.before, row.now, got)
		}
	}
}

func (w *world) testNodePortSurvives(t *testing.T) {
	s, _ := w.settled(t)
	port := s.endpoint(t, 0, "192.0.2.1").Port
	serves := func(what, old string, port int32) (uid string) {
		t.Helper()
		svc := eventually(t, s, what, "gw-server", func(svc *corev1.Service) error {
			if svc.Spec.Type != "NodePort" || string(svc.UID) == old || port != 0 && svc.Spec.Ports[0].NodePort != port {
				return fmt.Errorf("Service %s of type %s, ports %v", svc.UID, svc.Spec.Type, svc.Spec.Ports)
			}
			return nil
		})
		s.endpoint(t, svc.Spec.Ports[0].NodePort, "192.0.2.1")
		s.serverSays(t, "EndpointReady=True EndpointReady", "Deployed=True DeploymentReady")
		return string(svc.UID)
	}
	changed := func(text string) error {
		if out := s.kubectl(t, "get", "events.events.k8s.io", "-o=jsonpath={.items[?(@.reason=='EndpointChanged')].note}"); !strings.Contains(out, text) {
			return fmt.Errorf("events %q", out)
		}
		return nil
	}
	uid := serves("at first", "", port)
	for range 3 {
		s.kubectl(t, "delete", "service", "gw-server")
		uid = serves("the port after the Service was deleted", uid, port)
		s.kubectl(t, "patch", "service", "gw-server", "-p", `{"spec":{"type":"ClusterIP"}}`)
		serves("the port after the type was edited", "", port)
	}
	if changed("peers") == nil {
		t.Error("an event that the endpoint changed, which it did not")
	}

	s.patchService(t, `{"type":"ClusterIP"}`)
	svc := eventually(t, s, "ClusterIP", "gw-server", func(svc *corev1.Service) error {
		if svc.Spec.Type != "ClusterIP" {
			return fmt.Errorf("type %s", svc.Spec.Type)
		}
		return nil
	})
	s.endpoint(t, 51840, svc.Spec.ClusterIP)
	controlplanetest.Eventually(t, "an event", func(context.Context) error {
		return changed("peers reach the gateway at " + svc.Spec.ClusterIP + ":51840 (UDP) now, give it to their GatewayClient")
	})
	s.patchService(t, `{"type":"NodePort"}`)
	serves("the port after the type was another", "", port)

	// While it is a ClusterIP its port is given to somebody else.
	s.patchService(t, `{"type":"ClusterIP"}`)
	s.endpoint(t, 51840, svc.Spec.ClusterIP)
	taker := w.space(t, "")
	controlplanetest.Eventually(t, "the port is free", func(context.Context) error {
		_, err := taker.Kubectl("-n", taker.ns, "create", "service", "nodeport", "taker", "--tcp=1", fmt.Sprintf("--node-port=%d", port))
		return err
	})
	s.patchService(t, `{"type":"NodePort"}`)
	serves("another port than the one that is taken", "", 0)
	other := s.endpoint(t, 0, "192.0.2.1").Port
	if other == port || other == 51840 {
		t.Errorf("endpoint port %d", other)
	}
	controlplanetest.Eventually(t, "an event", func(context.Context) error {
		return changed(fmt.Sprintf("peers reach the gateway at 192.0.2.1:%d (UDP) now", other))
	})
}

// testSeveralPorts: the Service of several tunnels, as the template is rendered, and the endpoint of it.
func (w *world) testSeveralPorts(t *testing.T) {
	s, _ := w.settled(t)
	node := s.endpoint(t, 0, "192.0.2.1").Port
	change := func(tunnels, ports string) {
		t.Helper()
		s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p",
			`{"metadata":{"annotations":{"`+networkingv1beta1.AnnotationTunnelPorts+`":`+tunnels+`}},"spec":{"service":{"spec":{"ports":`+ports+`}}}}`)
	}
	// has waits for the endpoint to have the node ports of these ports of the Service.
	has := func(ports ...int32) (nodePorts []int32) {
		t.Helper()
		controlplanetest.Eventually(t, fmt.Sprintf("the endpoint of %v", ports), func(ctx context.Context) error {
			svc, err := read[corev1.Service](ctx, s, "gw-server")
			if err != nil {
				return err
			}
			nodePorts = nil
			for _, port := range ports {
				for _, p := range svc.Spec.Ports {
					if p.Port == port {
						nodePorts = append(nodePorts, p.NodePort)
					}
				}
			}
			g, err := read[networkingv1beta1.WgGatewayServer](ctx, s, "server")
			if err != nil {
				return err
			}
			e := g.Status.Endpoint
			if e == nil || !slices.Equal(e.AllPorts(), nodePorts) || len(nodePorts) != len(ports) || !slices.Equal(e.Addresses, []string{"192.0.2.1"}) {
				return fmt.Errorf("endpoint %v, ports %v", e, svc.Spec.Ports)
			}
			return nil
		})
		return nodePorts
	}
	const first, second, third = `{"name":"wireguard","protocol":"UDP","port":51840,"targetPort":51840}`,
		`{"name":"wireguard-51841","protocol":"UDP","port":51841,"targetPort":51841}`, `{"name":"wireguard-51842","protocol":"UDP","port":51842,"targetPort":51842,"nodePort":30711}`
	change(`"51840,51841"`, "["+first+","+second+"]")
	two := has(51840, 51841)
	if two[0] != node {
		t.Errorf("node ports %v, the first was %d", two, node)
	}
	s.serverSays(t, "EndpointReady=True EndpointReady", "Deployed=True DeploymentReady")
	policy, err := read[networkingv1.NetworkPolicy](t.Context(), s, "gw-server")
	if err != nil || !slices.Contains(doors(policy), "UDP 51841 from anywhere") {
		t.Errorf("the policy lets in %v (%v)", doors(policy), err)
	}
	change(`"51840,51842,51841"`, "["+first+","+third+","+second+"]")
	if three := has(51840, 51842, 51841); three[0] != two[0] || three[1] != 30711 || three[2] != two[1] {
		t.Errorf("node ports %v after %v", three, two)
	}
	s.kubectl(t, "delete", "service", "gw-server")
	if three := has(51840, 51842, 51841); three[0] != two[0] || three[1] != 30711 || three[2] != two[1] {
		t.Errorf("node ports %v after the Service was deleted, %v before", three, two)
	}
	change("null", `[{"protocol":"UDP","port":51840,"targetPort":51840}]`) // as a template has it that names no port
	if one := has(51840); one[0] != node {
		t.Errorf("node port %v, it was %d", one, node)
	}
	change(`"51840,51841"`, `[{"name":"wireguard-51840","protocol":"UDP","port":51840,"targetPort":51840},`+second+"]")
	if two := has(51840, 51841); two[0] != node {
		t.Errorf("node ports %v, the first was %d", two, node)
	}
}
