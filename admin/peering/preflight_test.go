package peering

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// nodeAt is a node with addresses: pairs of a type and an address.
func nodeAt(name string, addresses ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := 0; i < len(addresses); i += 2 {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(addresses[i]), Address: addresses[i+1]})
	}
	return n
}

func TestSharedAddress(t *testing.T) {
	own := []corev1.Node{
		nodeAt("own-1", "InternalIP", "10.0.0.4", "InternalDNS", "ip-10-0-0-4.internal", "Hostname", "worker-1"),
		nodeAt("own-2", "InternalIP", "10.0.0.5", "ExternalIP", "198.51.100.5"),
	}
	for _, tt := range []struct {
		name    string
		dialled []corev1.Node
		want    string
	}{
		{"no nodes that may be seen", nil, ""},
		{"other addresses", []corev1.Node{nodeAt("a", "InternalIP", "10.1.0.4", "Hostname", "worker-1")}, ""},
		{"one of several", []corev1.Node{nodeAt("a", "InternalIP", "10.1.0.4"), nodeAt("b", "InternalIP", "10.0.0.5")}, "10.0.0.5 b own-2"},
		{"inside the same, outside another, which is dialled", []corev1.Node{nodeAt("a", "InternalIP", "10.0.0.4", "ExternalIP", "203.0.113.4")}, ""},
		{"a name that leads to another node here", []corev1.Node{nodeAt("a", "InternalIP", "10.1.0.4", "InternalDNS", "ip-10-0-0-4.internal")}, "ip-10-0-0-4.internal a own-1"},
		{"no address at all", []corev1.Node{nodeAt("a"), nodeAt("b", "InternalIP", "")}, ""},
	} {
		address, node, other := sharedAddress(tt.dialled, own)
		got := ""
		if address != "" {
			got = address + " " + node + " " + other
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if address, _, _ := sharedAddress(own, nil); address != "" {
		t.Errorf("nobody else's nodes may be seen: %q", address)
	}
}

// TestWhatIsDialled: flags come before what there is, and that before the installation's default.
func TestWhatIsDialled(t *testing.T) {
	for _, tt := range []struct {
		name       string
		options    Options
		server     corev1.ServiceType // of the GatewayServer that exists
		chosen     string             // by an earlier command
		want       corev1.ServiceType
		wantChosen bool
	}{
		{name: "nothing said", want: corev1.ServiceTypeNodePort},
		{name: "by a flag", options: Options{Server: ServerFlags{ServiceType: "LoadBalancer"}, Client: ClientFlags{Address: "203.0.113.7"}}, server: "ClusterIP", want: "LoadBalancer", wantChosen: true},
		{name: "as it is", server: "ClusterIP", chosen: "203.0.113.7:51840", want: "ClusterIP", wantChosen: true},
		{name: "a port only", server: "NodePort", chosen: ":51840", want: "NodePort"},
	} {
		p := newPair(&access.Cluster{Options: access.Options{Name: access.Local}}, &access.Cluster{Options: access.Options{Name: access.Remote}}, &tt.options)
		server := p.with(networkingv1beta1.ConnectionServer)
		server.defaults.ServerServiceType = corev1.ServiceTypeNodePort
		if tt.server != "" {
			server.found.servers = []*gateway{serverGateway(&networkingv1beta1.GatewayServer{Spec: networkingv1beta1.GatewayServerSpec{Endpoint: networkingv1beta1.ServerEndpoint{ServiceType: tt.server}}})}
		}
		if tt.chosen != "" {
			c := new(networkingv1beta1.GatewayClient)
			c.Annotations = map[string]string{networkingv1beta1.AnnotationChosenEndpoint: tt.chosen}
			server.peer.found.clients = []*gateway{clientGateway(c)}
		}
		if got, chosen := server.serviceType(), server.dialsChosenAddress(); got != tt.want || chosen != tt.wantChosen {
			t.Errorf("%s: %s, chosen %v; want %s, %v", tt.name, got, chosen, tt.want, tt.wantChosen)
		}
	}
}

// TestHandMadeClientAmongTwinNodes: a node of the server's cluster has the address of one of the client's, and somebody has
// chosen where the client dials.
func TestHandMadeClientAmongTwinNodes(t *testing.T) {
	const shared, chosen = "192.168.50.11", "203.0.113.20"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: shared}}}}
	for _, tt := range []struct {
		name    string
		dials   string // empty: there is no GatewayClient
		flag    string
		want    string
		wantErr bool
	}{
		{name: "chosen by hand", dials: chosen, want: chosen},
		{name: "chosen by hand, and otherwise now", dials: chosen, flag: "203.0.113.21", want: "203.0.113.21"},
		{name: "the shared address", dials: shared, wantErr: true},
		{name: "none", wantErr: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := func(of ...client.Object) *access.Cluster {
				return &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(of...).Build()}
			}
			p := newPair(cluster(node.DeepCopy()), cluster(node.DeepCopy()), &Options{Client: ClientFlags{Address: tt.flag}})
			dialling, server := p[0], p[1]
			dialling.id, server.id, dialling.namespace = "rome", "milan", "liqo-tenant-milan"
			server.defaults.ServerServiceType = corev1.ServiceTypeNodePort
			if tt.dials != "" {
				o := NewGatewayClient(dialling.metadata(""), ClientOptions{LiqoNamespace: "liqo", Addresses: []string{tt.dials}, Ports: []int32{30742}})
				if err := dialling.Client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				dialling.found.clients = []*gateway{clientGateway(o)}
			}
			if err := server.checkNodeAddresses(t.Context()); (err != nil) != tt.wantErr {
				t.Fatalf("error %v, want one: %v", err, tt.wantErr)
			}
			if tt.wantErr {
				return
			}
			server.endpoint = &networkingv1beta1.Endpoint{Addresses: []string{shared}, Port: 30742}
			s := dialling.setUpClient()
			if missing, err := s.try(t.Context()); missing != "" || err != nil {
				t.Fatalf("missing %q, error %v", missing, err)
			}
			var o networkingv1beta1.GatewayClient
			if err := dialling.Client.Get(t.Context(), dialling.named("milan"), &o); err != nil {
				t.Fatal(err)
			}
			if got := o.Spec.Endpoint.Addresses; len(got) != 1 || got[0] != tt.want {
				t.Errorf("it dials %v, want %s", got, tt.want)
			}
			if told := len(s.notes) > 0; told != (tt.flag == "") {
				t.Errorf("the user is told %v", s.notes)
			}
		})
	}
}

