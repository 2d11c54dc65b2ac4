package survey

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/access"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// object is the metadata of one that is so many minutes old.
func object(namespace, name, id string, minutes int) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))}
	if id != "" {
		m.Labels = map[string]string{networkingv1beta1.LabelRemoteClusterID: id}
	}
	return m
}

// with adds labels.
func with(m metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	for i := 0; i < len(labels); i += 2 {
		m.Labels[labels[i]] = labels[i+1]
	}
	return m
}

func condition(t networkingv1beta1.ConditionType, ok bool, reason networkingv1beta1.ConditionReason, message string) metav1.Condition {
	c := metav1.Condition{Type: string(t), Status: metav1.ConditionFalse, Reason: string(reason), Message: message, ObservedGeneration: 1}
	if ok {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// peering is a cluster with a peering with milan that is as it should be.
func peering() *facts {
	const ns = "liqo-tenant-milan"
	f := &facts{now: now, id: "rome", liqoNamespace: "liqo", kubernetes: "v1.33.0", install: access.Installation{Version: "v0.5.0"}}
	f.components = []Component{{Kind: "Deployment", Namespace: "liqo", Name: "liqo-controller", Version: "latest", Desired: 1, Ready: 1}}
	f.networks = []ipamv1alpha1.Network{
		{ObjectMeta: with(object("liqo", "pod-cidr", "", 90), ipamv1alpha1.LabelNetworkType, ipamv1alpha1.NetworkTypePodCIDR),
			Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.243.0.0/16"}, Status: ipamv1alpha1.NetworkStatus{CIDR: "10.243.0.0/16"}},
		{ObjectMeta: object("liqo", "external-cidr", "", 90), Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.70.0.0/16"}, Status: ipamv1alpha1.NetworkStatus{CIDR: "10.70.0.0/16"}},
		{ObjectMeta: object("liqo", "mine", "", 90), Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.99.0.0/16"}},
	}
	for _, n := range []string{"worker-1", "worker-2"} {
		f.nodes = append(f.nodes, metav1.PartialObjectMetadata{ObjectMeta: object("", n, "", 90)})
		f.internalNodes = append(f.internalNodes, networkingv1beta1.InternalNode{ObjectMeta: object("", n, "", 90), Status: networkingv1beta1.InternalNodeStatus{
			NodeIP:     networkingv1beta1.NodeIP{Remote: "172.18.0.2"},
			Conditions: []metav1.Condition{condition(networkingv1beta1.ConditionTunnelsReady, true, "TunnelsReady", "")},
		}})
		f.tunnels = append(f.tunnels, metav1.PartialObjectMetadata{ObjectMeta: with(object(ns, "milan-"+n, "milan", 20),
			networkingv1beta1.LabelInternalFabricName, "milan", networkingv1beta1.LabelInternalNodeName, n)})
	}
	f.nodes = append(f.nodes, metav1.PartialObjectMetadata{ObjectMeta: with(object("", "milan", "", 9), networkingv1beta1.LabelNodeType, networkingv1beta1.NodeTypeVirtual)})
	f.tenants = []metav1.PartialObjectMetadata{{ObjectMeta: object("", ns, "milan", 30)}}
	f.configurations = []networkingv1beta1.Configuration{{ObjectMeta: object(ns, "milan", "milan", 29),
		Spec: networkingv1beta1.ConfigurationSpec{Remote: clusterConfig("10.243.0.0/16", "10.70.0.0/16")},
		Status: networkingv1beta1.ConfigurationStatus{Remote: new(clusterConfig("10.71.0.0/16", "10.70.0.0/16")),
			Conditions: []metav1.Condition{condition(networkingv1beta1.ConditionNetworkCIDRsConfigured, true, "NetworkCIDRsConfigured", "")}},
	}}
	f.servers = []networkingv1beta1.GatewayServer{{ObjectMeta: object(ns, "milan", "milan", 28),
		Spec: networkingv1beta1.GatewayServerSpec{MTU: 1340, ServerTemplateRef: corev1.ObjectReference{Name: "wireguard-server"},
			Endpoint: networkingv1beta1.ServerEndpoint{Port: 51840, ServiceType: corev1.ServiceTypeNodePort}},
		Status: networkingv1beta1.GatewayServerStatus{
			Endpoint:  &networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8"}, Port: 32009, Protocol: "UDP"},
			SecretRef: &corev1.ObjectReference{Name: "gw-milan"},
			PublicKey: []byte("rome"), PublicKeyTime: metav1.NewTime(now.Add(-72 * time.Hour)),
			Conditions: []metav1.Condition{condition(networkingv1beta1.ConditionDeployed, true, "DeploymentReady", "")},
		},
	}}
	f.publicKeys = []networkingv1beta1.PublicKey{{ObjectMeta: object(ns, "milan", "milan", 27), Spec: networkingv1beta1.PublicKeySpec{PublicKey: bytes.Repeat([]byte("m"), publicKeyLen)}}}
	f.connections = []networkingv1beta1.Connection{{ObjectMeta: object(ns, "gw-milan", "milan", 26),
		Spec: networkingv1beta1.ConnectionSpec{Type: "Server", GatewayRef: corev1.ObjectReference{Kind: "WgGatewayServer", Name: "milan", Namespace: ns}},
		Status: networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected,
			Latency:    networkingv1beta1.ConnectionLatency{Value: "12ms", Timestamp: metav1.NewTime(now.Add(-5 * time.Second))},
			Conditions: []metav1.Condition{condition(networkingv1beta1.ConditionPeerAnswers, true, "PeerAnswers", "")}},
	}}
	f.fabrics = []networkingv1beta1.InternalFabric{{ObjectMeta: object(ns, "milan", "milan", 25)}}
	f.pods = []corev1.Pod{gatewayPod(ns, "milan", "gw-milan-b", false, 20), gatewayPod(ns, "milan", "gw-milan-a", true, 20)}
	return f
}

func clusterConfig(pod, external networkingv1beta1.CIDR) networkingv1beta1.ClusterConfig {
	return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
		Pod: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{pod}, Scalar: true}, External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{external}, Scalar: true},
	}}
}

