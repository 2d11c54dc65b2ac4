package gatewaydeploy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// endpoint waits until the endpoint of the server is this one; port 0 is any.
func (s *space) endpoint(t *testing.T, port int32, addresses ...string) *networkingv1beta1.Endpoint {
	t.Helper()
	return eventually(t, s, fmt.Sprintf("endpoint %v port %d", addresses, port), "server", func(g *networkingv1beta1.WgGatewayServer) error {
		e := g.Status.Endpoint
		if e == nil || !slices.Equal(e.Addresses, addresses) || port != 0 && e.Port != port {
			return fmt.Errorf("endpoint %v, conditions %v", e, g.Status.Conditions)
		}
		return nil
	}).Status.Endpoint
}

// patchService changes the service of the server's spec.
func (s *space) patchService(t *testing.T, spec string) {
	t.Helper()
	s.kubectl(t, "patch", "wggatewayserver", "server", "--type=merge", "-p", `{"spec":{"service":{"spec":`+spec+`}}}`)
}

func (w *world) testServiceTypes(t *testing.T) {
	const port = `{"name":"wireguard","protocol":"UDP","port":51840,"targetPort":51840`
	s, _ := w.settled(t)
	s.endpoint(t, 0, "192.0.2.1")
	fixed := func() {
		t.Helper()
		s.patchService(t, `{"type":"NodePort","ports":[`+port+`,"nodePort":30701}]}`)
		s.endpoint(t, 30701, "192.0.2.1")
	}
	clusterIP := func() {
		t.Helper()
		s.patchService(t, `{"type":"ClusterIP","ports":[`+port+`}]}`)
		svc := eventually(t, s, "ClusterIP without node port", "gw-server", func(svc *corev1.Service) error {
			if svc.Spec.Type != "ClusterIP" || svc.Spec.Ports[0].NodePort != 0 {
				return fmt.Errorf("%s, node port %d", svc.Spec.Type, svc.Spec.Ports[0].NodePort)
			}
			return nil
		})
		s.endpoint(t, 51840, svc.Spec.ClusterIP)
	}
	balanced := func() {
		t.Helper()
		s.patchService(t, `{"type":"LoadBalancer","externalTrafficPolicy":"Local","loadBalancerIP":"203.0.113.7","ports":[`+port+`}]}`)
		s.serverSays(t, "EndpointReady=False WaitingForLoadBalancer")
		eventually(t, s, "the cloud gives addresses", "gw-server", func(svc *corev1.Service) error {
			if svc.Spec.Type != "LoadBalancer" || svc.Spec.LoadBalancerIP != "203.0.113.7" || svc.Spec.ExternalTrafficPolicy != "Local" {
				return fmt.Errorf("%v", svc.Spec)
			}
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}, {Hostname: "lb.example"}}
			return s.Client.Status().Update(context.Background(), svc)
		})
		s.endpoint(t, 51840, "203.0.113.7", "lb.example")
	}
	reset := func() { // every field of one type is absent in the other
		s.patchService(t, `{"externalTrafficPolicy":null,"loadBalancerIP":null}`)
	}
	fixed()
	clusterIP()
	fixed()
	balanced()
	reset()
	clusterIP()
	balanced()
	reset()
	fixed()
	s.patchService(t, `{"type":"NodePort","ports":[`+port+`,"nodePort":30702}]}`)
	s.endpoint(t, 30702, "192.0.2.1")
	s.patchService(t, `{"type":"NodePort","ports":[{"name":"wireguard","protocol":"UDP","port":51900,"targetPort":51840,"nodePort":30702}]}`)
	eventually(t, s, "another port behind the same node port", "gw-server", func(svc *corev1.Service) error {
		if p := svc.Spec.Ports; len(p) != 1 || p[0].Port != 51900 || p[0].NodePort != 30702 {
			return fmt.Errorf("ports %v", p)
		}
		return nil
	})
	s.patchService(t, `{"type":"ExternalName","externalName":"x.example"}`)
	g := s.serverSays(t, "EndpointReady=False ServiceTypeUnsupported", "Deployed=True DeploymentReady")
	if g.Status.Endpoint != nil {
		t.Errorf("endpoint %v of a Service that cannot be", g.Status.Endpoint)
	}
	controlplanetest.Eventually(t, "no Service", func(ctx context.Context) error {
		_, err := read[corev1.Service](ctx, s, "gw-server")
		return gone(err)
	})
	fixed()
	s.serverSays(t, "EndpointReady=True EndpointReady")
}