// TestAwaitNamespace: the tenant namespace of an earlier connection is still being deleted.
func TestAwaitNamespace(t *testing.T) {
	ending := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Finalizers: []string{"kubernetes"}},
		Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
			{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Message: "pods. has 1 resource instances"},
		}},
	}
	c := fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(ending).Build()
	if err := c.Delete(t.Context(), ending.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	look := func() *end {
		e := alone(&access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: c}, "milan", &Options{})[0]
		if err := e.readPeering(t.Context()); err != nil {
			t.Fatal(err)
		}
		return e
	}
	const refusal = "namespace liqo-tenant-milan is being deleted: run the command again when it is gone; NamespaceContentRemaining: pods. has 1 resource instances"
	if err := look().awaitNamespace(t.Context(), nil); err == nil || err.Error() != refusal {
		t.Errorf("where nobody listens: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := look().awaitNamespace(short, func(progress.Event) {}); err == nil || err.Error() != refusal {
		t.Errorf("when time is up: %v", err)
	}
	var told []string
	err := look().awaitNamespace(t.Context(), func(e progress.Event) {
		told = append(told, e.Text)
		gone := new(corev1.Namespace)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(ending), gone); err != nil {
			t.Fatal(err)
		}
		gone.Finalizers = nil
		if err := c.Update(t.Context(), gone); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	want := []string{"Waiting for namespace liqo-tenant-milan, which is being deleted; NamespaceContentRemaining: pods. has 1 resource instances"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what the user reads (-want +got)\n%s", diff)
	}
}
