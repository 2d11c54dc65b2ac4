package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/objects/manifests"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

// world is what a node with two gateways sees. Tests change one thing of it.
type world struct {
	Objects
	Facts
	fabrics []*networkingv1beta1.InternalFabric
	tunnels []*networkingv1beta1.GeneveTunnel
	node    *networkingv1beta1.InternalNode
	config  *networkingv1beta1.Configuration
	ip      *ipamv1alpha1.IP
	server  *networkingv1beta1.GatewayServer
}

func sourced[T any](objects ...*T) (out []manifests.Sourced[T]) {
	for _, o := range objects {
		out = append(out, manifests.Sourced[T]{Object: o})
	}
	return out
}

func newFabric(name, link, gateway, internal string, cidrs ...networkingv1beta1.CIDR) *networkingv1beta1.InternalFabric {
	f := &networkingv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: "t-" + name, Name: name}}
	f.Spec.GatewayIP, f.Spec.RemoteCIDRs = networkingv1beta1.Address(gateway), cidrs
	f.Spec.Interface.Node.Name, f.Spec.Interface.Gateway.IP = link, networkingv1beta1.Address(internal)
	return f
}

func newTunnel(fabric, node string, id int32) *networkingv1beta1.GeneveTunnel {
	return &networkingv1beta1.GeneveTunnel{
		ObjectMeta: metav1.ObjectMeta{Namespace: "t-" + fabric, Name: fabric + "-" + node, Labels: map[string]string{networkingv1beta1.LabelInternalNodeName: node}},
		Spec: networkingv1beta1.GeneveTunnelSpec{
			ID: id, InternalFabricRef: corev1.ObjectReference{Name: fabric}, InternalNodeRef: corev1.ObjectReference{Name: node},
		},
	}
}

func newNode(name, ip string) *networkingv1beta1.InternalNode {
	n := &networkingv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.Interface.Node.IP = networkingv1beta1.Address(ip)
	return n
}

func cidrs(list ...networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
	return networkingv1beta1.CIDRs{List: list}
}

func newWorld() *world {
	w := &world{
		fabrics: []*networkingv1beta1.InternalFabric{
			newFabric("milan", "liqo.milan", "10.0.0.11", "10.80.0.1", "10.90.0.0/16", "10.91.0.0/16"),
			newFabric("rome", "liqo.rome", "10.0.0.12", "10.80.0.2", "10.92.0.0/16"),
		},
		tunnels: []*networkingv1beta1.GeneveTunnel{newTunnel("milan", "worker", 7), newTunnel("rome", "worker", 8), newTunnel("milan", "other", 9)},
		node:    newNode("worker", "10.80.0.9"),
		config:  &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "t-milan", Name: "milan"}},
		ip:      &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "printer"}},
		server:  &networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "t-milan", Name: "milan"}},
	}
	w.config.Spec.Local = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.60.0.0/16"), External: cidrs("10.70.0.0/16")}}
	w.ip.Spec.IP, w.ip.Status.IP, w.ip.Spec.Masquerade = "192.168.1.5", "10.70.0.5", new(true)
	w.Facts = Facts{
		NodeName: "worker", Kind: hostnet.KindGeneve, Port: 6091,
		Paths: map[netip.Addr]hostnet.Path{
			addr("10.0.0.11"): {Source: addr("172.18.0.2"), Device: "eth0", MTU: 1500},
			addr("10.0.0.12"): {Source: addr("172.18.0.2"), Device: "eth0", MTU: 1500},
		},
		NoPath: map[netip.Addr]string{},
	}
	return w
}

func (w *world) objects(inCluster bool) Objects {
	o := w.Objects
	o.InCluster = inCluster
	o.InternalFabrics, o.GeneveTunnels = append(o.InternalFabrics, sourced(w.fabrics...)...), append(o.GeneveTunnels, sourced(w.tunnels...)...)
	if w.node != nil {
		o.InternalNodes = append(o.InternalNodes, sourced(w.node)...)
	}
	if w.config != nil {
		o.Configurations = append(o.Configurations, sourced(w.config)...)
	}
	if w.ip != nil {
		o.IPs = append(o.IPs, sourced(w.ip)...)
	}
	o.GatewayServers = append(o.GatewayServers, sourced(w.server)...)
	return o
}

// inForce says that milan's link is there.
func (w *world) inForce() {
	w.InForce = append(w.InForce, hostnet.Link{
		Name: "liqo.milan", Owner: "InternalFabric t-milan/milan", Gateway: addr("10.0.0.10"), Routes: []netip.Prefix{prefix("10.90.0.0/16")},
	})
}