func (w *world) testNodePortTaken(t *testing.T) {
	taker := w.space(t, "")
	taker.apply(`
apiVersion: v1
kind: Service
metadata: {name: taker, namespace: NS}
spec: {type: NodePort, selector: {a: b}, ports: [{protocol: UDP, port: 1, nodePort: 30742}]}
`)
	s, _ := w.settled(t)
	free := s.endpoint(t, 0, "192.0.2.1").Port
	s.patchService(t, `{"ports":[{"protocol":"UDP","port":51840,"nodePort":30742}]}`)
	g := s.serverSays(t, "Deployed=False ObjectRefused", "KeysReady=True KeysGenerated")
	var said string
	for _, c := range g.Status.Conditions {
		if c.Type == "Deployed" {
			said = c.Message
		}
	}
	const want = `Service gw-server: Service "gw-server" is invalid: spec.ports[0].nodePort: Invalid value: 30742: provided port is already allocated`
	if said != want {
		t.Errorf("message %q, want %q", said, want)
	}
	if g.Status.Endpoint == nil || g.Status.Endpoint.Port != free {
		t.Errorf("the Service that still is there has endpoint port %d, status says %v", free, g.Status.Endpoint)
	}
	controlplanetest.Eventually(t, "an event", func(ctx context.Context) error {
		out := s.kubectl(t, "get", "events.events.k8s.io", "-o=jsonpath={.items[*].reason}")
		if !strings.Contains(out, "ObjectRefused") {
			return fmt.Errorf("events %q", out)
		}
		return nil
	})
	taker.kubectl(t, "delete", "service", "taker")
	s.kubectl(t, "annotate", "wggatewayserver", "server", "again=1") // instead of a minute
	s.serverSays(t, "Deployed=True DeploymentReady")
	s.endpoint(t, 30742, "192.0.2.1")
}

func (w *world) testNode(t *testing.T) {
	w.createNode(t, "node-3", "192.0.2.3")
	s := w.space(t, serverManifest)
	s.startPods(t, "node-3", 1)
	s.endpoint(t, 0, "192.0.2.3")
	w.setNode(t, "node-3", "192.0.2.3", corev1.ConditionUnknown)
	s.serverSays(t, "EndpointReady=False NodeNotReady")
	s.endpoint(t, 0, "192.0.2.3") // the last one
	w.setNode(t, "node-3", "192.0.2.33", corev1.ConditionTrue)
	s.serverSays(t, "EndpointReady=True EndpointReady")
	s.endpoint(t, 0, "192.0.2.33")
}

