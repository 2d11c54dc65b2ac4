package gatewaydeploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func node(name string, ready corev1.ConditionStatus, addresses ...corev1.NodeAddress) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses: addresses, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func liveService(t corev1.ServiceType, ingress ...corev1.LoadBalancerIngress) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "gw-a"},
		Spec: corev1.ServiceSpec{Type: t, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd00::7"}, Ports: []corev1.ServicePort{
			{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}, {Protocol: corev1.ProtocolUDP, Port: 51840, NodePort: 30742}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
	}
}

func TestEndpoints(t *testing.T) {
	address := func(t corev1.NodeAddressType, a string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: t, Address: a}
	}
	internal := address(corev1.NodeInternalIP, "192.0.2.1")
	runs := []corev1.Pod{pod("1", "n", "active")}
	inside := &networkingv1beta1.InternalEndpoint{IP: "10.0.0.1", Node: "n"}
	at := func(port int32, addresses ...string) *networkingv1beta1.Endpoint {
		return &networkingv1beta1.Endpoint{Addresses: addresses, Port: port, Protocol: "UDP"}
	}
	several := func(ports []int32, addresses ...string) *networkingv1beta1.Endpoint {
		return &networkingv1beta1.Endpoint{Addresses: addresses, Ports: ports, Protocol: "UDP"}
	}
	tunnels := func(t corev1.ServiceType) *corev1.Service {
		s := liveService(t)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: "UDP", Port: 51841, NodePort: 30743}, corev1.ServicePort{Protocol: "UDP", Port: 51842, NodePort: 30744})
		return s
	}
	for _, row := range []struct {
		name       string
		service    *corev1.Service
		wanted     corev1.ServiceType // that of the Service if empty
		pods       []corev1.Pod
		nodes      []corev1.Node
		last       *networkingv1beta1.Endpoint
		lastInside *networkingv1beta1.InternalEndpoint
		want       *networkingv1beta1.Endpoint
		wantInside *networkingv1beta1.InternalEndpoint
		ready      string
		says       string
	}{
		{name: "ClusterIP", service: liveService("ClusterIP"), pods: runs, want: at(51840, "10.96.0.7", "fd00::7"), wantInside: inside, ready: "True EndpointReady",
			says: "peers reach it at 10.96.0.7:51840, [fd00::7]:51840 (UDP), but only those that can reach the cluster's Service addresses, as Service gw-a is of type ClusterIP; pod 1 leads"},
		{name: "ClusterIP before the pod", service: liveService("ClusterIP"), want: at(51840, "10.96.0.7", "fd00::7"), ready: "False WaitingForGatewayPod"},
		{name: "ClusterIP None", service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "gw-a"}, Spec: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"},
			Ports: []corev1.ServicePort{{Protocol: "UDP", Port: 1}}}}, pods: runs, wantInside: inside, ready: "False ServiceTypeUnsupported", says: "drop clusterIP: None"},
		{name: "no UDP port", service: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Protocol: "TCP", Port: 1}}}},
			pods: runs, wantInside: inside, ready: "False ServiceTypeUnsupported", says: "no port of protocol UDP"},
		{name: "Service deleted by hand", pods: runs, last: at(30742, "192.0.2.1"), want: at(30742, "192.0.2.1"), wantInside: inside, ready: "False ObjectRefused"},
		{name: "NodePort made a ClusterIP by hand", service: liveService("ClusterIP"), wanted: "NodePort", pods: runs, last: at(30742, "192.0.2.1"),
			want: at(30742, "192.0.2.1"), wantInside: inside, ready: "True EndpointReady"},
		{name: "ClusterIP that is a NodePort still", service: liveService("NodePort"), wanted: "ClusterIP", pods: runs, nodes: []corev1.Node{node("n", "True", internal)},
			last: at(30742, "192.0.2.9"), want: at(30742, "192.0.2.1"), wantInside: inside, ready: "True EndpointReady"},
		{name: "no Service", pods: runs, wantInside: inside, ready: "False ObjectRefused", says: "see the condition Deployed"},

		{name: "NodePort", service: liveService("NodePort"), pods: runs, nodes: []corev1.Node{node("n", "True", internal)}, want: at(30742, "192.0.2.1"), wantInside: inside, ready: "True EndpointReady",
			says: "peers reach it at 192.0.2.1:30742 (UDP); pod 1 leads"},
		{name: "NodePort before the pod", service: liveService("NodePort"), ready: "False WaitingForGatewayPod", says: "no gateway pod is running"},
		{name: "NodePort while the pod restarts", service: liveService("NodePort"), pods: []corev1.Pod{pod("1", "n", "active", "terminating")}, nodes: []corev1.Node{node("n", "True", internal)},
			last: at(30742, "192.0.2.9"), lastInside: inside, want: at(30742, "192.0.2.9"), wantInside: inside, ready: "False WaitingForGatewayPod", says: "the endpoints in the status are the last ones"},
		{name: "NodePort on a node that is not ready", service: liveService("NodePort"), pods: runs, nodes: []corev1.Node{node("n", "Unknown", internal)},
			last: at(30742, "192.0.2.9"), want: at(30742, "192.0.2.9"), wantInside: inside, ready: "False NodeNotReady", says: "node n, on which the active pod is, is not Ready"},
		{name: "NodePort on a node that is gone", service: liveService("NodePort"), pods: runs, wantInside: inside, ready: "False NodeNotReady"},
		{name: "NodePort on a node without address", service: liveService("NodePort"), pods: runs, nodes: []corev1.Node{node("n", "True")},
			wantInside: inside, ready: "False NodeNotReady", says: "has no address"},
		{name: "NodePort that was a load balancer", service: liveService("NodePort"), pods: runs, last: at(51840, "203.0.113.1"), wantInside: inside, ready: "False NodeNotReady"},

		{name: "LoadBalancer", service: liveService("LoadBalancer", corev1.LoadBalancerIngress{IP: "203.0.113.1", Hostname: "x"}, corev1.LoadBalancerIngress{Hostname: "lb.example"},
			corev1.LoadBalancerIngress{IP: "203.0.113.1"}), pods: runs, want: at(51840, "203.0.113.1", "lb.example"), wantInside: inside, ready: "True EndpointReady"},
		{name: "LoadBalancer that waits", service: liveService("LoadBalancer"), pods: runs, wantInside: inside, ready: "False WaitingForLoadBalancer", says: "Service gw-a has no address"},
		{name: "LoadBalancer that lost its address", service: liveService("LoadBalancer"), pods: runs, last: at(51840, "203.0.113.1"),
			want: at(51840, "203.0.113.1"), wantInside: inside, ready: "False WaitingForLoadBalancer", says: "is the last one"},
		{name: "LoadBalancer that was a node port", service: liveService("LoadBalancer"), pods: runs, last: at(30742, "192.0.2.1"), wantInside: inside, ready: "False WaitingForLoadBalancer"},

		{name: "several tunnels", service: tunnels("NodePort"), pods: runs, nodes: []corev1.Node{node("n", "True", internal)}, last: at(30742, "192.0.2.1"),
			want: several([]int32{30744, 30742}, "192.0.2.1"), wantInside: inside, ready: "True EndpointReady", says: "peers reach it at 192.0.2.1:30744,30742 (UDP); pod 1 leads"},
		{name: "several tunnels while the pod restarts", service: tunnels("NodePort"), last: at(30742, "192.0.2.1"), lastInside: inside,
			want: several([]int32{30744, 30742}, "192.0.2.1"), wantInside: inside, ready: "False WaitingForGatewayPod"},
		{name: "several tunnels of a ClusterIP", service: tunnels("ClusterIP"), pods: runs, want: several([]int32{51842, 51840}, "10.96.0.7", "fd00::7"), wantInside: inside, ready: "True EndpointReady"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := serverFacts()
			f.Gateway.SetAnnotations(map[string]string{networkingv1beta1.AnnotationTunnelPorts: "51842,51840,x,51842,51849"}) // of which some are in some rows
			f.Service, f.Pods, f.Nodes = row.service, row.pods, row.nodes
			if f.Service != nil {
				f.Gateway.service.Spec.Type = f.Service.Spec.Type
			}
			if row.wanted != "" {
				f.Gateway.service.Spec.Type = row.wanted
			}
			*f.Gateway.endpoint, *f.Gateway.internalEndpoint = row.last, row.lastInside
			p := Build(f)
			if diff := cmp.Diff(row.want, p.Endpoint); diff != "" {
				t.Errorf("endpoint (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.wantInside, p.InternalEndpoint); diff != "" {
				t.Errorf("internalEndpoint (-want +got):\n%s", diff)
			}
			if got := brief(p, networkingv1beta1.ConditionEndpointReady); got != row.ready {
				t.Errorf("EndpointReady is %q, want %q", got, row.ready)
			}
			if got := message(p, networkingv1beta1.ConditionEndpointReady); !strings.Contains(got, row.says) {
				t.Errorf("message %q, want %q in it", got, row.says)
			}
		})
	}
}

