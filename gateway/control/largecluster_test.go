package control

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/objects/manifests"
	"github.com/sluice-net/sluice/tunnel"
)

// largeCluster are the objects of a gateway in a cluster with that many nodes and
// pods on each.
func largeCluster(nodes, pods int) Objects {
	private, peer := tunnel.GeneratePrivateKey(), tunnel.GeneratePrivateKey().Public()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "tenant", Generation: 1, Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: "milan"}}
	}
	cidrs := func(pod, external networkingv1beta1.CIDR) networkingv1beta1.ClusterConfig {
		return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{
			Pod:      networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{pod}},
			External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{external}},
		}}
	}
	o := Objects{Cluster: &Cluster{ClusterID: "milan"}}
	server := &networkingv1beta1.GatewayServer{ObjectMeta: meta("gw")}
	server.Spec.Endpoint.Port = 51840
	o.GatewayServers = []manifests.Sourced[networkingv1beta1.GatewayServer]{{Object: server}}
	o.Secrets = []manifests.Sourced[corev1.Secret]{{Object: &corev1.Secret{Data: map[string][]byte{networkingv1beta1.PrivateKeyEntry: private[:]}}}}
	o.PublicKeys = []manifests.Sourced[networkingv1beta1.PublicKey]{publicKey("milan", peer)}
	c := &networkingv1beta1.Configuration{ObjectMeta: meta("milan")}
	c.Spec.Local = new(cidrs("10.128.0.0/9", "10.70.0.0/16"))
	c.Spec.Remote = cidrs("10.128.0.0/9", "10.70.0.0/16")
	c.Status.Remote = new(cidrs("11.0.0.0/9", "10.71.0.0/16"))
	c.Status.Conditions = []metav1.Condition{{Type: string(networkingv1beta1.ConditionNetworkCIDRsConfigured), Status: metav1.ConditionTrue, ObservedGeneration: 1}}
	o.Configurations = []manifests.Sourced[networkingv1beta1.Configuration]{{Object: c}}
	fabric := &networkingv1beta1.InternalFabric{ObjectMeta: meta("milan")}
	fabric.Spec.Interface.Gateway.IP = "10.80.0.1"
	o.InternalFabrics = []manifests.Sourced[networkingv1beta1.InternalFabric]{{Object: fabric}}

	internal, underlay, pod := netip.MustParseAddr("10.80.0.2"), netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("10.128.0.1")
	for i := range nodes {
		name := fmt.Sprintf("worker-%d", i)
		n := &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Spec.Interface.Node.IP, n.Spec.Interface.Gateway.Name = networkingv1beta1.Address(internal.String()), "liqo."+name
		n.Status.NodeIP.Remote = networkingv1beta1.Address(underlay.String())
		o.InternalNodes = append(o.InternalNodes, manifests.Sourced[networkingv1beta1.InternalNode]{Object: n})

		t := &networkingv1beta1.GeneveTunnel{ObjectMeta: meta("milan-" + name)}
		t.Spec.ID, t.Spec.InternalFabricRef.Name, t.Spec.InternalNodeRef.Name = int32(i), "milan", name
		o.GeneveTunnels = append(o.GeneveTunnels, manifests.Sourced[networkingv1beta1.GeneveTunnel]{Object: t})

		r := &networkingv1beta1.RouteConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name + "-gw-node", Namespace: "liqo"}}
		rule := networkingv1beta1.RoutingRule{IIF: "liqo-tunnel"}
		for range pods {
			rule.Routes = append(rule.Routes, networkingv1beta1.Route{
				Dst: networkingv1beta1.CIDR(pod.String() + "/32"), Gw: networkingv1beta1.Address(internal.String()),
			})
			pod = pod.Next()
		}
		r.Spec.Table.Rules = []networkingv1beta1.RoutingRule{rule}
		o.RouteConfigurations = append(o.RouteConfigurations, manifests.Sourced[networkingv1beta1.RouteConfiguration]{Object: r})
		internal, underlay = internal.Next(), underlay.Next()
	}
	return o
}