// testRestart watches the status while a pod is replaced: the endpoints change once,
// from the old to the new, and are there all the time.
func (w *world) testRestart(t *testing.T) {
	s, old := w.settled(t)
	g := s.serverSays(t)
	inside := *g.Status.InternalEndpoint
	seen := s.follow(t, g)

	s.kubectl(t, "rollout", "restart", "deployment/gw-server") // the old one terminates until the kubelet says that it ended
	eventually(t, s, "the old pod terminates", old, func(p *corev1.Pod) error {
		if p.DeletionTimestamp == nil {
			return errors.New("does not")
		}
		return nil
	})
	g = s.serverSays(t, "EndpointReady=False WaitingForGatewayPod")
	if g.Status.Endpoint == nil || g.Status.InternalEndpoint == nil || *g.Status.InternalEndpoint != inside {
		t.Errorf("while it terminates: endpoint %v, internalEndpoint %v", g.Status.Endpoint, g.Status.InternalEndpoint)
	}
	s.killPod(t, old)
	s.startPods(t, "node-2", 1)
	s.serverSays(t, "EndpointReady=True EndpointReady", "Deployed=True DeploymentReady")
	s.endpoint(t, 0, "192.0.2.2")

	var endpoints, insides []string
	writes := 0
	for g := range seen() {
		writes++
		endpoints = append(endpoints, fmt.Sprint(g.Status.Endpoint))
		insides = append(insides, fmt.Sprint(g.Status.InternalEndpoint))
	}
	endpoints, insides = slices.Compact(endpoints), slices.Compact(insides)
	if len(endpoints) != 2 || len(insides) != 2 || slices.Contains(endpoints, "<nil>") || slices.Contains(insides, "<nil>") {
		t.Errorf("endpoints in turn: %v, internal ones: %v", endpoints, insides)
	}
	if writes > 6 {
		t.Errorf("%d writes of the status for one restart", writes)
	}
}

// follow watches the server from a version of it on. What it returns ends that and
// goes through the versions.
func (s *space) follow(t *testing.T, g *networkingv1beta1.WgGatewayServer) func() iter.Seq[*networkingv1beta1.WgGatewayServer] {
	t.Helper()
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	list := new(networkingv1beta1.WgGatewayServerList)
	watching, err := c.Watch(context.Background(), list, client.InNamespace(s.ns), &client.ListOptions{
		Namespace: s.ns, Raw: &metav1.ListOptions{ResourceVersion: g.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan []*networkingv1beta1.WgGatewayServer, 1)
	last := make(chan string, 1)
	go func() {
		var all []*networkingv1beta1.WgGatewayServer
		end := ""
		for {
			select {
			case end = <-last:
			case e := <-watching.ResultChan():
				if o, ok := e.Object.(*networkingv1beta1.WgGatewayServer); ok {
					all = append(all, o)
				}
			}
			if end != "" && (len(all) == 0 || all[len(all)-1].ResourceVersion == end) {
				done <- all
				return
			}
		}
	}()
	return func() iter.Seq[*networkingv1beta1.WgGatewayServer] {
		now, err := read[networkingv1beta1.WgGatewayServer](context.Background(), s, g.Name)
		if err != nil {
			t.Fatal(err)
		}
		last <- now.ResourceVersion
		all := <-done
		watching.Stop()
		return slices.Values(all)
	}
}

// active waits until one pod has the mark, and the status names its node.
func (s *space) active(t *testing.T, want string) {
	t.Helper()
	controlplanetest.Eventually(t, "active pod "+want, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.Client.List(ctx, &pods, client.InNamespace(s.ns), client.MatchingLabels{networkingv1beta1.LabelActive: "true"}); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Name != want {
			var names []string
			for i := range pods.Items {
				names = append(names, pods.Items[i].Name)
			}
			return fmt.Errorf("active are %v", names)
		}
		g, err := read[networkingv1beta1.WgGatewayClient](ctx, s, "client")
		if err != nil {
			return err
		}
		if e := g.Status.InternalEndpoint; e == nil || string(e.IP) != pods.Items[0].Status.PodIP {
			return fmt.Errorf("internalEndpoint %v", e)
		}
		return says(g, g.Status.Conditions, "EndpointReady=True EndpointReady")
	})
}

func (s *space) hold(t *testing.T, lease, pod string) {
	t.Helper()
	eventually(t, s, "take the Lease", lease, func(l *coordinationv1.Lease) error {
		l.Spec.HolderIdentity = &pod
		return s.Client.Update(context.Background(), l)
	})
}

func (w *world) testReplicas(t *testing.T) {
	s := w.space(t, clientManifest)
	pods := s.startPods(t, "node-1", 1)
	s.active(t, pods[0])
	s.kubectl(t, "patch", "wggatewayclient", "client", "--type=merge", "-p", `{"spec":{"deployment":{"spec":{"replicas":2}}}}`)
	controlplanetest.Eventually(t, "the old pod is replaced", func(ctx context.Context) error { // its template had the mark
		_, err := read[corev1.Pod](ctx, s, pods[0])
		if err == nil {
			s.killPod(t, pods[0])
		}
		return gone(err)
	})
	eventually(t, s, "both are new", "gw-client", func(d *appsv1.Deployment) error {
		if st := d.Status; st.ObservedGeneration != d.Generation || st.UpdatedReplicas != 2 || st.Replicas != 2 {
			return fmt.Errorf("%v", st)
		}
		return nil
	})
	pods = s.startPods(t, "node-1", 2)
	lease := "client." + s.ns + ".client.connections.liqo.io"
	l := eventually(t, s, "the Lease", lease, func(l *coordinationv1.Lease) error { return nil })
	if l.Spec.HolderIdentity != nil || l.Labels["liqo.io/managed"] != "true" {
		t.Errorf("Lease %v %v", l.Labels, l.Spec)
	}
	eventually(t, s, "none leads before the election", "client", func(g *networkingv1beta1.WgGatewayClient) error {
		return says(g, g.Status.Conditions, "EndpointReady=False WaitingForGatewayPod", "Deployed=True DeploymentReady")
	})
	s.hold(t, lease, pods[0])
	s.active(t, pods[0])
	s.hold(t, lease, pods[1])
	s.active(t, pods[1])

	s.killPod(t, pods[1])
	eventually(t, s, "the Lease of the dead is free", lease, func(l *coordinationv1.Lease) error {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			return fmt.Errorf("held by %s", *l.Spec.HolderIdentity)
		}
		return nil
	})
	s.hold(t, lease, pods[0])
	s.active(t, pods[0])
	s.setPod(t, pods[0], func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	eventually(t, s, "the Lease of the failed is free", lease, func(l *coordinationv1.Lease) error {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			return fmt.Errorf("held by %s", *l.Spec.HolderIdentity)
		}
		return nil
	})
}