func gatewayPod(namespace, gateway, name string, active bool, minutes int) corev1.Pod {
	p := corev1.Pod{ObjectMeta: with(object(namespace, name, "", minutes), networkingv1beta1.LabelComponent, networkingv1beta1.ComponentGateway,
		networkingv1beta1.LabelGatewayName, gateway, networkingv1beta1.LabelGatewayNamespace, namespace)}
	if active {
		p.Labels[networkingv1beta1.LabelActive] = networkingv1beta1.LabelTrue
	}
	p.Spec = corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{Name: "gateway", Image: "sluice/gateway:v0.5.0"}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "gateway", Ready: true, RestartCount: 1}}
	return p
}

func (f *facts) read() *Cluster {
	return f.build(&access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}}, Options{})
}

func TestBuildJoinsWhatBelongsTogether(t *testing.T) {
	s := peering().read()
	if len(s.Peers) != 1 || s.Peer("milan") == nil {
		t.Fatalf("peers %+v", s.Peers)
	}
	p := s.Peer("milan")
	g := p.Gateway
	if g == nil || p.Configuration == nil || p.Connection == nil || p.Fabric == nil || len(p.PublicKeys) != 1 {
		t.Fatalf("not everything is there: %+v", p)
	}
	got := map[string]any{
		"namespace": p.Namespace, "gateway": g.String(), "role": g.Role, "mtu": g.MTU, "endpoint": *g.Endpoint, "template": g.Template.Name,
		"key": g.Keys.Public, "active": g.Active().Name, "pods": len(g.Pods), "restarts": g.Pods[0].Restarts, "pod's version": g.Pods[0].Version,
		"tunnels": p.Tunnels, "surplus": p.Surplus, "nodes": len(s.Nodes), "version": s.Installation.Version,
		"networks": s.Networks,
	}
	want := map[string]any{
		"namespace": "liqo-tenant-milan", "gateway": "GatewayServer liqo-tenant-milan/milan", "role": networkingv1beta1.ConnectionServer, "mtu": 1340,
		"endpoint": networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8"}, Port: 32009, Protocol: "UDP"}, "template": "wireguard-server",
		"key": "cm9tZQ==", "active": "gw-milan-a", "pods": 2, "restarts": int32(1), "pod's version": "v0.5.0",
		"tunnels": []string{"worker-1", "worker-2"}, "surplus": []string(nil), "nodes": 2, "version": "v0.5.0",
		"networks": Networks{
			Pod:      []Network{{Name: "pod-cidr", Desired: "10.243.0.0/16", CIDR: "10.243.0.0/16"}},
			External: []Network{{Name: "external-cidr", Desired: "10.70.0.0/16", CIDR: "10.70.0.0/16"}},
			Other:    []Network{{Name: "mine", Desired: "10.99.0.0/16"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBuildChoosesAsTheControllersDo has several objects where one counts.
func TestBuildChoosesAsTheControllersDo(t *testing.T) {
	client := func(ns, name, id string, minutes int) networkingv1beta1.GatewayClient {
		return networkingv1beta1.GatewayClient{ObjectMeta: object(ns, name, id, minutes)}
	}
	for _, tt := range []struct {
		name   string
		change func(*facts)
		want   []string // of each peer: ID, namespace, gateway, surplus
	}{
		{"a younger gateway in the namespace", func(f *facts) {
			f.clients = append(f.clients, client("liqo-tenant-milan", "young", "milan", 1))
		}, []string{"milan liqo-tenant-milan GatewayServer liqo-tenant-milan/milan [GatewayClient liqo-tenant-milan/young]"}},
		{"an older gateway in another namespace", func(f *facts) { f.clients = append(f.clients, client("default", "old", "milan", 99)) },
			[]string{"milan default GatewayClient default/old [GatewayServer liqo-tenant-milan/milan Configuration liqo-tenant-milan/milan PublicKey liqo-tenant-milan/milan]"}},
		{"an older gateway that is being deleted", func(f *facts) {
			c := client("default", "old", "milan", 99)
			c.DeletionTimestamp = new(metav1.NewTime(now))
			f.clients = append(f.clients, c)
		}, []string{"milan liqo-tenant-milan GatewayServer liqo-tenant-milan/milan [GatewayClient default/old]"}},
		{"gateways without the label", func(f *facts) {
			f.clients = append(f.clients, client("default", "lost", "", 1), client("other", "lost", "", 1))
		}, []string{
			"milan liqo-tenant-milan GatewayServer liqo-tenant-milan/milan []", " default GatewayClient default/lost []", " other GatewayClient other/lost []",
		}},
		{"two Configurations", func(f *facts) {
			f.configurations = append(f.configurations, networkingv1beta1.Configuration{ObjectMeta: object("liqo-tenant-milan", "again", "milan", 1)})
		}, []string{"milan liqo-tenant-milan GatewayServer liqo-tenant-milan/milan [Configuration liqo-tenant-milan/again]"}},
		{"no gateway", func(f *facts) { f.servers = nil }, []string{"milan liqo-tenant-milan - []"}},
		{"only a namespace", func(f *facts) {
			f.servers, f.configurations, f.publicKeys = nil, nil, nil
		}, []string{"milan liqo-tenant-milan - []"}},
		{"nothing", func(f *facts) { *f = facts{} }, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := peering()
			tt.change(f)
			got := []string{}
			for _, p := range f.read().Peers {
				gateway := "-"
				if p.Gateway != nil {
					gateway = p.Gateway.String()
				}
				got = append(got, fmt.Sprintf("%s %s %s %v", p.ID, p.Namespace, gateway, p.Surplus))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestBuildExposes: peers know the IPs of the external CIDR.
func TestBuildExposes(t *testing.T) {
	allocated := func(ok bool, message string) []metav1.Condition {
		return []metav1.Condition{condition(networkingv1beta1.ConditionType(ipamv1alpha1.ConditionAllocated), ok, "", message)}
	}
	f := peering()
	f.ips = []ipamv1alpha1.IP{
		{ObjectMeta: object("shop", "queue", "", 3), Spec: ipamv1alpha1.IPSpec{IP: "10.96.3.2"}, Status: ipamv1alpha1.IPStatus{Conditions: allocated(false, "no address is free")}},
		{ObjectMeta: object("shop", "db", "", 2), Spec: ipamv1alpha1.IPSpec{IP: "10.96.14.7"},
			Status: ipamv1alpha1.IPStatus{IP: "10.70.0.9", Conditions: allocated(true, "from Network external-cidr")}},
		{ObjectMeta: object("shop", "inside", "", 1), Spec: ipamv1alpha1.IPSpec{IP: "10.96.14.8", NetworkRef: &corev1.ObjectReference{Name: "mine"}},
			Status: ipamv1alpha1.IPStatus{IP: "10.99.0.1"}},
		{ObjectMeta: object("liqo", "host", "", 1), Spec: ipamv1alpha1.IPSpec{IP: "192.168.1.10"}},
	}
	want := []Exposed{
		{Namespace: "liqo", Name: "host", IP: "192.168.1.10"},
		{Namespace: "shop", Name: "db", IP: "10.96.14.7", Remapped: "10.70.0.9"},
		{Namespace: "shop", Name: "queue", IP: "10.96.3.2", Problem: "no address is free"},
	}
	if diff := cmp.Diff(want, f.build(new(access.Cluster), Options{}).Exposed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBuildForgetsAgents: what our agents have said of nodes is not believed when Liqo runs them again.
func TestBuildForgetsAgents(t *testing.T) {
	liqos := Component{Kind: kindDeployment, Namespace: "liqo", Name: "liqo-controller-manager", LiqosProgram: LiqosControllers, Desired: 1, Ready: 1}
	for _, tt := range []struct {
		name       string
		components []Component
		conditions int
	}{
		{"ours", peering().components, 1},
		{"Liqo's beside ours", append(peering().components, liqos), 1},
		{"Liqo's", []Component{liqos}, 0},
		{"not seen", nil, 1},
	} {
		f := peering()
		f.components = tt.components
		for _, n := range f.read().Nodes {
			if got := len(n.Internal.Status.Conditions); got != tt.conditions || n.Internal.Status.NodeIP.Remote == "" {
				t.Errorf("%s, %s: %d conditions, want %d, addresses %+v", tt.name, n.Name, got, tt.conditions, n.Internal.Status.NodeIP)
			}
		}
	}
}

func TestBuildTakesNodesOfAnEarlierReading(t *testing.T) {
	first := peering().read()
	f := peering()
	f.nodes, f.internalNodes, f.tunnels = nil, nil, nil
	second := f.build(&access.Cluster{}, Options{Nodes: first, Peers: []string{"milan"}})
	if joined, all, _ := second.Joined(second.Peer("milan")); joined != 2 || all != 2 {
		t.Errorf("%d of %d nodes, want 2 of 2", joined, all)
	}
	if none := f.build(&access.Cluster{}, Options{Peers: []string{"paris"}}); len(none.Peers) != 0 {
		t.Errorf("peers %+v, want those asked for", none.Peers)
	}
}

func TestImageVersion(t *testing.T) {
	for image, want := range map[string]string{
		"ghcr.io/sluice/gateway:v1.2.3":             "v1.2.3",
		"localhost:5000/gateway":                    "",
		"localhost:5000/gateway:dev":                "dev",
		"gateway:v1@sha256:0123456789abcdef0123456": "v1",
		"gateway@sha256:0123456789abcdef0123456":    "sha256:0123456789ab",
	} {
		if got := imageVersion([]corev1.Container{{Image: image}}); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
	if got := imageVersion(nil); got != "" {
		t.Errorf("no container: %q", got)
	}
}

func TestPodReason(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "gateway",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
	crashed := waiting("CrashLoopBackOff", "back-off 5m0s\nrestarting")
	crashed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	for _, tt := range []struct {
		name   string
		status corev1.PodStatus
		want   string
	}{
		{"an image that cannot be had", waiting("ImagePullBackOff", ""), "container gateway waits (ImagePullBackOff)"},
		{"a program that is killed", crashed, "container gateway waits (CrashLoopBackOff: back-off 5m0s restarting); it ended before with 137 (OOMKilled)"},
		{"no node", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: "Unschedulable", Message: "0/3 nodes are available"}}}, "no node takes it (Unschedulable: 0/3 nodes are available)"},
		{"not ready yet", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "gateway",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}, "container gateway runs and is not ready"},
		{"evicted", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"}, "failed (Evicted: the node was low on memory)"},
		{"nothing known", corev1.PodStatus{}, "phase Unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := podOf(&corev1.Pod{Status: tt.status})
			if p.Ready || p.Reason != tt.want {
				t.Errorf("ready %v, reason %q, want %q", p.Ready, p.Reason, tt.want)
			}
		})
	}
	if p := podOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}); p.Ready || p.Reason != "is being deleted" {
		t.Errorf("a pod that is being deleted: %+v", p)
	}
}