func TestAddressesOfANodeInTheirOrder(t *testing.T) {
	var addresses []corev1.NodeAddress
	for i, kind := range slices.Backward(addressTypes) {
		addresses = append(addresses, corev1.NodeAddress{Type: kind, Address: string(kind)})
		f := serverFacts()
		f.Service, f.Pods, f.Nodes = liveService("NodePort"), []corev1.Pod{pod("1", "n")}, []corev1.Node{node("n", "True", addresses...)}
		if e := Build(f).Endpoint; e == nil || !slices.Equal(e.Addresses, []string{string(addressTypes[i])}) {
			t.Errorf("of %v: %v", addresses, e)
		}
	}
	want := "ExternalDNS ExternalIP InternalDNS InternalIP Hostname"
	var got []string
	for _, kind := range addressTypes {
		got = append(got, string(kind))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

func TestClientHasNoEndpoint(t *testing.T) {
	f := clientFacts()
	f.Pods = []corev1.Pod{pod("1", "n", "active")}
	p := Build(f)
	if p.Endpoint != nil || p.InternalEndpoint == nil || p.InternalEndpoint.Node != "n" {
		t.Errorf("endpoint %v, internalEndpoint %v", p.Endpoint, p.InternalEndpoint)
	}
	if got := brief(p, networkingv1beta1.ConditionEndpointReady); got != "True EndpointReady" {
		t.Errorf("EndpointReady is %q", got)
	}
}

func TestReplicasThatDoNotElect(t *testing.T) {
	f := clientFacts()
	f.Gateway.deployment.Spec.Replicas = new(int32(2))
	f.Pods = []corev1.Pod{pod("1", "n"), pod("2", "n")}
	if got := message(Build(f), networkingv1beta1.ConditionEndpointReady); !strings.Contains(got, "Lease a.t.client.connections.liqo.io") || !strings.Contains(got, "--leader-election") {
		t.Errorf("message %q", got)
	}
}

// During a takeover, nobody holds the Lease for a moment: that is no fault of the flags.
func TestReplicasThatElect(t *testing.T) {
	for _, replicas := range []int32{1, 2} {
		f := clientFacts()
		f.Gateway.deployment.Spec.Replicas = &replicas
		f.Gateway.deployment.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--leader-election"}}}
		f.Pods = []corev1.Pod{pod("1", "n"), pod("2", "n")}
		got := message(Build(f), networkingv1beta1.ConditionEndpointReady)
		if !strings.Contains(got, "Lease a.t.client.connections.liqo.io") || strings.Contains(got, "--leader-election") || !strings.Contains(got, "within seconds") {
			t.Errorf("%d replicas: message %q", replicas, got)
		}
	}
}

func TestAddressOfAPodIsForgottenWhenNoneIsWanted(t *testing.T) {
	f := clientFacts()
	*f.Gateway.internalEndpoint = &networkingv1beta1.InternalEndpoint{IP: "10.0.0.1", Node: "n"}
	f.Gateway.deployment.Spec.Replicas = new(int32(0))
	if got := Build(f).InternalEndpoint; got != nil {
		t.Errorf("still %v", got)
	}
}

func TestNodePortsOfNodesThatAreReady(t *testing.T) {
	nodes := []corev1.Node{
		node("up", corev1.ConditionTrue, corev1.NodeAddress{Address: "192.0.2.1"}, corev1.NodeAddress{Address: "2001:db8::1"}),
		node("lost", corev1.ConditionUnknown, corev1.NodeAddress{Address: "192.0.2.2"}),
	}
	for address, want := range map[string]bool{"192.0.2.1": true, "2001:db8::1": true, "192.0.2.2": false, "192.0.2.3": false} {
		if got := ofReadyNode(nodes, address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