func (w *world) testStrategy(t *testing.T) {
	s := w.space(t, clientManifest)
	for _, strategy := range []string{`{"type":"RollingUpdate"}`, `{"type":"Recreate"}`, `null`, `{"type":"Recreate"}`} {
		s.kubectl(t, "patch", "wggatewayclient", "client", "--type=merge", "-p", `{"spec":{"deployment":{"spec":{"strategy":`+strategy+`}}}}`)
		want := appsv1.RollingUpdateDeploymentStrategyType
		if strategy == `{"type":"Recreate"}` {
			want = appsv1.RecreateDeploymentStrategyType
		}
		eventually(t, s, "strategy "+strategy, "gw-client", func(d *appsv1.Deployment) error {
			if d.Spec.Strategy.Type != want {
				return fmt.Errorf("strategy %v", d.Spec.Strategy)
			}
			return nil
		})
	}
	// What cannot be changed is said, and how to go on works.
	s.kubectl(t, "patch", "wggatewayclient", "client", "--type=merge", "-p",
		`{"spec":{"deployment":{"spec":{"selector":{"matchLabels":{"app.kubernetes.io/name":"client"}}}}}}`)
	eventually(t, s, "the selector is refused", "client", func(g *networkingv1beta1.WgGatewayClient) error {
		return says(g, g.Status.Conditions, "Deployed=False ObjectRefused")
	})
	s.kubectl(t, "delete", "deployment", "gw-client")
	eventually(t, s, "the Deployment is made anew", "client", func(g *networkingv1beta1.WgGatewayClient) error {
		return says(g, g.Status.Conditions, "Deployed=False DeploymentNotReady")
	})
}
