package doctor

import (
	"encoding/base64"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/deploy"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// world is two clusters, rome and milan, that are well: rome is the local one and
// has the client. A test breaks something of it.
type world struct {
	*facts
	rome, milan *cluster
	client      *end // in rome
	server      *end // in milan
}

func newWorld(t testing.TB) *world {
	t.Helper()
	crds, err := wantedByUs()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{rome: newCluster("local", "rome", crds), milan: newCluster("remote", "milan", crds)}
	w.client = newTestEnd(w.rome, "milan", networkingv1beta1.ConnectionClient)
	w.server = newTestEnd(w.milan, "rome", networkingv1beta1.ConnectionServer)
	w.client.peer.PublicKeys[0].Spec.PublicKey = key(w.server)
	w.server.peer.PublicKeys[0].Spec.PublicKey = key(w.client)
	for _, e := range []*end{w.client, w.server} {
		for _, r := range []*survey.GatewayReport{e.before, e.after} {
			r.DataPlane.Tunnel.Self = base64.StdEncoding.EncodeToString(key(e))
			r.DataPlane.Tunnel.Peer = base64.StdEncoding.EncodeToString(e.peer.PublicKeys[0].Spec.PublicKey)
		}
	}
	w.facts = &facts{
		version: "v1.4.0", now: now, clusters: []*cluster{w.rome, w.milan},
		peerings: []*peering{{id: "milan", local: w.client, remote: w.server}},
	}
	return w
}

// wantedByUs are the CRDs of this version, which nobody changes in place.
var wantedByUs = sync.OnceValues(func() ([]apiextensionsv1.CustomResourceDefinition, error) { return wantedCRDs(deploy.CRDs()) })

// alone leaves only one side, as one who has no kubeconfig of the other.
func (w *world) alone(e *end) {
	e.cluster.name = ""
	w.clusters = []*cluster{e.cluster}
	w.peerings = []*peering{{id: e.id, local: e}}
}

// key is the public key of an end.
func key(e *end) []byte {
	k := make([]byte, 32)
	copy(k, "key of "+e.cluster.Installation.ClusterID)
	return k
}

func newCluster(name, id string, crds []apiextensionsv1.CustomResourceDefinition) *cluster {
	second := 300 * time.Millisecond
	c := &cluster{
		name: name, origin: "kubeconfig " + id + ".yaml", host: "https://" + id + ".example.org:6443", uid: types.UID("uid of " + id), clockAhead: &second,
		Cluster: &survey.Cluster{
			Name: name, ReadAt: now,
			Installation: survey.Installation{
				ClusterID: id, Version: "v1.4.0", Namespace: "liqo", KubernetesVersion: "v1.34.1",
				Components: []survey.Component{
					{Kind: "Deployment", Namespace: "liqo", Name: "liqo-controller", Version: "v1.4.0", Desired: 1, Ready: 1, Updated: 1},
					{Kind: "DaemonSet", Namespace: "liqo-fabric", Name: "liqo-fabric", Version: "v1.4.0", Desired: 2, Ready: 2, Updated: 2},
				},
			},
			Networks: survey.Networks{
				Pod: network("pod-cidr", "10.243.0.0/16"), Service: network("service-cidr", "10.96.0.0/12"),
				External: network("external-cidr", "10.70.0.0/16"), Internal: network("internal-cidr", "10.80.0.0/16"),
			},
		},
		crds: read[apiextensionsv1.CustomResourceDefinition]{items: crds}, wantedCRDs: crds,
		apiService: &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}},
	}
	for _, ns := range []struct{ name, level string }{{"liqo", "restricted"}, {"liqo-fabric", "privileged"}} {
		c.namespaces.items = append(c.namespaces.items, namespace(ns.name, ns.level))
	}
	for i, n := range []string{"worker-1", "worker-2"} {
		address := netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}).String()
		c.nodes.items = append(c.nodes.items, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 243, byte(i), 0}), 24).String()}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: n}}},
		})
		c.Nodes = append(c.Nodes, survey.Node{Name: n, Internal: &networkingv1beta1.InternalNode{
			ObjectMeta: metav1.ObjectMeta{Name: n},
			Status: networkingv1beta1.InternalNodeStatus{
				NodeIP:     networkingv1beta1.NodeIP{Local: networkingv1beta1.Address(address), Remote: networkingv1beta1.Address(address)},
				Conditions: []metav1.Condition{isTrue(networkingv1beta1.ConditionTunnelsReady), isTrue(networkingv1beta1.ConditionAddressTranslationReady)},
			},
		}})
		agent := pod("liqo-fabric", "liqo-fabric-"+n, n)
		agent.Spec.HostNetwork = true
		c.agents.items = append(c.agents.items, agent)
	}
	controller := pod("liqo", "liqo-controller-1", "worker-1")
	controller.Status.PodIPs = []corev1.PodIP{{IP: "10.243.0.9"}}
	c.pods.items = []corev1.Pod{controller}
	return c
}

func network(name, cidr string) []survey.Network {
	return []survey.Network{{Name: name, Desired: cidr, CIDR: cidr}}
}

func namespace(name, level string) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{networkingv1beta1.LabelPodSecurity: level}}}
}

func pod(namespace, name, node string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "gateway", Image: "sluice/gateway:v1.4.0", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		},
	}
}

func isTrue(t networkingv1beta1.ConditionType) metav1.Condition {
	return metav1.Condition{Type: string(t), Status: metav1.ConditionTrue, Reason: "Yes"}
}

