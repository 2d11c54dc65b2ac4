package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
	"github.com/sluice-net/sluice/test/golden"
)

var someTime = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// romeSurvey is a cluster with three peers: one that is well, one that is not, one
// that was disconnected; and with a controller that is not well.
func romeSurvey() *survey.Cluster {
	networks := func(cidr string) []survey.Network { return []survey.Network{{Name: cidr, Desired: cidr, CIDR: cidr}} }
	s := &survey.Cluster{
		ReadAt: someTime,
		Installation: survey.Installation{
			ClusterID: "rome", Version: "v0.5.0", Namespace: "liqo", APIServer: "https://172.18.0.2:6443", KubernetesVersion: "v1.33.0",
			Labels: map[string]string{"tier": "gold", "region": "south"},
			Components: []survey.Component{
				{Kind: "Deployment", Namespace: "liqo", Name: "liqo-controller", Version: "v0.5.0", Desired: 1,
					Pods: []survey.Pod{{Namespace: "liqo", Name: "liqo-controller-5d9f-abcde", Node: "worker-1", Restarts: 7, Reason: "container controller waits (CrashLoopBackOff)"}}},
				{Kind: "DaemonSet", Namespace: "liqo-fabric", Name: "liqo-fabric", Version: "v0.5.0", Desired: 2, Ready: 2},
			},
		},
		Networks: survey.Networks{
			Pod: networks("10.243.0.0/16"), Service: networks("10.96.0.0/16"), External: networks("10.70.0.0/16"),
			Internal: []survey.Network{{Name: "internal-cidr", Desired: "10.80.0.0/16", Problem: "no prefix is free"}}, Reserved: networks("192.168.0.0/24"),
		},
		Peers: []survey.Peer{peerSurvey("milan"), peerSurvey("naples"), peerSurvey("venice"), {ID: "pisa", Namespace: "liqo-tenant-pisa"}},
	}
	for i, name := range []string{"worker-1", "worker-2"} {
		s.Nodes = append(s.Nodes, survey.Node{Name: name, Internal: &networkingv1beta1.InternalNode{Status: networkingv1beta1.InternalNodeStatus{
			NodeIP: networkingv1beta1.NodeIP{Remote: networkingv1beta1.Address(fmt.Sprintf("172.18.0.%d", 2+i))},
		}}})
	}
	s.Peer("milan").Gateway.Role = networkingv1beta1.ConnectionServer
	s.Peer("naples").Tunnels = s.Peer("naples").Tunnels[:1]
	naples := s.Peer("naples")
	naples.Connection.Status = networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.ConnectionError, Conditions: []metav1.Condition{{
		Type: string(networkingv1beta1.ConditionPeerAnswers), Status: metav1.ConditionFalse, Reason: "NoHandshake",
		Message: "WireGuard gets no answer from 203.0.113.7:51840: check that this is the endpoint in the status of the peer's GatewayServer, that UDP gets there",
	}}}
	venice := s.Peer("venice")
	venice.Gateway, venice.Connection, venice.Configuration.Status.Remote = nil, nil, nil
	return s
}