// lines renders a plan for comparison.
func lines(p Plan, err error) (out []string) {
	for _, l := range p.Desired.Links {
		out = append(out, fmt.Sprintf("link %s %s %d %s:%d mtu %d %s>%s %v", l.Name, l.Kind, l.VNI, l.Gateway, l.Port, l.MTU, l.Address, l.GatewayAddress, l.Routes))
	}
	for _, k := range p.Desired.Keep {
		out = append(out, "keep "+k)
	}
	if tr := p.Desired.Translation; len(tr.Gateways) > 0 {
		out = append(out, fmt.Sprintf("local %v remote %v unknown %v hosts %v gateways %v", tr.Local, tr.Remote, tr.UnknownSource, tr.Hosts, tr.Gateways))
	}
	if p.NodeIP != (networkingv1beta1.NodeIP{}) {
		out = append(out, fmt.Sprintf("nodeIP %s/%s", p.NodeIP.Local, p.NodeIP.Remote))
	}
	for _, list := range []struct {
		name string
		of   manifests.Problems
	}{{"waiting", p.Waiting}, {"ignored", p.Ignored}, {"waiting", p.HostsWaiting}, {"ignored", p.HostsIgnored}, {"unreachable", p.Unreachable}, {"untranslated", p.Untranslated}, {"warning", p.Warnings}} {
		for _, x := range list.of {
			out = append(out, list.name+" "+x.String())
		}
	}
	if err != nil {
		for l := range strings.SplitSeq(err.Error(), "\n") {
			out = append(out, "refused "+l)
		}
	}
	return out
}

const (
	milanLink  = "link liqo.milan geneve 7 10.0.0.11:6091 mtu 1340 10.80.0.9>10.80.0.1 [10.90.0.0/16 10.91.0.0/16]"
	romeLink   = "link liqo.rome geneve 8 10.0.0.12:6091 mtu 1340 10.80.0.9>10.80.0.2 [10.92.0.0/16]"
	translated = "local [10.60.0.0/16] remote [10.90.0.0/16 10.91.0.0/16 10.92.0.0/16] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.11 10.0.0.12]"
	// onlyRome is what is translated when milan's link is neither made nor kept.
	onlyRome = "local [10.60.0.0/16] remote [10.92.0.0/16] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.12]"
	// milanKept is what is translated when milan's link stays as it is.
	milanKept = "local [10.60.0.0/16] remote [10.90.0.0/16 10.92.0.0/16] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.10 10.0.0.12]"
	remoteIP  = "nodeIP /172.18.0.2"
)

