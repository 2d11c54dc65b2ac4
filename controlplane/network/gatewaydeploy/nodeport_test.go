package gatewaydeploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