// authenticated are peerings of rome as a controller shows them that knows of more than the network: one that provides,
// with its API server away; one that consumes, without a network; one with nothing but a network.
func authenticated() *survey.Cluster {
	s := romeSurvey()
	foreign := func(role corev1beta1.Role, conditions ...corev1beta1.Condition) *corev1beta1.ForeignCluster {
		f := &corev1beta1.ForeignCluster{Status: corev1beta1.ForeignClusterStatus{Role: role}}
		f.Status.Modules.Authentication = corev1beta1.Module{Enabled: len(conditions) > 0, Conditions: conditions}
		return f
	}
	milan := s.Peer("milan")
	milan.Foreign = foreign(corev1beta1.ProviderRole, corev1beta1.Condition{Type: corev1beta1.ConditionAuthIdentityControlPlane, Status: corev1beta1.StatusReady, Message: "Identity a/b: Secret c"})
	milan.Foreign.Status.APIServerURL = "https://203.0.113.8:6443"
	milan.Foreign.Status.Conditions = []corev1beta1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: corev1beta1.StatusError, Message: "the API server of cluster milan: it does not answer in time"}}
	decided := func(of authv1beta1.ResourceSliceConditionType, status authv1beta1.ResourceSliceConditionStatus, message string) authv1beta1.ResourceSliceCondition {
		return authv1beta1.ResourceSliceCondition{Type: of, Status: status, Message: message}
	}
	milan.Slices = []authv1beta1.ResourceSlice{
		{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Status: authv1beta1.ResourceSliceStatus{
			Conditions: []authv1beta1.ResourceSliceCondition{decided(authv1beta1.SliceAuthentication, authv1beta1.SliceAccepted, "a"), decided(authv1beta1.SliceResources, authv1beta1.SliceAccepted, "b")},
			Resources:  corev1.ResourceList{"memory": resource.MustParse("8Gi"), "cpu": resource.MustParse("4")},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Status: authv1beta1.ResourceSliceStatus{
			Conditions: []authv1beta1.ResourceSliceCondition{decided(authv1beta1.SliceAuthentication, authv1beta1.SliceAccepted, "a"), decided(authv1beta1.SliceResources, authv1beta1.SliceDenied, "the tenant is cordoned")},
		}},
		// One of a class on which another controller decides, which is not there.
		{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Status: authv1beta1.ResourceSliceStatus{
			Conditions: []authv1beta1.ResourceSliceCondition{decided(authv1beta1.SliceAuthentication, authv1beta1.SliceAccepted, "a")},
		}},
	}
	milan.Foreign.Status.Modules.Offloading = corev1beta1.Module{Enabled: true, Conditions: []corev1beta1.Condition{
		{Type: corev1beta1.ConditionOffloadingVirtualNode, Status: corev1beta1.StatusReady},
		{Type: corev1beta1.ConditionOffloadingNode, Status: corev1beta1.StatusSomeNotReady, Message: "Node more is not ready: the API server of cluster milan does not answer"},
	}}
	virtual := func(name, slice string, node offloadingv1beta1.VirtualNodeConditionStatus, message string) offloadingv1beta1.VirtualNode {
		v := offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if slice != "" {
			v.Labels = map[string]string{authv1beta1.LabelResourceSliceName: slice}
		}
		v.Spec.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: "kubeconfig-resourceslice-" + name}
		v.Spec.ResourceQuota.Hard = corev1.ResourceList{"memory": resource.MustParse("8Gi"), "cpu": resource.MustParse("4")}
		v.Status.Conditions = []offloadingv1beta1.VirtualNodeCondition{
			{Type: offloadingv1beta1.VirtualNodeVirtualKubelet, Status: offloadingv1beta1.VirtualNodeRunning}, {Type: offloadingv1beta1.VirtualNodeNode, Status: node, Message: message},
		}
		return v
	}
	milan.VirtualNodes = []offloadingv1beta1.VirtualNode{
		virtual("milan", "milan", offloadingv1beta1.VirtualNodeRunning, ""),
		virtual("more", "", offloadingv1beta1.VirtualNodeCreating, "the API server of cluster milan does not answer"),
	}
	s.Peer("naples").Foreign = foreign(corev1beta1.UnknownRole)
	s.Peers = append(s.Peers, survey.Peer{ID: "bari", Namespace: "liqo-tenant-bari", Foreign: foreign(corev1beta1.ConsumerRole, corev1beta1.Condition{Type: corev1beta1.ConditionAuthTenant, Status: corev1beta1.StatusReady})})
	s.Peer("bari").Slices = []authv1beta1.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{Name: "bari", Labels: map[string]string{authv1beta1.LabelReplicated: "true"}}}}
	return s
}

