package internalnetwork

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func granted(a string) grant { return grant{Addr: netip.MustParseAddr(a)} }

var waiting = grant{Reason: networkingv1beta1.ReasonWaitingForInternalCIDR, Message: "no prefix"}

func TestPlanNode(t *testing.T) {
	real, virtual := &corev1.Node{}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"liqo.io/type": "virtual-node"}}}
	there := &networkingv1beta1.InternalNode{}
	ofLiqo := &networkingv1beta1.InternalNode{}
	ofLiqo.Spec.Interface.Gateway.Name = "liqo.x7k2m9q4zw"
	desired := &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"liqo.io/managed": "true"}}}
	desired.Spec.Interface.Gateway.Name = "liqo.ctlone2css" // for life: a change of the hash cuts every node off
	desired.Spec.Interface.Node.IP = "10.80.0.1"
	asLiqo := desired.DeepCopy()
	asLiqo.Spec.Interface.Gateway.Name = "liqo.x7k2m9q4zw"
	for _, tt := range []struct {
		name         string
		node         *corev1.Node
		internalNode *networkingv1beta1.InternalNode
		address      grant
		want         nodePlan
	}{
		{"new node", real, nil, granted("10.80.0.1"), nodePlan{Apply: desired}},
		{"known node", real, there, granted("10.80.0.1"), nodePlan{Apply: desired}},
		{"a node of Liqo's", real, ofLiqo, granted("10.80.0.1"), nodePlan{Apply: asLiqo}},
		{"no address for a new node", real, nil, waiting, nodePlan{Wait: true}},
		{"no address for a known node", real, there, waiting, nodePlan{Wait: true}},
		{"orphan", nil, there, grant{}, nodePlan{Delete: true}},
		{"nothing left", nil, nil, grant{}, nodePlan{Release: true}},
		{"virtual node", virtual, nil, grant{}, nodePlan{Release: true}},
		{"node that became virtual", virtual, there, grant{}, nodePlan{Delete: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := planNode(nodeFacts{Name: "n1", Node: tt.node, InternalNode: tt.internalNode, Address: tt.address})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// configured returns a Configuration with these remote CIDRs in its status.
func configured(pod ...networkingv1beta1.CIDR) networkingv1beta1.Configuration {
	c := networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf", Generation: 2}}
	c.Status.Remote = new(networkingv1beta1.ClusterConfig)
	c.Status.Remote.CIDR.Pod.List = pod
	c.Status.Conditions = []metav1.Condition{{Type: "NetworkCIDRsConfigured", Status: metav1.ConditionTrue, ObservedGeneration: 2}}
	return c
}

func TestPlanFabric(t *testing.T) {
	const (
		noPod, keptPod = "No gateway pod is active yet: see the conditions Deployed and EndpointReady", "No gateway pod is active. The nodes keep their tunnels to 10.0.0.9 until one is: see the conditions Deployed and EndpointReady"
		reached        = "The nodes reach the gateway at 10.0.0.5"
		noConf         = "Namespace ns has no Configuration with the label liqo.io/remote-cluster-id=milan: create it"
		notReady       = "Configuration ns/conf is not ready: see its condition NetworkCIDRsConfigured"
		link           = "liqo.qh94u3ldia" // for life: a change of the hash cuts every node off
	)
	at := func(second int64) metav1.Time { return metav1.Unix(second, 0) }
	g := gateway{Kind: kindGatewayServer, Namespace: "ns", Name: "gw", UID: "1", Created: at(5), MTU: 1400, PodIP: "10.0.0.5"}
	without := func(change func(*gateway)) gateway { g := g; change(&g); return g }
	podless := without(func(g *gateway) { g.PodIP = "" })
	other := gateway{Kind: kindGatewayClient, Namespace: "ns", Name: "other", UID: "2", Created: at(9), PodIP: "10.0.0.6"}
	elsewhere := gateway{Kind: kindGatewayServer, Namespace: "elsewhere", Name: "gw", UID: "3", Created: at(1), PodIP: "10.0.0.7"}
	deleting := without(func(g *gateway) { g.Deleting = true })

	old := configured("10.61.0.0/16")
	old.Generation = 3
	failing := configured("10.61.0.0/16")
	failing.Status.Conditions[0].Status = metav1.ConditionFalse
	invalid := configured("10.61.0.0/16", "all")

	spec := func(mtu int, gatewayIP, ip networkingv1beta1.Address, cidrs ...networkingv1beta1.CIDR) networkingv1beta1.InternalFabricSpec {
		s := networkingv1beta1.InternalFabricSpec{MTU: mtu, GatewayIP: gatewayIP, RemoteCIDRs: cidrs}
		s.Interface.Node.Name, s.Interface.Gateway.IP = link, ip
		return s
	}
	there := &networkingv1beta1.InternalFabric{Spec: spec(1300, "10.0.0.9", "10.80.0.9", "10.99.0.0/16")}
	owned := there.DeepCopy()
	ofLiqo, asLiqo := there.DeepCopy(), spec(1400, "10.0.0.5", "10.80.0.9", "10.61.0.0/16")
	ofLiqo.Spec.Interface.Node.Name, asLiqo.Interface.Node.Name = "liqo.x7k2m9q4zw", "liqo.x7k2m9q4zw"
	owned.OwnerReferences = []metav1.OwnerReference{ownerReference(kindGatewayServer, "gw", "1")}

	type conditions map[string]string // gateway: reason, message
	const is = ": "
	for _, tt := range []struct {
		name     string
		gateways []gateway
		confs    []networkingv1beta1.Configuration
		fabric   *networkingv1beta1.InternalFabric
		address  grant
		want     *networkingv1beta1.InternalFabricSpec // nil: not applied
		deleted  bool
		says     conditions
	}{
		{"all is there", []gateway{g}, []networkingv1beta1.Configuration{configured("10.61.0.0/16", "10.62.0.0/16")}, nil, granted("10.80.0.1"),
			new(spec(1400, "10.0.0.5", "10.80.0.1", "10.61.0.0/16", "10.62.0.0/16")), false, conditions{"gw": "InternalFabricReady" + is + reached}},
		{"it is brought up to date", []gateway{g}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, there, granted("10.80.0.9"),
			new(spec(1400, "10.0.0.5", "10.80.0.9", "10.61.0.0/16")), false, conditions{"gw": "InternalFabricReady" + is + reached}},
		{"a fabric of Liqo's", []gateway{g}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, ofLiqo, granted("10.80.0.9"),
			&asLiqo, false, conditions{"gw": "InternalFabricReady" + is + reached}},
		{"no MTU", []gateway{without(func(g *gateway) { g.MTU = 0 })}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, nil, granted("10.80.0.1"),
			new(spec(1340, "10.0.0.5", "10.80.0.1", "10.61.0.0/16")), false, conditions{"gw": "InternalFabricReady" + is + reached}},
		{"one of two Configurations is ready", []gateway{g}, []networkingv1beta1.Configuration{failing, configured("10.62.0.0/16")}, nil, granted("10.80.0.1"),
			new(spec(1400, "10.0.0.5", "10.80.0.1", "10.62.0.0/16")), false, conditions{"gw": "InternalFabricReady" + is + reached}},

		{"no pod yet", []gateway{podless}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, nil, granted("10.80.0.1"),
			nil, false, conditions{"gw": "WaitingForGatewayPod" + is + noPod}},
		{"the pod is gone", []gateway{podless}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, there, granted("10.80.0.9"),
			new(spec(1400, "10.0.0.9", "10.80.0.9", "10.61.0.0/16")), false, conditions{"gw": "WaitingForGatewayPod" + is + keptPod}},
		{"no Configuration", []gateway{g}, nil, nil, granted("10.80.0.1"),
			nil, false, conditions{"gw": "WaitingForConfiguration" + is + noConf}},
		{"the Configuration is gone", []gateway{g}, nil, there, granted("10.80.0.9"),
			new(spec(1400, "10.0.0.5", "10.80.0.9")), false, conditions{"gw": "WaitingForConfiguration" + is + noConf}},
		{"a status of an older spec", []gateway{g}, []networkingv1beta1.Configuration{old}, there, granted("10.80.0.9"),
			new(spec(1400, "10.0.0.5", "10.80.0.9", "10.99.0.0/16")), false, conditions{"gw": "WaitingForConfiguration" + is + notReady}},
		{"a Configuration that fails", []gateway{g}, []networkingv1beta1.Configuration{failing}, nil, granted("10.80.0.1"),
			nil, false, conditions{"gw": "WaitingForConfiguration" + is + notReady}},
		{"a status that is not valid", []gateway{g}, []networkingv1beta1.Configuration{invalid}, there, granted("10.80.0.9"),
			new(spec(1400, "10.0.0.5", "10.80.0.9", "10.99.0.0/16")), false, conditions{"gw": "WaitingForConfiguration" + is +
				`The status of Configuration ns/conf is not valid: CIDR "all": not an IPv4 or IPv6 prefix`}},
		{"no address", []gateway{g}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, nil, waiting,
			nil, false, conditions{"gw": "WaitingForInternalCIDR" + is + "no prefix"}},
		{"no address any more", []gateway{g}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, there, waiting,
			new(spec(1400, "10.0.0.5", "10.80.0.9", "10.61.0.0/16")), false, conditions{"gw": "WaitingForInternalCIDR" + is + "no prefix"}},
		{"the first thing to do is said first", []gateway{podless}, nil, nil, waiting,
			nil, false, conditions{"gw": "WaitingForGatewayPod" + is + noPod}},

		{"an older gateway in the namespace", []gateway{other, g}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, nil, granted("10.80.0.1"),
			new(spec(1400, "10.0.0.5", "10.80.0.1", "10.61.0.0/16")), false, conditions{"gw": "InternalFabricReady" + is + reached,
				"other": "DuplicateGateway" + is + "GatewayServer ns/gw is for the remote cluster milan as well, and older: delete one of them"}},
		{"an older gateway elsewhere", []gateway{g, elsewhere}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, owned, grant{},
			nil, true, conditions{"gw": "DuplicateGateway" + is + "GatewayServer elsewhere/gw is for the remote cluster milan as well, and older: delete one of them"}},
		{"an older gateway that is being deleted", []gateway{other, deleting}, []networkingv1beta1.Configuration{configured("10.61.0.0/16")}, nil, granted("10.80.0.1"),
			new(spec(1340, "10.0.0.6", "10.80.0.1", "10.61.0.0/16")), false, conditions{"other": "InternalFabricReady" + is + "The nodes reach the gateway at 10.0.0.6"}},
		{"no gateway any more", nil, nil, owned, grant{}, nil, true, conditions{}},
		{"no gateway, and it is a user's", nil, nil, there, grant{}, nil, false, conditions{}},
		{"nothing at all", nil, nil, nil, grant{}, nil, false, conditions{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := planFabric(fabricFacts{
				Key: types.NamespacedName{Namespace: "ns", Name: "milan"}, Gateways: tt.gateways, Configurations: tt.confs, Fabric: tt.fabric, Address: tt.address,
			})
			var got *networkingv1beta1.InternalFabricSpec
			if plan.Apply != nil {
				got = &plan.Apply.Spec
				if first, _ := firstGateway(tt.gateways); plan.Apply.OwnerReferences[0].UID != first.UID {
					t.Errorf("owned by %+v", plan.Apply.OwnerReferences)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if plan.Delete != tt.deleted {
				t.Errorf("deleted: %t", plan.Delete)
			}
			if want := tt.fabric == nil && tt.want == nil && len(tt.says) == 0; plan.Release != want {
				t.Errorf("address released: %t, want %t", plan.Release, want)
			}
			says := conditions{}
			for _, c := range plan.Conditions {
				says[c.Gateway.Name] = string(c.Reason) + is + c.Message
			}
			if diff := cmp.Diff(tt.says, says); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanTunnel(t *testing.T) {
	fabric := &networkingv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "milan", UID: "1", Labels: map[string]string{"liqo.io/remote-cluster-id": "milan"}}}
	node := &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	going := func(n *networkingv1beta1.InternalNode) *networkingv1beta1.InternalNode {
		n = n.DeepCopy()
		n.DeletionTimestamp = new(metav1.Now())
		return n
	}
	tunnels := func(names ...string) (out []networkingv1beta1.GeneveTunnel) {
		for _, n := range names {
			out = append(out, networkingv1beta1.GeneveTunnel{ObjectMeta: metav1.ObjectMeta{Name: n, OwnerReferences: []metav1.OwnerReference{{}}}})
		}
		return out
	}
	orphan := tunnels("orphan")
	orphan[0].OwnerReferences, orphan[0].Labels = nil, managedLabels("milan")
	user := tunnels("user")
	user[0].OwnerReferences = nil
	for _, tt := range []struct {
		name          string
		fabric        *networkingv1beta1.InternalFabric
		node          *networkingv1beta1.InternalNode
		nodeTakesPart bool
		gateway       bool
		tunnels       []networkingv1beta1.GeneveTunnel
		nameTaken     bool
		apply         string // the name
		deletes       []string
		release       bool
	}{
		{"a new pair", fabric, node, true, false, nil, false, "milan-n1", nil, false},
		{"a new pair whose name is taken", fabric, node, true, false, nil, true, "milan-n1-25h1dhfisu", nil, false},
		{"a known pair", fabric, node, true, false, tunnels("any-name"), false, "any-name", nil, false},
		{"two tunnels", fabric, node, true, false, tunnels("first", "second"), false, "first", []string{"second"}, false},
		{"the node is gone", fabric, nil, false, false, tunnels("x"), false, "", []string{"x"}, false},
		{"the node and the tunnel are gone", fabric, nil, false, false, nil, false, "", nil, true},
		{"the InternalNode comes back", fabric, nil, true, false, tunnels("x"), false, "", nil, false},
		{"the InternalNode is about to go", fabric, going(node), true, false, tunnels("x"), false, "", nil, false},
		{"the fabric is gone", nil, node, true, false, tunnels("x"), false, "", nil, false},
		{"the fabric is gone, and nothing collects", nil, node, true, false, orphan, false, "", []string{"orphan"}, false},
		{"a user's tunnel", nil, node, true, false, user, false, "", nil, false},
		{"all are gone", nil, nil, false, false, nil, false, "", nil, true},
		{"the fabric comes back", nil, node, true, true, nil, false, "", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := planTunnel(tunnelFacts{
				Pair: pair{"ns", "milan", "n1"}, Fabric: tt.fabric, InternalNode: tt.node, NodeTakesPart: tt.nodeTakesPart, HasGateway: tt.gateway, Tunnels: tt.tunnels, NameTaken: tt.nameTaken,
			})
			apply, deletes := "", []string(nil)
			if g := plan.Apply; g != nil {
				apply = g.Name
				want := map[string]string{
					"liqo.io/managed": "true", "liqo.io/remote-cluster-id": "milan",
					"networking.liqo.io/internal-fabric-name": "milan", "networking.liqo.io/internal-node-name": "n1",
				}
				if diff := cmp.Diff(want, g.Labels); diff != "" || g.OwnerReferences[0].UID != "1" || pairOf(g) != (pair{"ns", "milan", "n1"}) {
					t.Errorf("%+v\n%s", g, diff)
				}
			}
			for _, d := range plan.Delete {
				deletes = append(deletes, d.Name)
			}
			if apply != tt.apply || cmp.Diff(tt.deletes, deletes) != "" || plan.Release != tt.release {
				t.Errorf("apply %q, delete %v, release %t, want %q, %v, %t", apply, deletes, plan.Release, tt.apply, tt.deletes, tt.release)
			}
		})
	}
}

func TestPacer(t *testing.T) {
	var p pacer
	now := time.Unix(100, 0)
	wait := func(after, want time.Duration) {
		t.Helper()
		if got := p.wait("n", now.Add(after)); got != want {
			t.Errorf("after %v: wait %v, want %v", after, got, want)
		}
	}
	wait(0, 0)
	p.wrote("n", now)
	wait(0, pace)
	wait(pace/4, pace*3/4)
	wait(pace, 0)
	if len(p.last) != 0 {
		t.Error("it remembers what does not matter")
	}
	p.wrote("n", now)
	p.forget("n")
	wait(0, 0)
}