// A tunnel that cannot be: its row says what is wrong. In a cluster the other
// tunnel goes on and what is in force stays, from files all is refused.
func TestBuildRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world)
		reason string
	}{
		{"a VNI out of range", func(w *world) { w.tunnels[0].Spec.ID = 1 << 24 },
			"GeneveTunnel t-milan/milan-worker: spec.id: 16777216 is not a VNI: 0 to 16777215"},
		{"a gateway that is no address", func(w *world) { w.fabrics[0].Spec.GatewayIP = "gateway" },
			`InternalFabric t-milan/milan: spec.gatewayIP: "gateway" is not an IP address`},
		{"an internal address that is none", func(w *world) { w.fabrics[0].Spec.Interface.Gateway.IP = "::ffff:10.80.0.1" },
			`InternalFabric t-milan/milan: spec.interface.gateway.ip: "::ffff:10.80.0.1" is an IPv4-mapped IPv6 address: write it as 10.80.0.1`},
		{"the node's own address as the gateway's", func(w *world) { w.fabrics[0].Spec.Interface.Gateway.IP = "10.80.0.9" },
			"InternalFabric t-milan/milan: spec.interface.gateway.ip: 10.80.0.9 is this node's own address (InternalNode worker)"},
		{"a link with another prefix", func(w *world) { w.fabrics[0].Spec.Interface.Node.Name = "eth0" },
			`InternalFabric t-milan/milan: spec.interface.node.name: "eth0" is not a name of a tunnel link: it must begin with "liqo."`},
		{"a link without a name", func(w *world) { w.fabrics[0].Spec.Interface.Node.Name = "liqo." },
			`InternalFabric t-milan/milan: spec.interface.node.name: "liqo." is not a name of a tunnel link: it must begin with "liqo."`},
		{"a link with a long name", func(w *world) { w.fabrics[0].Spec.Interface.Node.Name = "liqo.abcdefghijk" },
			`InternalFabric t-milan/milan: spec.interface.node.name: "liqo.abcdefghijk" is too long: 16 characters, at most 15`},
		{"a link with a slash", func(w *world) { w.fabrics[0].Spec.Interface.Node.Name = "liqo./" },
			`InternalFabric t-milan/milan: spec.interface.node.name: "liqo./" has characters that the name of a link cannot have`},
		{"a prefix that is none", func(w *world) { w.fabrics[0].Spec.RemoteCIDRs[1] = "10.91.0.1/16" },
			`InternalFabric t-milan/milan: spec.remoteCIDRs[1]: "10.91.0.1/16" has bits set behind its length: 10.91.0.0/16 is meant?`},
		{"the default route", func(w *world) { w.fabrics[0].Spec.RemoteCIDRs[1] = "0.0.0.0/0" },
			`InternalFabric t-milan/milan: spec.remoteCIDRs[1]: "0.0.0.0/0" cannot be routed between clusters`},
		{"two families inside", func(w *world) { w.fabrics[0].Spec.Interface.Gateway.IP, w.fabrics[0].Spec.RemoteCIDRs = "fd00::1", nil },
			"InternalFabric t-milan/milan: spec.interface.gateway.ip: fd00::1 and this node's 10.80.0.9 (InternalNode worker) are of two address families: give both addresses of the same"},
		{"an MTU above the path's", func(w *world) {
			w.fabrics[0].Spec.MTU = 1451
		}, "InternalFabric t-milan/milan: spec.mtu: 1451 does not fit: with 50 bytes of encapsulation it is 1501, but the path to the gateway 10.0.0.11 (eth0) carries 1500; " +
			"set spec.mtu of the gateways of both clusters to 1450 or less"},
		{"an MTU above that of an IPv6 path", func(w *world) {
			w.fabrics[0].Spec.MTU, w.fabrics[0].Spec.GatewayIP = 1431, "fd01::11"
			w.Paths[addr("fd01::11")] = hostnet.Path{Source: addr("fd01::2"), Device: "eth0", MTU: 1500}
			w.node.Status.NodeIP.Remote = "172.18.0.2"
		}, "InternalFabric t-milan/milan: spec.mtu: 1431 does not fit: with 70 bytes of encapsulation it is 1501, but the path to the gateway fd01::11 (eth0) carries 1500; " +
			"set spec.mtu of the gateways of both clusters to 1430 or less"},
		{"an MTU below IPv4's", func(w *world) { w.fabrics[0].Spec.MTU = 500 },
			"InternalFabric t-milan/milan: spec.mtu: 500 is out of range: 576 to 65455"},
		{"an MTU below IPv6's", func(w *world) {
			w.fabrics[0].Spec.MTU, w.fabrics[0].Spec.RemoteCIDRs = 1200, append(w.fabrics[0].Spec.RemoteCIDRs, "fd90::/64")
		},
			"InternalFabric t-milan/milan: spec.mtu: 1200 is out of range: 1280 to 65455 (fd90::/64 is IPv6)"},
		{"the pods of this cluster", func(w *world) { w.fabrics[0].Spec.RemoteCIDRs[0] = "10.60.128.0/17" },
			"InternalFabric t-milan/milan: spec.remoteCIDRs[0]: 10.60.128.0/17 overlaps the pod CIDR 10.60.0.0/16 of this cluster: packets to it would go into the tunnel; " +
				"remap the remote cluster to other prefixes (Configuration status.remote)"},
		{"the Services of this cluster", func(w *world) {
			w.fabrics[0].Spec.RemoteCIDRs[0] = "10.96.0.0/16"
			n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{ipamv1alpha1.LabelNetworkType: ipamv1alpha1.NetworkTypeServiceCIDR}}}
			n.Spec.CIDR, n.Status.CIDR = "10.95.0.0/12", "10.96.0.0/12"
			w.Networks = sourced(n)
		}, "InternalFabric t-milan/milan: spec.remoteCIDRs[0]: 10.96.0.0/16 overlaps the Service CIDR 10.96.0.0/12 of this cluster: packets to it would go into the tunnel; " +
			"remap the remote cluster to other prefixes (Configuration status.remote)"},
		{"the API server", func(w *world) {
			w.Reserved = []Reserved{{prefix("10.90.0.1/32"), "the API server"}}
		}, "InternalFabric t-milan/milan: spec.remoteCIDRs[0]: 10.90.0.0/16 overlaps the API server (10.90.0.1/32): packets to it would go into the tunnel; " +
			"remap the remote cluster to other prefixes (Configuration status.remote)"},
		{"a network of this node", func(w *world) {
			w.Connected = []hostnet.Network{{Prefix: prefix("10.90.5.0/24"), Device: "eth1"}}
		}, "InternalFabric t-milan/milan: spec.remoteCIDRs[0]: 10.90.0.0/16 overlaps the network 10.90.5.0/24 that this node is in (eth1): packets to it would go into the tunnel; " +
			"remap the remote cluster to other prefixes (Configuration status.remote)"},
		{"an address of this node", func(w *world) {
			w.Connected = []hostnet.Network{{Prefix: prefix("10.90.5.1/32"), Device: "lo"}}
		}, "InternalFabric t-milan/milan: spec.remoteCIDRs[0]: 10.90.0.0/16 overlaps the address 10.90.5.1 of this node (lo): packets to it would go into the tunnel; " +
			"remap the remote cluster to other prefixes (Configuration status.remote)"},
		{"this node as its gateway", func(w *world) {
			w.Paths[addr("10.0.0.11")] = hostnet.Path{Source: addr("10.0.0.11"), Device: "lo", MTU: 65536, Local: true}
		}, "InternalFabric t-milan/milan: spec.gatewayIP: 10.0.0.11 is an address of this node itself: a tunnel leads to a gateway that has an address of its own, as its pod has"},
		{"loopback as its gateway", func(w *world) { w.fabrics[0].Spec.GatewayIP = "127.0.0.1" },
			"InternalFabric t-milan/milan: spec.gatewayIP: 127.0.0.1 is an address of this node itself: a tunnel leads to a gateway that has an address of its own, as its pod has"},
		{"a gateway", func(w *world) { w.fabrics[0].Spec.RemoteCIDRs[0] = "10.0.0.0/16" },
			"InternalFabric t-milan/milan: spec.remoteCIDRs[0]: 10.0.0.0/16 overlaps 10.0.0.11, on which tunnels depend: packets to it would go into the tunnel; " +
				"remap the remote cluster to other prefixes (Configuration status.remote)"},
		{"this node", func(w *world) { w.fabrics[0].Spec.RemoteCIDRs[0] = "172.18.0.0/16" },
			"InternalFabric t-milan/milan: spec.remoteCIDRs[0]: 172.18.0.0/16 overlaps 172.18.0.2, on which tunnels depend: packets to it would go into the tunnel; " +
				"remap the remote cluster to other prefixes (Configuration status.remote)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.change(w)
			want := []string{romeLink, onlyRome, remoteIP, "ignored " + tt.reason}
			if diff := cmp.Diff(want, lines(Build(w.objects(true), w.Facts))); diff != "" {
				t.Errorf("in a cluster (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"refused " + tt.reason}, lines(Build(w.objects(false), w.Facts))); diff != "" {
				t.Errorf("from files (-want +got):\n%s", diff)
			}
			w.inForce()
			want = []string{romeLink, "keep liqo.milan", milanKept, remoteIP, "ignored " + tt.reason}
			p, err := Build(w.objects(true), w.Facts)
			if diff := cmp.Diff(want, lines(p, err)); diff != "" {
				t.Errorf("with a link in force (-want +got):\n%s", diff)
			}
			if got := p.Concerns["InternalFabric t-milan/milan"]; got != tt.reason {
				t.Errorf("said of the link: %s", got)
			}
		})
	}
}