// exposed are an address that peers can reach, and one that they cannot yet.
var exposed = []survey.Exposed{
	{Namespace: "shop", Name: "db", IP: "10.96.14.7", Remapped: "10.70.0.9"},
	{Namespace: "shop", Name: "queue", IP: "10.96.3.2", Problem: "no address is free in Network liqo/external-cidr"},
}

// peerSurvey is a peer that is well.
func peerSurvey(id string) survey.Peer {
	ns := "liqo-tenant-" + id
	old := metav1.NewTime(someTime.Add(-72 * time.Hour))
	ready := func(t networkingv1beta1.ConditionType) []metav1.Condition {
		return []metav1.Condition{{Type: string(t), Status: metav1.ConditionTrue, Reason: string(t)}}
	}
	cidrs := func(pod networkingv1beta1.CIDR) networkingv1beta1.ClusterConfig {
		return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
			Pod:      networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{pod}, Scalar: true},
			External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{"10.70.0.0/16", "10.72.0.0/16"}},
		}}
	}
	remapped := cidrs("10.71.0.0/16")
	return survey.Peer{
		ID: id, Namespace: ns, Tunnels: []string{"worker-1", "worker-2"}, Fabric: &networkingv1beta1.InternalFabric{},
		Configuration: &networkingv1beta1.Configuration{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: id, CreationTimestamp: old},
			Spec:       networkingv1beta1.ConfigurationSpec{Remote: cidrs("10.243.0.0/16")},
			Status:     networkingv1beta1.ConfigurationStatus{Remote: &remapped, Conditions: ready(networkingv1beta1.ConditionNetworkCIDRsConfigured)},
		},
		Gateway: &survey.Gateway{
			Kind: "GatewayClient", Namespace: ns, Name: id, Role: networkingv1beta1.ConnectionClient, Created: old.Time, MTU: 1340,
			Endpoint: &networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.7"}, Port: 51840}, Conditions: ready(networkingv1beta1.ConditionDeployed),
			Keys: &survey.Keys{Secret: "gw-" + id, Public: "own", Since: old.Time},
			Pods: []survey.Pod{{Namespace: ns, Name: "gw-" + id + "-abcde", Node: "worker-1", Ready: true, Active: true, Version: "v0.5.0"}},
		},
		PublicKeys: []networkingv1beta1.PublicKey{{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: id, CreationTimestamp: old}, Spec: networkingv1beta1.PublicKeySpec{PublicKey: make([]byte, 32)},
		}},
		Connection: &networkingv1beta1.Connection{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gw-" + id},
			Status: networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected, Conditions: ready(networkingv1beta1.ConditionPeerAnswers),
				Latency: networkingv1beta1.ConnectionLatency{Value: "12ms", Timestamp: metav1.NewTime(someTime)}},
		},
	}
}

// shown is a page as it is on a pipe.
func shown(build func(*console.Page)) string {
	var out bytes.Buffer
	c := console.New(strings.NewReader(""), &out, &out)
	defer c.Close()
	c.Show(build)
	return out.String()
}

