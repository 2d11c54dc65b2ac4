package survey

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no"))

// told are the reasons of alerts, with a W for a warning and an I where nothing is forwarded.
func told(alerts []Alert) (out []string) {
	for _, a := range alerts {
		text := a.Reason
		if a.Warning {
			text += " W"
		}
		if a.Idle {
			text += " I"
		}
		out = append(out, text)
	}
	return out
}

func TestHealth(t *testing.T) {
	server := func(f *facts) *networkingv1beta1.GatewayServer { return &f.servers[0] }
	connection := func(f *facts) *networkingv1beta1.ConnectionStatus { return &f.connections[0].Status }
	for _, tt := range []struct {
		name   string
		change func(*facts)
		gaps   []Gap
		want   Health
		alerts []string // as told has them
	}{
		{"all is well", func(*facts) {}, nil, Healthy, nil},
		{"no gateway", func(f *facts) { f.servers, f.connections = nil, nil }, nil, Disabled, nil},
		{"no gateway that could be seen", func(f *facts) { f.servers, f.connections = nil, nil }, []Gap{{Kind: "GatewayServer", Err: forbidden}}, Unknown, nil},
		{"a Configuration that waits", func(f *facts) {
			f.configurations[0].Status.Conditions = []metav1.Condition{condition(networkingv1beta1.ConditionNetworkCIDRsConfigured, false, "NetworkRefused", "no prefix is free")}
		}, nil, Unhealthy, []string{"NetworkRefused"}},
		{"no Configuration", func(f *facts) { f.configurations = nil }, nil, Unhealthy, []string{"Missing"}},
		{"no Configuration that could be seen", func(f *facts) { f.configurations = nil }, []Gap{{Kind: "Configuration", Err: forbidden}}, Healthy, nil},
		{"no controller", func(f *facts) { server(f).Status.Conditions = nil }, nil, Unhealthy, []string{"NoConditions"}},
		{"controllers of Liqo, which write no conditions", func(f *facts) {
			server(f).Status.Conditions, f.configurations[0].Status.Conditions = nil, nil
			f.components = []Component{{Kind: kindDeployment, Name: "of-our-company-controller-manager", LiqosProgram: LiqosControllers, Desired: 1, Ready: 1}}
		}, nil, Healthy, nil},
		{"controllers that could not be seen", func(f *facts) {
			server(f).Status.Conditions, f.configurations[0].Status.Conditions, f.components = nil, nil, nil
		}, []Gap{{Kind: kindDeployment, Err: forbidden}}, Healthy, nil},
		{"controllers that could be seen in part, ours among them", func(f *facts) {
			server(f).Status.Conditions, f.configurations[0].Status.Conditions = nil, nil
			f.components = []Component{{Kind: kindDeployment, Name: "liqo-controller", Desired: 1, Ready: 1}}
		}, []Gap{{Kind: kindDeployment, Err: forbidden}}, Unhealthy, []string{"NoConditions", "NoConditions"}},
		{"a gateway of Liqo", func(f *facts) {
			server(f).Status.Conditions = nil
			f.pods[1].Spec.Containers = []corev1.Container{{Name: "gateway"}, {Name: "wireguard"}, {Name: "geneve"}}
		}, nil, Healthy, nil},
		{"no controller yet", func(f *facts) {
			server(f).Status.Conditions, server(f).CreationTimestamp = nil, metav1.NewTime(now)
		}, nil, Healthy, nil},
		{"the template is gone", func(f *facts) {
			server(f).Status.Conditions = append(server(f).Status.Conditions, condition(networkingv1beta1.ConditionTemplateRendered, false, "TemplateNotFound", "there is none"))
		}, nil, Unhealthy, []string{"TemplateNotFound"}},
		{"a condition that traffic does not need", func(f *facts) {
			server(f).Status.Conditions = append(server(f).Status.Conditions, condition(networkingv1beta1.ConditionAllPortsServed, false, "FirstPortOnly", "one port"))
		}, nil, Healthy, []string{"FirstPortOnly W"}},
		{"a gateway that is being deleted", func(f *facts) { server(f).DeletionTimestamp = new(metav1.NewTime(now)) }, nil, Unhealthy, []string{"Deleting"}},
		{"the active pod is not ready", func(f *facts) { f.pods[1].Status.Conditions = nil }, nil, Unhealthy, []string{"PodNotReady"}},
		{"another pod is not ready", func(f *facts) { f.pods[0].Status.Conditions = nil }, nil, Healthy, []string{"PodNotReady W"}},
		{"no pod", func(f *facts) { f.pods = nil }, nil, Unhealthy, []string{"NoPod I"}},
		{"no pod that could be seen", func(f *facts) { f.pods = nil }, []Gap{{Kind: "Pod", Err: forbidden}}, Healthy, nil},
		{"no Connection", func(f *facts) { f.connections = nil }, nil, Unhealthy, []string{"Missing"}},
		{"no Connection that could be seen", func(f *facts) { f.connections = nil }, []Gap{{Kind: "Connection", Err: forbidden}}, Unknown, nil},
		{"still connecting", func(f *facts) {
			*connection(f) = networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connecting}
		}, nil, Unhealthy, []string{"NotConnected"}},
		{"the peer does not answer", func(f *facts) {
			connection(f).Value = networkingv1beta1.ConnectionError
			connection(f).Conditions = []metav1.Condition{condition(networkingv1beta1.ConditionPeerAnswers, false, "NoHandshake", "WireGuard gets no answer")}
		}, nil, Unhealthy, []string{"NoHandshake"}},
		{"the MTUs differ", func(f *facts) {
			connection(f).Conditions = append(connection(f).Conditions, condition(networkingv1beta1.ConditionMTUMatches, false, "MTUMismatch", "1340 and 1400"))
		}, nil, Unhealthy, []string{"MTUMismatch"}},
		{"one of several tunnels does not carry", func(f *facts) {
			connection(f).Conditions = append(connection(f).Conditions, condition(networkingv1beta1.ConditionAllTunnelsCarry, false, "TunnelsLeftOut", "2 of 3 tunnels carry packets"))
		}, nil, Healthy, []string{"TunnelsLeftOut W"}},
		{"the newest objects are refused", func(f *facts) {
			connection(f).Conditions = append(connection(f).Conditions, condition(networkingv1beta1.ConditionConfigurationApplied, false, "Refused", "a bad prefix"))
		}, nil, Healthy, []string{"Refused W"}},
		{"objects are missing", func(f *facts) {
			connection(f).Conditions = append(connection(f).Conditions, condition(networkingv1beta1.ConditionConfigurationApplied, false, "WaitingForObjects", "no key"))
		}, nil, Unhealthy, []string{"WaitingForObjects"}},
		{"the gateway is silent", func(f *facts) { connection(f).Latency.Timestamp = metav1.NewTime(now.Add(-10 * time.Minute)) }, nil, Healthy, []string{"Stale W"}},
		{"a node without an agent", func(f *facts) { f.internalNodes[1].Status = networkingv1beta1.InternalNodeStatus{} }, nil, Unhealthy, []string{"NodesNotJoined"}},
		{"a node with a rule of another program", func(f *facts) {
			f.internalNodes[1].Status.Conditions = []metav1.Condition{condition(networkingv1beta1.ConditionTunnelsReady, false, networkingv1beta1.ReasonTrafficDiverted, "the rule 500")}
		}, nil, Unhealthy, []string{"NodesNotJoined"}},
		{"no node is joined", func(f *facts) { f.tunnels = nil }, nil, Unhealthy, []string{"NodesNotJoined I"}},
		{"a node without address translation", func(f *facts) {
			f.internalNodes[1].Status.Conditions = append(f.internalNodes[1].Status.Conditions,
				condition(networkingv1beta1.ConditionAddressTranslationReady, false, networkingv1beta1.ReasonNFTablesUnavailable, "the kernel has no nf_tables"))
		}, nil, Unhealthy, []string{"NFTablesUnavailable"}},
		{"no node that could be seen", func(f *facts) { f.tunnels = nil }, []Gap{{Kind: "GeneveTunnel", Err: forbidden}}, Healthy, nil},
		{"no key of the peer", func(f *facts) { f.publicKeys = nil }, nil, Unhealthy, []string{"KeysWrong"}},
		{"no key of the peer that could be seen", func(f *facts) { f.publicKeys = nil }, []Gap{{Kind: "PublicKey", Err: forbidden}}, Healthy, nil},
		{"no key of the peer, of which the gateway has said so", func(f *facts) {
			f.publicKeys = nil
			server(f).Status.Conditions = append(server(f).Status.Conditions, condition(networkingv1beta1.ConditionKeysReady, false, networkingv1beta1.ReasonPeerKeyMissing, "there is none"))
		}, nil, Unhealthy, []string{"PeerKeyMissing"}},
		{"two keys of the peer", func(f *facts) {
			second := f.publicKeys[0]
			second.Name = "second"
			f.publicKeys = append(f.publicKeys, second)
		}, nil, Unhealthy, []string{"KeysWrong"}},
		{"its own key", func(f *facts) {
			server(f).Status.PublicKey = f.publicKeys[0].Spec.PublicKey
		}, nil, Unhealthy, []string{"KeysWrong"}},
		{"a filter that is refused", func(f *facts) {
			f.firewalls = []networkingv1beta1.FirewallConfiguration{{
				ObjectMeta: with(object("liqo", "web", "", 9), networkingv1beta1.LabelFirewallSubcategory, networkingv1beta1.SubcategoryAllGateways),
				Status: networkingv1beta1.FirewallConfigurationStatus{Conditions: []networkingv1beta1.HostCondition{
					{Host: "milan", Type: networkingv1beta1.HostConditionApplied, Status: metav1.ConditionFalse, Reason: "Refused", Message: "rule 3"},
					{Host: "paris", Type: networkingv1beta1.HostConditionApplied, Status: metav1.ConditionFalse, Reason: "Other"},
				}},
			}, {ObjectMeta: with(object("liqo", "paris", "", 9), networkingv1beta1.LabelFirewallUnique, "paris")}}
		}, nil, Healthy, []string{"Refused W"}},
		{"an object that is too many", func(f *facts) {
			f.configurations = append(f.configurations, networkingv1beta1.Configuration{ObjectMeta: object("default", "milan", "milan", 1)})
		}, nil, Healthy, []string{"Surplus W"}},
		{"errors come first", func(f *facts) {
			f.configurations = append(f.configurations, networkingv1beta1.Configuration{ObjectMeta: object("default", "milan", "milan", 1)})
			f.connections = nil
			f.pods[0].Status.Conditions = nil
		}, nil, Unhealthy, []string{"Missing", "PodNotReady W", "Surplus W"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := peering()
			tt.change(f)
			s := f.read()
			s.Gaps = tt.gaps
			health, alerts := s.Health(s.Peer("milan"))
			for _, a := range alerts {
				if a.Object == "" || a.Message == "" {
					t.Errorf("%+v does not say what is the matter", a)
				}
			}
			got := told(alerts)
			if health != tt.want {
				t.Errorf("%s, want %s", health, tt.want)
			}
			if diff := cmp.Diff(tt.alerts, got); diff != "" {
				t.Errorf("alerts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHealthByReport: what only the gateway tells.
func TestHealthByReport(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*GatewayReport)
		want   Health
		alerts []string
	}{
		{"all is well", func(*GatewayReport) {}, Healthy, nil},
		{"a node was never heard", func(r *GatewayReport) { r.DataPlane.Nodes[0].LastSeen = time.Time{} }, Unhealthy, []string{"NodesNotHeard"}},
		{"a gateway that has just started", func(r *GatewayReport) {
			r.DataPlane.Nodes[0].LastSeen, r.Started = time.Time{}, now.Add(-time.Second)
		}, Healthy, nil},
		{"no node was heard lately", func(r *GatewayReport) {
			for i := range r.DataPlane.Nodes {
				r.DataPlane.Nodes[i].LastSeen = now.Add(-time.Minute)
			}
		}, Unhealthy, []string{"NodesNotHeard I"}},
		{"a node that it does not know", func(r *GatewayReport) { r.DataPlane.Nodes = r.DataPlane.Nodes[1:] }, Unhealthy, []string{"NodesNotHeard"}},
		{"another key of the peer is in force", func(r *GatewayReport) { r.DataPlane.Tunnel.Peer = "other" }, Healthy, []string{"KeysWrong W"}},
		{"handshakes of another key", func(r *GatewayReport) { r.DataPlane.Tunnel.LastInitiation = now.Add(-5 * time.Second) }, Healthy, []string{"KeysWrong W"}},
		{"handshakes of another key, long ago", func(r *GatewayReport) { r.DataPlane.Tunnel.LastInitiation = now.Add(-5 * time.Minute) }, Healthy, nil},
		{"a handshake that was answered", func(r *GatewayReport) {
			r.DataPlane.Tunnel.LastInitiation, r.DataPlane.Tunnel.LastResponse = now.Add(-5*time.Second), now.Add(-5*time.Second)
		}, Healthy, nil},
		{"a handshake that is being answered", func(r *GatewayReport) { r.DataPlane.Tunnel.LastInitiation = now }, Healthy, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := peering().read()
			p := s.Peer("milan")
			r := &GatewayReport{Time: now, Started: now.Add(-time.Hour)}
			r.Sync.Peer.Value = networkingv1beta1.Connected
			r.DataPlane.Configured = true
			r.DataPlane.Tunnel.Peer = base64.StdEncoding.EncodeToString(p.PublicKeys[0].Spec.PublicKey)
			for _, n := range []string{"worker-1", "worker-2"} {
				r.DataPlane.Nodes = append(r.DataPlane.Nodes, NodeTunnel{Name: n, LastSeen: now.Add(-time.Second)})
			}
			tt.change(r)
			p.Gateway.Report = r
			health, alerts := s.Health(p)
			got := told(alerts)
			if diff := cmp.Diff(tt.alerts, got); diff != "" || health != tt.want {
				t.Errorf("%s, want %s; alerts (-want +got):\n%s", health, tt.want, diff)
			}
		})
	}
}

// TestCompareKeys: the peer's gateway has another key than this cluster was told.
func TestCompareKeys(t *testing.T) {
	here, there := peering().read(), peering().read()
	p, other := here.Peer("milan"), there.Peer("milan")
	for theirs, want := range map[string]int{base64.StdEncoding.EncodeToString(p.PublicKeys[0].Spec.PublicKey): 0, "b3RoZXI=": 1} {
		other.Gateway.Keys.Public = theirs
		st := here.Status(p, nil)
		st.Compare(p, other)
		if len(st.Alerts) != want || want > 0 && (st.Alerts[0].Reason != ReasonKeys || st.Health != Unhealthy) {
			t.Errorf("with the key %s there: %s, %+v", theirs, st.Health, st.Alerts)
		}
	}
}

// Only the controller marks the pod that leads.
func TestNoPodIsActiveWithoutAController(t *testing.T) {
	f := peering()
	f.pods[1].Labels[networkingv1beta1.LabelActive] = ""
	s := f.read()
	s.Installation.Components = []Component{{Kind: kindDeployment, Namespace: "liqo", Name: "liqo-controller"}}
	_, alerts := s.Health(s.Peer("milan"))
	want := "GatewayServer liqo-tenant-milan/milan: none of its pods is active, so nothing is forwarded: " +
		"Deployment liqo/liqo-controller marks the leading pod and points the nodes to it, but no pod of it runs: " +
		"kubectl -n liqo scale deployment liqo-controller --replicas=2"
	if len(alerts) != 1 || alerts[0].String() != want {
		t.Errorf("%v, want %s", alerts, want)
	}
	if s.Installation.Components[0].Healthy() {
		t.Error("a controller that is to have no pod is healthy")
	}
	if status := s.Status(s.Peer("milan"), nil); !Idle(status.Alerts) {
		t.Errorf("it forwards: %+v", status)
	}
}

func TestNodeAlertNamesSome(t *testing.T) {
	f := peering()
	for i := range 5 {
		f.nodes = append(f.nodes, metav1.PartialObjectMetadata{ObjectMeta: object("", fmt.Sprintf("node-%d", i), "", 1)})
	}
	s := f.read()
	_, alerts := s.Health(s.Peer("milan"))
	want := "GatewayServer liqo-tenant-milan/milan: 5 of 7 nodes are not joined to the gateway: node-0, node-1, node-2, .... " +
		"node-0: it has no InternalNode: see the log of the controller"
	if len(alerts) != 1 || alerts[0].String() != want || alerts[0].Warning {
		t.Errorf("%+v, want %s", alerts, want)
	}
}

// A node that has just come is no error yet.
func TestNodeAlertOfANewNode(t *testing.T) {
	for name, age := range map[string]time.Duration{"new": 10 * time.Second, "old": 2 * joinTime} {
		f := peering()
		s := f.read()
		s.Nodes = append(s.Nodes, Node{Name: "node-new", Created: s.ReadAt.Add(-age)})
		health, alerts := s.Health(s.Peer("milan"))
		if len(alerts) != 1 || alerts[0].Warning != (name == "new") || (health == Healthy) != (name == "new") {
			t.Errorf("%s: %v, %+v", name, health, alerts)
		}
	}
}

func TestAlertOfAGatewayWithoutAPIServer(t *testing.T) {
	s := peering().read()
	p := s.Peer("milan")
	p.Gateway.Report = gatewayReport(t)
	_, alerts := s.Health(p)
	if !slices.ContainsFunc(alerts, func(a Alert) bool { return a.Reason == ReasonAPIAway && a.Warning }) {
		t.Errorf("%+v", alerts)
	}
}

func TestPodReasonIsShown(t *testing.T) {
	f := peering()
	f.pods[1].Status = corev1.PodStatus{Phase: corev1.PodPending}
	s := f.read()
	_, alerts := s.Health(s.Peer("milan"))
	if len(alerts) != 1 || alerts[0].String() != "pod liqo-tenant-milan/gw-milan-a: phase Pending" {
		t.Errorf("%+v", alerts)
	}
}

func TestMissing(t *testing.T) {
	gaps := []Gap{
		{What: "Secrets", Err: forbidden}, {What: "Nodes", Err: forbidden}, {What: "Secrets", Err: forbidden},
		{What: "Configuration a/b", Err: errors.New("(local) read Configuration a/b: it is not what this version understands")},
	}
	for i := range 7 {
		gaps = append(gaps, Gap{What: "x", Err: fmt.Errorf("reason %d", i)})
	}
	want := []string{
		"only namespace shop is shown: the user of kubeconfig a may not look everywhere",
		"left out, as the user of kubeconfig a may not read it: Nodes, Secrets",
		"(local) read Configuration a/b: it is not what this version understands",
		"reason 0", "reason 1", "reason 2", "reason 3", "and 3 more that cannot be read",
	}
	if diff := cmp.Diff(want, (&Cluster{Gaps: gaps, Within: "shop"}).Missing("kubeconfig a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lines := new(Cluster).Missing(""); lines != nil {
		t.Errorf("no gaps: %q", lines)
	}
}

// TestInterruptedTakeover: what is left of a takeover is told once, and not that 'liqoctl install' creates what is missing.
func TestInterruptedTakeover(t *testing.T) {
	liqos := Component{Kind: "Deployment", Namespace: "liqo", Name: "liqo-controller-manager", LiqosProgram: LiqosControllers, Desired: 1, Ready: 1}
	ours := Component{Kind: "Deployment", Namespace: "liqo", Name: "liqo-controller", Desired: 1, Ready: 1}
	for _, components := range [][]Component{{liqos}, {liqos, ours}} {
		c := Cluster{Installation: Installation{Namespace: "liqo", Components: components, Interrupted: "there is a policy: 'liqoctl install --adopt' goes on"}}
		want := Alert{Object: "namespace liqo", Reason: ReasonInterrupted, Warning: true, Message: c.Installation.Interrupted}
		if got := c.ComponentAlerts(); len(got) != 1 || got[0] != want {
			t.Errorf("%+v", got)
		}
	}
}

func TestComponentAlerts(t *testing.T) {
	controller := Component{Kind: "Deployment", Namespace: "liqo", Name: "liqo-controller", Desired: 2, Ready: 2}
	off, dns := controller, controller
	off.Desired, off.Ready, dns.Name = 0, 0, "liqo-cluster-dns"
	agents := Component{Kind: "DaemonSet", Namespace: "liqo-fabric", Name: "liqo-fabric", Desired: 2, Ready: 2}
	some := agents
	some.Ready = 1
	// What is Liqo's has the names that its chart makes of nameOverride.
	liqos := func(name string, desired int32) Component {
		return Component{Kind: "Deployment", Namespace: "liqo", Name: "x-" + name, LiqosProgram: name, Desired: desired, Ready: desired}
	}
	manager, metrics := liqos("controller-manager", 1), liqos("metric-agent", 0)
	for _, tt := range []struct {
		name       string
		components []Component
		replicas   int32
		gaps       []Gap
		want       []string // object, reason, and the end of the message
	}{
		{"all is well", []Component{controller, agents}, 0, nil, nil},
		{"scaled to zero", []Component{off, agents}, 0, nil, []string{"Deployment liqo/liqo-controller ScaledToZero --replicas=2"}},
		{"three scaled to zero", []Component{off, agents}, 3, nil, []string{"Deployment liqo/liqo-controller ScaledToZero --replicas=3"}},
		{"no agents", []Component{controller}, 0, nil, []string{"namespace liqo Missing 'liqoctl install' creates it again"}},
		{"no agents that could be seen", []Component{controller}, 0, []Gap{{Kind: "DaemonSet", Err: forbidden}}, nil},
		{"some agents", []Component{controller, some}, 0, nil, []string{"DaemonSet liqo-fabric/liqo-fabric PodsNotReady 1 of 2 pods are ready"}},
		{"no controller, but DNS", []Component{dns, agents}, 0, nil, []string{"namespace liqo Missing 'liqoctl install' creates it again"}},
		{"no controller that could be seen", []Component{agents}, 0, []Gap{{Kind: "Deployment", Err: forbidden}}, nil},
		{"Liqo without what its network needs", []Component{manager, metrics, liqos("ipam", 0), liqos("webhook", 0), agents}, 0, nil, []string{
			"Deployment liqo/x-ipam ScaledToZero nothing else does its work; undo it with kubectl -n liqo scale deployment x-ipam --replicas=1",
			"Deployment liqo/x-webhook ScaledToZero pods in offloaded namespaces; undo it with kubectl -n liqo scale deployment x-webhook --replicas=1",
		}},
		{"what may be off beside ours", []Component{manager, metrics, liqos("ipam", 0), controller, agents}, 0, nil, nil},
		{"what may not be off beside ours", []Component{liqos("controller-manager", 0), liqos("webhook", 0), liqos("crd-replicator", 0), controller, agents}, 3, nil, []string{
			"Deployment liqo/x-controller-manager ScaledToZero authentication and offloading stop; undo it with kubectl -n liqo scale deployment x-controller-manager --replicas=1",
			"Deployment liqo/x-webhook ScaledToZero pods in offloaded namespaces; undo it with kubectl -n liqo scale deployment x-webhook --replicas=1",
			"Deployment liqo/x-crd-replicator ScaledToZero nothing else does its work; undo it with kubectl -n liqo scale deployment x-crd-replicator --replicas=1",
		}},
	} {
		c := Cluster{Installation: Installation{Namespace: "liqo", Components: tt.components, ControllerReplicas: tt.replicas}, Gaps: tt.gaps}
		alerts := c.ComponentAlerts()
		if len(alerts) != len(tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, alerts, tt.want)
			continue
		}
		for i, a := range alerts {
			start := a.Object + " " + a.Reason + " "
			end, ok := strings.CutPrefix(tt.want[i], start)
			if !ok || !strings.HasSuffix(a.Message, end) || !a.Warning {
				t.Errorf("%s: %+v, want %q", tt.name, a, tt.want[i])
			}
		}
	}
}