// isFalse replaces a condition.
func isFalse(conditions *[]metav1.Condition, t networkingv1beta1.ConditionType, reason networkingv1beta1.ConditionReason, message string) {
	for i := range *conditions {
		if c := &(*conditions)[i]; c.Type == string(t) {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(reason), message
			return
		}
	}
	*conditions = append(*conditions, metav1.Condition{Type: string(t), Status: metav1.ConditionFalse, Reason: string(reason), Message: message})
}

func cidrs(texts ...networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
	return networkingv1beta1.CIDRs{List: texts}
}

func newTestEnd(c *cluster, id string, role networkingv1beta1.ConnectionType) *end {
	ns := "liqo-tenant-" + id
	tenant := namespace(ns, "restricted")
	tenant.Labels[networkingv1beta1.LabelTenantNamespace] = networkingv1beta1.LabelTrue
	c.namespaces.items = append(c.namespaces.items, tenant)
	g := &survey.Gateway{
		Kind: "Gateway" + string(role), Namespace: ns, Name: id, Role: role, MTU: 1340,
		Template:    corev1.ObjectReference{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGateway" + string(role) + "Template", Namespace: "liqo", Name: "wireguard"},
		ServiceType: corev1.ServiceTypeNodePort,
		Endpoint:    &networkingv1beta1.Endpoint{Addresses: []string{"198.51.100.7"}, Port: 32009},
		Conditions: []metav1.Condition{
			isTrue(networkingv1beta1.ConditionTemplateRendered), isTrue(networkingv1beta1.ConditionKeysReady), isTrue(networkingv1beta1.ConditionDeployed),
			isTrue(networkingv1beta1.ConditionEndpointReady), isTrue(networkingv1beta1.ConditionInternalNetworkReady),
		},
	}
	e := &end{cluster: c, id: id}
	g.Keys = &survey.Keys{Secret: "gw-" + id, Public: base64.StdEncoding.EncodeToString(key(e))}
	c.Peers = append(c.Peers, survey.Peer{
		ID: id, Namespace: ns, Gateway: g,
		Configuration: &networkingv1beta1.Configuration{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: id},
			Spec: networkingv1beta1.ConfigurationSpec{
				Local:  &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.243.0.0/16"), External: cidrs("10.70.0.0/16")}},
				Remote: networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.243.0.0/16"), External: cidrs("10.70.0.0/16")}},
			},
			Status: networkingv1beta1.ConfigurationStatus{
				Remote:     &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.71.0.0/16"), External: cidrs("10.72.0.0/16")}},
				Conditions: []metav1.Condition{isTrue(networkingv1beta1.ConditionNetworkCIDRsConfigured)},
			},
		},
		PublicKeys: []networkingv1beta1.PublicKey{{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: id}}},
		Connection: &networkingv1beta1.Connection{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gw-" + id},
			Status:     networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected, Conditions: []metav1.Condition{isTrue(networkingv1beta1.ConditionConfigurationApplied)}},
		},
		Fabric:  &networkingv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: id}, Spec: networkingv1beta1.InternalFabricSpec{MTU: 1340}},
		Tunnels: []string{"worker-1", "worker-2"},
	})
	e.peer = &c.Peers[0]
	gw := pod(ns, "gw-"+id+"-1", "worker-1")
	gw.Labels = map[string]string{networkingv1beta1.LabelComponent: networkingv1beta1.ComponentGateway, networkingv1beta1.LabelActive: networkingv1beta1.LabelTrue}
	e.pods.items = []corev1.Pod{gw}
	if role == networkingv1beta1.ConnectionServer {
		e.service = &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gw-" + id},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: gw.Labels,
				Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 51840, TargetPort: intstr.FromInt32(51840), NodePort: 32009}}},
		}
	}
	ahead := 100 * time.Millisecond
	e.clockAhead = &ahead
	e.before, e.after = newReport(now), newReport(now.Add(2*time.Second))
	t := &e.after.DataPlane.Tunnel
	t.RxBytes, t.TxBytes = t.RxBytes+3000, t.TxBytes+3000
	e.probe = &probe{MTU: 1340, Largest: 1440, Limit: 1440, Pings: []probePings{
		{Size: 100, Sent: 10, Received: 10, Avg: 12300 * time.Microsecond}, {Size: 1340, Sent: 10, Received: 10, Avg: 13 * time.Millisecond},
	}}
	e.probe.Path.MTU, e.probe.Path.Inner = 1500, 1440
	return e
}

// newReport is what a gateway says of which all is well.
func newReport(at time.Time) *survey.GatewayReport {
	r := &survey.GatewayReport{Version: "v1.4.0", Time: at, Started: now.Add(-time.Hour), Cluster: &survey.GatewayCluster{}}
	r.Cluster.API.Connected = true
	r.Sync.Peer.Value, r.Sync.Peer.MTU = networkingv1beta1.Connected, 1340
	d := &r.DataPlane
	d.Configured, d.MTU = true, 1340
	d.Tunnel = survey.TunnelStats{
		Endpoint: netip.MustParseAddrPort("198.51.100.7:32009"), ListenPort: 51840, LastHandshake: now.Add(-40 * time.Second),
		RxBytes: 100000, TxBytes: 100000, RxInitiations: 1, TxInitiations: 1, RxResponses: 1, TxResponses: 1,
	}
	for i, n := range []string{"worker-1", "worker-2"} {
		d.Nodes = append(d.Nodes, survey.NodeTunnel{
			Name: n, Encapsulation: "geneve", LastSeen: now.Add(-10 * time.Second), Underlay: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}),
		})
	}
	d.Egress.Verdicts, d.Ingress.Verdicts = map[string]uint64{"Forwarded": 1000}, map[string]uint64{"Forwarded": 1000}
	d.Sockets = map[string]survey.Socket{"geneve": {LocalAddr: netip.MustParseAddrPort("0.0.0.0:6091")}, "wireguard": {}}
	return r
}