func TestBuild(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world)
		files  bool
		want   []string
	}{
		{"two gateways", func(*world) {}, false, []string{milanLink, romeLink, translated, remoteIP}},
		{"the same from files", func(*world) {}, true, []string{milanLink, romeLink, translated, remoteIP}},
		{"nothing", func(w *world) { w.tunnels = nil }, false, nil},
		{"a fabric without prefixes", func(w *world) { w.fabrics[0].Spec.RemoteCIDRs = nil }, false, []string{
			"link liqo.milan geneve 7 10.0.0.11:6091 mtu 1340 10.80.0.9>10.80.0.1 []", romeLink, strings.Replace(onlyRome, "[10.0.0.12]", "[10.0.0.11 10.0.0.12]", 1), remoteIP,
			"warning InternalFabric t-milan/milan: spec.remoteCIDRs: is empty: the link is there, and no packet is routed into it; " +
				"the controller lists them when the Configuration of the remote cluster has its status.remote (kubectl get configurations -A)"}},
		{"the same from files", func(w *world) { w.fabrics[0].Spec.RemoteCIDRs, w.tunnels = nil, w.tunnels[:1] }, true, []string{
			"link liqo.milan geneve 7 10.0.0.11:6091 mtu 1340 10.80.0.9>10.80.0.1 []",
			"local [10.60.0.0/16] remote [] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.11]", remoteIP,
			"warning InternalFabric t-milan/milan: spec.remoteCIDRs: is empty: the link is there, and no packet is routed into it; " +
				"list the pod and external CIDRs of the remote cluster as they are seen from here, as in the gateway's Configuration (status.remote, else spec.remote)"}},
		{"files without namespaces", func(w *world) {
			w.fabrics[0].Namespace, w.tunnels[1].Namespace = "", ""
		}, true, []string{milanLink, romeLink, translated, remoteIP}},
		{"a tunnel of another namespace", func(w *world) { w.tunnels[0].Namespace = "t-other" }, false, []string{romeLink, onlyRome, remoteIP,
			`waiting GeneveTunnel t-other/milan-worker: spec.internalFabricRef.name: there is no InternalFabric "milan": the tunnel waits for it`}},
		{"a fabric that is gone", func(w *world) {
			w.fabrics = w.fabrics[1:]
			w.inForce()
		}, true, []string{romeLink, onlyRome, remoteIP,
			`waiting GeneveTunnel t-milan/milan-worker: spec.internalFabricRef.name: there is no InternalFabric "milan": the tunnel waits for it`}},
		{"a fabric without a gateway", func(w *world) {
			w.fabrics[0].Spec.GatewayIP = ""
			w.inForce()
		}, false, []string{romeLink, "keep liqo.milan", milanKept, remoteIP,
			"waiting InternalFabric t-milan/milan: spec.gatewayIP: is not given yet: the tunnel waits for it"}},
		{"the same from files", func(w *world) { w.fabrics[0].Spec.GatewayIP = "" }, true, []string{
			"refused InternalFabric t-milan/milan: spec.gatewayIP: is not given yet: the tunnel waits for it"}},
		{"an unknown node", func(w *world) {
			w.NodeName = "worker2"
			w.tunnels[0].Spec.InternalNodeRef.Name = "worker2"
			w.inForce()
		}, false, []string{
			"keep liqo.milan", "local [10.60.0.0/16] remote [10.90.0.0/16] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.10]",
			"waiting InternalNode worker2: does not exist: the controllers make it for every Node; if they run, compare --node-name with the names of `kubectl get nodes`"}},
		{"an unknown node in files", func(w *world) { w.NodeName = "worker2"; w.InternalNodes = sourced(newNode("a", "10.80.0.7")) }, true, []string{
			"refused InternalNode worker2: does not exist, there are: a, worker; set --node-name to the name of this node's InternalNode, or add one"}},
		{"a node in files without any", func(w *world) { w.node = nil }, true, []string{
			"refused InternalNode worker: does not exist, there is none at all; set --node-name to the name of this node's InternalNode, or add one"}},
		{"a node without an address", func(w *world) { w.node.Spec.Interface.Node.IP = ""; w.inForce() }, false, []string{
			"keep liqo.milan", "local [10.60.0.0/16] remote [10.90.0.0/16] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.10]",
			"waiting InternalNode worker: spec.interface.node.ip: is not given yet: the node's own address in the tunnels"}},
		{"a node whose address is none", func(w *world) { w.node.Spec.Interface.Node.IP = "x" }, true, []string{
			`refused InternalNode worker: spec.interface.node.ip: "x" is not an IP address`}},
		{"an IPv4 prefix in an IPv6 internal network", func(w *world) {
			w.node.Spec.Interface.Node.IP, w.fabrics[0].Spec.Interface.Gateway.IP = "fd80::9", "fd80::1"
			w.tunnels = w.tunnels[:1]
			w.fabrics[0].Spec.RemoteCIDRs = []networkingv1beta1.CIDR{"fd90::/64", "10.90.0.0/16"}
		}, true, []string{
			"refused InternalFabric t-milan/milan: spec.remoteCIDRs[1]: 10.90.0.0/16 is IPv4, but the internal network is IPv6 (fd80::1): IPv4 needs an IPv4 internal address"}},
		{"IPv6 through and through", func(w *world) {
			w.node.Spec.Interface.Node.IP, w.fabrics[0].Spec.Interface.Gateway.IP = "fd80::9", "fd80::1"
			w.tunnels = w.tunnels[:1]
			w.fabrics[0].Spec.GatewayIP, w.fabrics[0].Spec.RemoteCIDRs = "fd01::11", []networkingv1beta1.CIDR{"fd90::/64"}
			w.config.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: cidrs("fd60::/64"), External: cidrs("fd70::/64")}
			w.Paths = map[netip.Addr]hostnet.Path{addr("fd01::11"): {Source: addr("fd01::2"), MTU: 1500}}
			w.ip = nil
		}, true, []string{
			"link liqo.milan geneve 7 fd01::11:6091 mtu 1340 fd80::9>fd80::1 [fd90::/64]",
			"local [fd60::/64] remote [fd90::/64] unknown [fd70::] hosts [] gateways [fd01::11]", "nodeIP /fd01::2"}},
		{"IPv6 behind an IPv4 internal network", func(w *world) { w.fabrics[1].Spec.RemoteCIDRs = append(w.fabrics[1].Spec.RemoteCIDRs, "fd92::/64") }, false, []string{
			milanLink, strings.Replace(romeLink, "]", " fd92::/64]", 1), strings.Replace(translated, "10.92.0.0/16]", "10.92.0.0/16 fd92::/64]", 1), remoteIP,
			"warning the pods of this cluster have no IPv6: of what is sent by it to the remote clusters, packets of pods and of the node keep the source that they have, or get one from the CNI"}},
		{"the same VNI twice", func(w *world) { w.tunnels[0].Spec.ID = 8 }, false, []string{
			strings.Replace(milanLink, "geneve 7", "geneve 8", 1), "local [10.60.0.0/16] remote [10.90.0.0/16 10.91.0.0/16] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.11]",
			remoteIP, "ignored GeneveTunnel t-rome/rome-worker: spec.id: 8 is the VNI of GeneveTunnel t-milan/milan-worker as well: every tunnel of a node needs its own"}},
		{"the same link twice", func(w *world) { w.fabrics[1].Spec.Interface.Node.Name = "liqo.milan" }, true, []string{
			`refused InternalFabric t-rome/rome: spec.interface.node.name: "liqo.milan" is the link of InternalFabric t-milan/milan as well`}},
		{"two tunnels to one gateway", func(w *world) {
			w.tunnels = append(w.tunnels, newTunnel("milan", "worker", 77))
			w.tunnels[3].Name = "more"
		}, false, []string{milanLink, romeLink, translated, remoteIP,
			"ignored GeneveTunnel t-milan/more: spec.internalFabricRef.name: InternalFabric t-milan/milan has a tunnel to this node already: GeneveTunnel t-milan/milan-worker; delete one of them"}},
		{"a link that changes its name to that of one that has to stay", func(w *world) {
			w.fabrics[0].Spec.Interface.Node.Name = "liqo.milano"
			w.fabrics[0].Spec.MTU = 9000
			w.fabrics[1].Spec.Interface.Node.Name = "liqo.milan"
			w.inForce()
		}, false, []string{strings.Replace(romeLink, "liqo.rome", "liqo.milan", 1), onlyRome, remoteIP,
			"ignored InternalFabric t-milan/milan: spec.mtu: 9000 does not fit: with 50 bytes of encapsulation it is 9050, but the path to the gateway 10.0.0.11 (eth0) carries 1500; " +
				"set spec.mtu of the gateways of both clusters to 1450 or less"}},
		{"a prefix of two fabrics", func(w *world) { w.fabrics[1].Spec.RemoteCIDRs = append(w.fabrics[1].Spec.RemoteCIDRs, "10.91.64.0/18") }, false, []string{
			milanLink, romeLink, translated, remoteIP,
			"ignored InternalFabric t-rome/rome: spec.remoteCIDRs[1]: 10.91.64.0/18 is reached through InternalFabric t-milan/milan already: it is left out here; remap one of the two remote clusters"}},
		{"a prefix that a link has that stays", func(w *world) {
			w.fabrics[0].Spec.GatewayIP, w.fabrics[1].Spec.RemoteCIDRs[0] = "", "10.90.0.0/15"
			w.inForce()
		}, false, []string{
			strings.Replace(romeLink, "10.92.0.0/16", "", 1), "keep liqo.milan", strings.Replace(milanKept, " 10.92.0.0/16", "", 1), remoteIP,
			"waiting InternalFabric t-milan/milan: spec.gatewayIP: is not given yet: the tunnel waits for it",
			"ignored InternalFabric t-rome/rome: spec.remoteCIDRs[0]: 10.90.0.0/15 is reached through InternalFabric t-milan/milan already: it is left out here; remap one of the two remote clusters"}},
		{"prefixes twice and within each other", func(w *world) {
			w.fabrics[0].Spec.RemoteCIDRs = []networkingv1beta1.CIDR{"10.91.0.0/16", "10.91.7.0/24", "10.90.0.0/16", "10.91.0.0/16"}
		}, true, []string{milanLink, romeLink, translated, remoteIP}},
		{"an MTU that just fits", func(w *world) { w.fabrics[0].Spec.MTU = 1450 }, true, []string{
			strings.Replace(milanLink, "1340", "1450", 1), romeLink, translated, remoteIP}},
		{"a gateway without a route", func(w *world) {
			delete(w.Paths, addr("10.0.0.12"))
			w.NoPath[addr("10.0.0.12")] = "no route to host"
		}, true, []string{milanLink, romeLink, translated, remoteIP,
			"unreachable InternalFabric t-rome/rome: spec.gatewayIP: the gateway 10.0.0.12 cannot be reached: no route to host"}},
		{"a gateway of a family without routes", func(w *world) {
			w.fabrics[1].Spec.GatewayIP = "fd01::12"
			w.NoPath[addr("fd01::12")] = "no route"
		}, false, []string{
			milanLink, strings.Replace(romeLink, "10.0.0.12", "fd01::12", 1), strings.Replace(translated, "10.0.0.12", "fd01::12", 1), remoteIP,
			"unreachable InternalFabric t-rome/rome: spec.gatewayIP: the gateway fd01::12 cannot be reached: no route; " +
				"this node reaches other gateways by IPv4: give the gateway an IPv4 address, or the node IPv6"}},
		{"a gateway on this node", func(w *world) {
			w.server.Status.InternalEndpoint = &networkingv1beta1.InternalEndpoint{IP: "10.0.0.11", Node: "worker"}
			w.Paths[addr("10.0.0.11")] = hostnet.Path{Source: addr("10.0.0.1"), Device: "cni0", MTU: 1450}
		}, false, []string{milanLink, romeLink, translated, "nodeIP 10.0.0.1/172.18.0.2"}},
		{"a gateway that was on this node", func(w *world) {
			w.server.Status.InternalEndpoint = &networkingv1beta1.InternalEndpoint{IP: "10.0.0.11", Node: "other"}
			w.node.Status.NodeIP.Local = "10.0.0.1"
		}, false, []string{milanLink, romeLink, translated, "nodeIP 10.0.0.1/172.18.0.2"}},
		{"no route at all", func(w *world) {
			w.Paths, w.NoPath = nil, map[netip.Addr]string{addr("10.0.0.11"): "no route"}
			w.tunnels = w.tunnels[:1]
			w.node.Status.NodeIP.Remote = "172.18.0.3"
		}, false, []string{milanLink, "local [10.60.0.0/16] remote [10.90.0.0/16 10.91.0.0/16] unknown [10.70.0.0] hosts [{10.70.0.5 192.168.1.5}] gateways [10.0.0.11]", "nodeIP /172.18.0.3",
			"unreachable InternalFabric t-milan/milan: spec.gatewayIP: the gateway 10.0.0.11 cannot be reached: no route"}},
		{"two gateways that need two sources", func(w *world) {
			w.Paths[addr("10.0.0.12")] = hostnet.Path{Source: addr("172.19.0.2"), Device: "eth1", MTU: 1500}
		}, false, []string{milanLink, romeLink, translated, remoteIP,
			"unreachable InternalFabric t-rome/rome: spec.gatewayIP: this node sends to 10.0.0.12 from 172.19.0.2, but to the gateway of InternalFabric t-milan/milan from 172.18.0.2: " +
				"an InternalNode has one address for remote gateways, and the gateway of this one will not know the node; give both gateways addresses that the node reaches in the same way"}},
		{"several Configurations", func(w *world) {
			other := &networkingv1beta1.Configuration{}
			other.Spec.Local = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.59.0.0/16", "10.60.0.0/16", "10.60.1.0/24"), External: cidrs("10.71.0.0/16")}}
			w.Configurations = sourced(other, &networkingv1beta1.Configuration{})
			w.ip.Status.IP = "10.71.0.5"
		}, false, []string{milanLink, romeLink,
			"local [10.59.0.0/16 10.60.0.0/16] remote [10.90.0.0/16 10.91.0.0/16 10.92.0.0/16] unknown [10.71.0.0] hosts [{10.71.0.5 192.168.1.5}] gateways [10.0.0.11 10.0.0.12]", remoteIP}},
		{"no Configuration", func(w *world) { w.config = nil; w.ip = nil }, false, []string{milanLink, romeLink,
			"local [] remote [10.90.0.0/16 10.91.0.0/16 10.92.0.0/16] unknown [] hosts [] gateways [10.0.0.11 10.0.0.12]", remoteIP,
			"untranslated no IPv4 pod CIDR of this cluster is known: packets of pods and of the node keep the source that they have, or get one from the CNI; it stands in the Networks of this cluster (kubectl get networks.ipam.liqo.io -A), or in spec.local of the Configurations"}},
		{"a part of a network of this node", func(w *world) {
			w.Connected = []hostnet.Network{{Prefix: prefix("10.0.0.0/8"), Device: "eth1"}, {Prefix: prefix("10.1.2.3/32"), Device: "eth1"}}
			w.tunnels = w.tunnels[1:]
		}, false, []string{romeLink, onlyRome, remoteIP,
			"warning InternalFabric t-rome/rome: spec.remoteCIDRs[0]: 10.92.0.0/16 is a part of the network 10.0.0.0/8 that this node is in (eth1): whoever has these addresses there cannot be reached"}},
		{"a Configuration that claims more than the Networks", func(w *world) {
			network := func(kind string, cidr ipamv1alpha1.CIDR) *ipamv1alpha1.Network {
				n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: kind, Labels: map[string]string{ipamv1alpha1.LabelNetworkType: kind}}}
				n.Spec.CIDR = cidr
				return n
			}
			w.Networks = sourced(network("pod-cidr", "10.60.0.0/16"), network("external-cidr", "10.70.0.0/16"))
			w.config.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: cidrs("10.0.0.0/8"), External: cidrs("10.1.0.0/16")}
		}, false, []string{milanLink, romeLink, translated, remoteIP}},
		{"Networks instead", func(w *world) {
			network := func(kind string, cidr ipamv1alpha1.CIDR) *ipamv1alpha1.Network {
				n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: kind, Labels: map[string]string{ipamv1alpha1.LabelNetworkType: kind}}}
				n.Spec.CIDR = cidr
				return n
			}
			w.config.Spec.Local = nil
			w.Networks = sourced(network("pod-cidr", "10.60.0.0/16"), network("external-cidr", "10.70.0.0/16"), network("internal-cidr", "10.80.0.0/16"), network("", "10.1.0.0/16"))
		}, true, []string{milanLink, romeLink, translated, remoteIP}},
		{"no external CIDR", func(w *world) { w.config.Spec.Local.CIDR.External = cidrs(); w.ip = nil }, false, []string{milanLink, romeLink,
			"local [10.60.0.0/16] remote [10.90.0.0/16 10.91.0.0/16 10.92.0.0/16] unknown [] hosts [] gateways [10.0.0.11 10.0.0.12]", remoteIP,
			"untranslated no IPv4 external CIDR of this cluster is known: node processes and hostNetwork pods cannot reach the remote clusters; it stands in the Networks of this cluster (kubectl get networks.ipam.liqo.io -A), or in spec.local of the Configurations"}},
		{"a local CIDR that is none", func(w *world) { w.config.Spec.Local.CIDR.Pod = cidrs("10.60.0.0/16", "ten") }, false, []string{milanLink, romeLink, translated, remoteIP,
			`ignored Configuration t-milan/milan: spec.local.cidr.pod[1]: "ten" is not a prefix such as 10.243.0.0/16 or fd00:10::/64`}},
		{"a Network that is none", func(w *world) {
			n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{ipamv1alpha1.LabelNetworkType: "pod-cidr"}}}
			n.Spec.CIDR = "ten"
			w.Networks = sourced(n)
		}, true, []string{`refused Network n: spec.cidr: "ten" is not a prefix such as 10.243.0.0/16 or fd00:10::/64`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.change(w)
			p, err := Build(w.objects(!tt.files), w.Facts)
			if diff := cmp.Diff(tt.want, lines(p, err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, _ := Build(w.objects(!tt.files), w.Facts)
			if diff := cmp.Diff(p, again, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("the same again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOwnerFitsAnAlias(t *testing.T) {
	long := func(suffix string) manifests.Ref {
		return manifests.Ref{Kind: "InternalFabric", Meta: &metav1.ObjectMeta{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("f", 240) + suffix}}
	}
	a, b := owner(long("a")), owner(long("b"))
	if a == b || len(a) > hostnet.MaxOwner {
		t.Errorf("%s and %s", a, b)
	}
}

func TestUnderlay(t *testing.T) {
	w := newWorld()
	w.fabrics = append(w.fabrics, newFabric("bari", "liqo.bari", "no address", "10.80.0.3"))
	w.tunnels = append(w.tunnels, newTunnel("bari", "worker", 10), newTunnel("nobody", "worker", 11))
	want := []netip.Addr{addr("10.0.0.11"), addr("10.0.0.12")}
	if got := Underlay(w.objects(true), "worker"); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// claimSlowly is what claims does, the obvious way.
func claimSlowly(have []netip.Prefix, p netip.Prefix) bool {
	return !slices.ContainsFunc(have, p.Overlaps)
}

func FuzzClaims(f *testing.F) {
	f.Add([]byte{10, 0, 16, 10, 0, 8, 10, 1, 24, 9, 255, 8, 10, 0, 12})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c claims
		var have []netip.Prefix
		for ; len(b) >= 3; b = b[3:] {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{b[0], b[1]}), int(b[2]%25)).Masked()
			_, got := c.claim(p, "x")
			if want := claimSlowly(have, p); got != want {
				t.Fatalf("%v after %v: %v, want %v", p, have, got, want)
			}
			if got {
				have = append(have, p)
			}
		}
		for _, p := range prefixSet(have) { // disjoint already: nothing is lost
			have = slices.DeleteFunc(have, func(q netip.Prefix) bool { return p == q })
		}
		if len(have) > 0 {
			t.Fatalf("lost %v", have)
		}
	})
}