// printed is what -o prints.
func printed(t *testing.T, format string, v any) string {
	t.Helper()
	var out bytes.Buffer
	if err := (&output{w: &out, format: format}).data(v); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// withoutAgents is romeSurvey with its controller, and without node agents: their DaemonSet was
// deleted.
func withoutAgents() *survey.Cluster {
	s := romeSurvey()
	s.Installation.Components = s.Installation.Components[:1]
	s.Installation.Components[0].Ready, s.Installation.Components[0].Pods = 1, nil
	return s
}

// scaledToZero is romeSurvey with a controller that is to have no pods.
func scaledToZero() *survey.Cluster {
	s := romeSurvey()
	s.Installation.Components[0].Desired, s.Installation.Components[0].Pods = 0, nil
	return s
}

func TestInfoLooks(t *testing.T) {
	i := infoOf(romeSurvey())
	golden.Compare(t, "testdata/info/info.txt", shown(func(p *console.Page) { i.write(p, false) }))
	golden.Compare(t, "testdata/info/info-verbose.txt", shown(func(p *console.Page) { i.write(p, true) }))
	golden.Compare(t, "testdata/info/info.json", printed(t, formatJSON, i))
	golden.Compare(t, "testdata/info/info.yaml", printed(t, formatYAML, i))
	offloads := authenticated()
	offloads.Offloaded = []survey.OffloadedNamespace{
		{Namespace: "bank", RemoteName: "bank-rome", Phase: offloadingv1beta1.OffloadingReady},
		{Namespace: "shop", RemoteName: "shop-rome", Phase: offloadingv1beta1.OffloadingAllFailed, Alerts: []string{"cluster milan: namespace shop-rome of the cluster cannot be created"}},
	}
	golden.Compare(t, "testdata/info/info-offloading.txt", shown(func(p *console.Page) { infoOf(offloads).write(p, false) }))
	golden.Compare(t, "testdata/info/info-offloading.json", printed(t, formatJSON, infoOf(offloads).Offloaded))
	golden.Compare(t, "testdata/info/info-authenticated.txt", shown(func(p *console.Page) { infoOf(authenticated()).write(p, false) }))
	golden.Compare(t, "testdata/info/info-without-agents.txt", shown(func(p *console.Page) { infoOf(withoutAgents()).write(p, false) }))
	golden.Compare(t, "testdata/info/info-without-agents.json", printed(t, formatJSON, infoOf(withoutAgents()).Health))
	nothing := infoOf(&survey.Cluster{Installation: survey.Installation{Namespace: "liqo"}})
	golden.Compare(t, "testdata/info/info-nothing.txt", shown(func(p *console.Page) { nothing.write(p, true) }))
	few := romeSurvey()
	few.Gaps = []survey.Gap{{What: "ForeignClusters", Kind: "ForeignCluster"}}
	golden.Compare(t, "testdata/info/info-foreign-unseen.txt", shown(func(p *console.Page) { infoOf(few).write(p, false) }))
	unseen := infoOf(&survey.Cluster{Gaps: []survey.Gap{{Kind: "Deployment"}, {Kind: "DaemonSet"}, {Kind: "Network"}, {Kind: "GatewayClient"}}})
	golden.Compare(t, "testdata/info/info-unseen.txt", shown(func(p *console.Page) { unseen.write(p, true) }))
	golden.Compare(t, "testdata/info/info-unseen.json", printed(t, formatJSON, unseen))
}

func TestInfoOfSeveralTunnels(t *testing.T) {
	s := romeSurvey()
	s.Peer("milan").Gateway.Endpoint = &networkingv1beta1.Endpoint{Addresses: []string{"192.0.2.1"}, Ports: []int32{30742, 30743}}
	i := peerInfoOf(s, s.Peer("milan"))
	if text := shown(i.write); i.Network.Gateway.Port != 30742 || len(i.Network.Gateway.Ports) != 2 || !strings.Contains(text, "30742, 30743") {
		t.Errorf("%+v:\n%s", i.Network.Gateway, text)
	}
}

func TestInfoPeerLooks(t *testing.T) {
	s := romeSurvey()
	for _, id := range []string{"milan", "naples", "venice"} {
		i := peerInfoOf(s, s.Peer(id))
		golden.Compare(t, "testdata/info/peer-"+id+".txt", shown(i.write))
		golden.Compare(t, "testdata/info/peer-"+id+".json", printed(t, formatJSON, i))
	}
	s = authenticated()
	for _, id := range []string{"milan", "bari"} {
		i := peerInfoOf(s, s.Peer(id))
		golden.Compare(t, "testdata/info/peer-"+id+"-authenticated.txt", shown(i.write))
		golden.Compare(t, "testdata/info/peer-"+id+"-authenticated.json", printed(t, formatJSON, i))
	}
	s = romeSurvey()
	golden.Compare(t, "testdata/info/peer-milan.yaml", printed(t, formatYAML, peerInfoOf(s, s.Peer("milan"))))
	s.Exposed = exposed
	golden.Compare(t, "testdata/info/peer-milan-exposed.txt", shown(peerInfoOf(s, s.Peer("milan")).write))
	golden.Compare(t, "testdata/info/peer-milan-exposed.json", printed(t, formatJSON, peerInfoOf(s, s.Peer("milan"))))
}

func TestGet(t *testing.T) {
	s := romeSurvey()
	s.Exposed = exposed
	peers := map[string]peerInfo{"milan": peerInfoOf(s, s.Peer("milan")), "a.b": {}}
	for _, tt := range []struct {
		name   string
		format string
		from   any
		paths  []string
		want   string // or the error
	}{
		{"a value", "", infoOf(s), []string{"local.clusterID"}, "rome\n"},
		{"in lower case, with a dot in front", "", infoOf(s), []string{".local.apiserveraddr"}, "https://172.18.0.2:6443\n"},
		{"a value as JSON", formatJSON, infoOf(s), []string{"local.clusterid"}, "\"rome\"\n"},
		{"false is a value", "", infoOf(s), []string{"health.healthy"}, "false\n"},
		{"a list", "", infoOf(s), []string{"network.podcidrs"}, "- 10.243.0.0/16\n"},
		{"a list of nothing", "", peers["milan"], []string{"authentication.alerts"}, "[]\n"},
		{"an element of a list", "", infoOf(s), []string{"peerings.peers.0.role"}, "Client\n"},
		{"an object", "", peers["milan"], []string{"network.gateway"}, "address:\n- 203.0.113.7\nport: 51840\nrole: Client\n"},
		{"an object as JSON", formatJSON, peers["milan"], []string{"network.gateway"}, `{
  "address": [
    "203.0.113.7"
  ],
  "port": 51840,
  "role": "Client"
}
`},
		{"how the authentication is", "", peerInfoOf(authenticated(), authenticated().Peer("milan")), []string{"authentication.status"}, "Unhealthy\n"},
		{"the role of a provider", "", peerInfoOf(authenticated(), authenticated().Peer("milan")), []string{"info.role"}, "Provider\n"},
		{"where its API server is", "", peerInfoOf(authenticated(), authenticated().Peer("milan")), []string{"authentication.apiserveraddr"}, "https://203.0.113.8:6443\n"},
		{"the role of its gateway", "", peerInfoOf(authenticated(), authenticated().Peer("milan")), []string{"network.gateway.role"}, "Client\n"},
		{"a CIDR in its shape", "", peers["milan"], []string{"network.CIDRs.remapped.pod"}, "10.71.0.0/16\n"},
		{"an exposed IP", "", peers["milan"], []string{"network.exposedips.0.remapped"}, "10.70.0.9\n"},
		{"with an ID in front", "", peers, []string{"milan.network.status"}, "Healthy\n"},
		{"with an ID that is not needed", "", peers["milan"], []string{"milan.network.status", ".network.status"}, "Healthy\n"},
		{"an ID with dots", "", peers, []string{"a.b.info.role"}, "--get a.b.info.role: it has no value yet"},
		{"a mistake", "", infoOf(s), []string{"local.clusterident"},
			`--get local.clusterident: "local" has no "clusterident": choose from APIServerAddr, clusterID, kubernetesVersion, labels, version`},
		{"a mistake at the beginning", "", infoOf(s), []string{"cluster"}, `--get cluster: there is no "cluster": choose from health, local, network, peerings`},
		{"behind a value", "", infoOf(s), []string{"local.version.major"}, `--get local.version.major: "local.version" has no "major": it is a value`},
		{"behind the end of a list", "", infoOf(s), []string{"peerings.peers.7"}, `--get peerings.peers.7: "peerings.peers" has no "7": it is a list of 3, counted from 0`},
		{"nothing yet", "", infoOf(s), []string{"network.internalCIDR"}, "--get network.internalCIDR: it has no value yet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			o := &output{w: &out, format: tt.format}
			got := ""
			if err := o.get(tt.from, tt.paths[0], tt.paths[1:]...); err != nil {
				got = err.Error()
			} else {
				got = out.String()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestGetInfo: the error about a path of 'info peer' names that command.
func TestGetInfo(t *testing.T) {
	for path, told := range map[string]bool{
		"authentication.status": true, "info": true, "network.gateway.port": true, ".Network.connection.latency": true, "network.exposedIPs.0.IP": true,
		"network.CIDRs.remapped.pod": true, "offloading.virtualNodes.0.name": true,
		"milan": false, "local.status": false, "network.internalCIDR": false, "network.podCIDR": false,
	} {
		err := (&output{w: new(bytes.Buffer)}).getInfo(infoOf(romeSurvey()), path)
		if err == nil || strings.HasSuffix(err.Error(), "; for that of a peer: liqoctl info peer PEER-ID --get "+path) != told {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestInfoOfPartsThatAreOff: what Liqo can do without is told where it is scaled to zero, and is no failure.
func TestInfoOfPartsThatAreOff(t *testing.T) {
	s := romeSurvey()
	well := func(name string, desired int32) survey.Component {
		return survey.Component{Kind: "Deployment", Namespace: "liqo", Name: name, LiqosProgram: strings.TrimPrefix(name, "liqo-"), Desired: desired, Ready: desired}
	}
	agents := survey.Component{Kind: "DaemonSet", Namespace: "liqo", Name: "liqo-fabric", Desired: 2, Ready: 2}
	for _, tt := range []struct {
		name       string
		components []survey.Component
		want, not  string
	}{
		{"of Liqo", []survey.Component{well("liqo-controller-manager", 1), well("liqo-metric-agent", 0), agents},
			"Liqo is healthy Deployment liqo/liqo-metric-agent: somebody has scaled it to zero;", "carries nothing"},
		{"the controller of Liqo", []survey.Component{well("liqo-controller-manager", 0), agents},
			"a gateway pod that is replaced carries nothing; undo it with kubectl -n liqo scale deployment liqo-controller-manager --replicas=1", "Liqo is healthy"},
		{"what Liqo needs", []survey.Component{well("liqo-controller-manager", 1), well("liqo-ipam", 0), agents},
			"Deployment liqo/liqo-ipam: it is scaled to zero: nothing else does its work; undo it with kubectl -n liqo scale deployment liqo-ipam --replicas=1", "carries nothing"},
		{"beside ours", []survey.Component{well("liqo-controller-manager", 1), well("liqo-controller", 2), well("liqo-metric-agent", 0), agents, romeSurvey().Installation.Components[1]},
			"Deployment liqo/liqo-metric-agent: somebody has scaled it to zero; it is Liqo's, and the network works without it", "unhealthy"},
	} {
		s.Installation.Components = tt.components
		text := shown(func(p *console.Page) { p.Box("", infoOf(s).Health.section()) })
		got := strings.Join(strings.Fields(strings.ReplaceAll(text, "│", " ")), " ")
		if !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s:\n%s", tt.name, got)
		}
	}
}

// Where Liqo runs, its version is not taken for one of ours.
func TestInfoOfLiqo(t *testing.T) {
	s := romeSurvey()
	for name, want := range map[string]string{"liqo-controller-manager": "v1.2.0, of Liqo", "liqo-controller": "v1.2.0"} {
		c := &s.Installation.Components[0]
		s.Installation.Version, c.Name, c.LiqosProgram = "v1.2.0", name, strings.TrimPrefix(name, "liqo-")
		if got := infoOf(s).Local.versionText(); got != want {
			t.Errorf("with a Deployment %s: %q, want %q", name, got, want)
		}
	}
}
