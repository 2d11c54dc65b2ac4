package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

// testArchitecture looks at what the document about the architecture says of the
// network: on nodes, in pods, in the gateways and on the wire.
func testArchitecture(t *testing.T, w *world) {
	w.connect(t)
	sides := w.pairOfServers(t, 2)
	w.talk(t, sides)
	views := [2]*view{newView(t, w, sides[0], sides[1]), newView(t, w, sides[1], sides[0])}
	for _, step := range []struct {
		name string
		run  func(t *testing.T, v *view)
	}{
		{"one tunnel for each node and gateway", checkTunnels},
		{"addresses of the internal CIDR answer", checkInternalAddresses},
		{"packets between node and gateway", checkUnderlay},
		{"packets between the gateways", checkWire},
		{"addresses in the tunnel", checkTunnelAddresses},
		{"TCP clamping", checkClamp},
		{"the external CIDR", checkExternalCIDR},
	} {
		for _, v := range views {
			t.Run(step.name+" of "+v.from.Name, func(t *testing.T) { step.run(t, v) })
		}
	}
}

// testGeneve has the agents make the tunnels themselves: also where the kernel has no
// Geneve device, and they would choose VXLAN, there then is Geneve on the wire.
func testGeneve(t *testing.T, w *world) {
	w.apart(t)
	w.install(t, "--set", "networking.fabric.config.link=tun")
	t.Cleanup(func() { w.apart(t) })
	w.connect(t)
	sides := w.pairOfServers(t, 2)
	w.talk(t, sides)
	for _, v := range []*view{newView(t, w, sides[0], sides[1]), newView(t, w, sides[1], sides[0])} {
		for _, n := range v.from.Nodes {
			if e := encapsulation(t, n); e != geneveName {
				t.Errorf("the tunnels of %s are %s", n.Name, e)
			}
		}
		checkTunnels(t, v)
		checkInternalAddresses(t, v)
		checkUnderlay(t, v)
		checkClamp(t, v)
	}
}

// view is the network as one cluster sees it.
type view struct {
	*world
	from, to *side
	tenant   string // namespace
	gateway  *kubelab.Pod
	fabric   networkingv1beta1.InternalFabric
	nodes    map[string]networkingv1beta1.InternalNode
	tunnels  []networkingv1beta1.GeneveTunnel
	internal netip.Prefix
}

// newView reads the objects of a cluster that is connected.
func newView(t *testing.T, w *world, from, to *side) *view {
	t.Helper()
	v := &view{world: w, from: from, to: to, tenant: "liqo-tenant-" + to.Name, nodes: make(map[string]networkingv1beta1.InternalNode)}
	lab.Eventually(t, patience, "the objects of the internal network are there", func() error { return v.read(t.Context()) })
	return v
}

func (v *view) read(ctx context.Context) error {
	pods, err := runningPods(ctx, v.from.Cluster, v.tenant, map[string]string{"networking.liqo.io/component": "gateway"}, 1)
	if err != nil {
		return err
	}
	v.gateway = pods[0]
	c := v.from.Client()
	var fabrics networkingv1beta1.InternalFabricList
	var nodes networkingv1beta1.InternalNodeList
	var tunnels networkingv1beta1.GeneveTunnelList
	var network ipamv1alpha1.Network
	if err := errors.Join(
		c.List(ctx, &fabrics, client.InNamespace(v.tenant)), c.List(ctx, &nodes), c.List(ctx, &tunnels),
		c.Get(ctx, client.ObjectKey{Namespace: "liqo", Name: "internal-cidr"}, &network)); err != nil {
		return err
	}
	if len(fabrics.Items) != 1 {
		return fmt.Errorf("there are %d InternalFabrics", len(fabrics.Items))
	}
	v.fabric, v.tunnels = fabrics.Items[0], tunnels.Items
	for _, n := range nodes.Items {
		v.nodes[n.Name] = n
	}
	if v.internal, err = netip.ParsePrefix(string(network.Status.CIDR)); err != nil {
		return fmt.Errorf("internal CIDR: %w", err)
	}
	return nil
}

// gatewayIP is the gateway's address on the internal network, nodeIP a node's.
func (v *view) gatewayIP() netip.Addr {
	return netip.MustParseAddr(string(v.fabric.Spec.Interface.Gateway.IP))
}

func (v *view) nodeIP(n *kubelab.Node) netip.Addr {
	return netip.MustParseAddr(string(v.nodes[n.Name].Spec.Interface.Node.IP))
}

// sources are the addresses from which a node's tunnel packets may come.
func (v *view) sources(n *kubelab.Node) []string {
	ips := v.nodes[n.Name].Status.NodeIP
	return []string{string(ips.Local), string(ips.Remote)}
}

// checkTunnels: as many tunnels as nodes, whatever the number of pods, and on each
// node one interface, with an address of the internal CIDR.
func checkTunnels(t *testing.T, v *view) {
	vnis := make(map[int32]bool)
	for _, tunnel := range v.tunnels {
		vnis[tunnel.Spec.ID] = true
	}
	if len(v.tunnels) != len(v.from.Nodes) || len(vnis) != len(v.tunnels) {
		t.Errorf("%d tunnels with %d IDs, want one for each of %d nodes", len(v.tunnels), len(vnis), len(v.from.Nodes))
	}
	if !v.internal.Contains(v.gatewayIP()) {
		t.Errorf("the gateway's address %s is not in the internal CIDR %s", v.gatewayIP(), v.internal)
	}
	for _, n := range v.from.Nodes {
		links, err := liqoLinks(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(links) != 1 {
			t.Errorf("%s has the interfaces %v, want one", n.Name, links)
			continue
		}
		var addresses []string
		for _, a := range links[0].Addresses {
			addresses = append(addresses, a.Local)
		}
		if ip := v.nodeIP(n); !v.internal.Contains(ip) || !slices.Contains(addresses, ip.String()) {
			t.Errorf("%s has %v, and should have %s of the internal CIDR %s", n.Name, addresses, ip, v.internal)
		}
		if want := v.fabric.Spec.Interface.Node.Name; links[0].Name != want {
			t.Errorf("the interface of %s is %s, want %s", n.Name, links[0].Name, want)
		}
		t.Logf("%s: %s (%s, MTU %d) has %s, the gateway %s", n.Name, links[0].Name, links[0].Info.Kind, links[0].MTU, strings.Join(addresses, " "), v.gatewayIP())
	}
}

// checkInternalAddresses pings the addresses of the tunnels' ends from every node
// and from a pod on every node.
func checkInternalAddresses(t *testing.T, v *view) {
	ping := func(from string, try func(...string) (string, error), to netip.Addr) {
		t.Helper()
		// It fails without any answer. A busy machine is late with some.
		out, err := try("ping", "-c", "3", "-i", "0.2", "-W", "10", to.String())
		if err != nil {
			t.Errorf("ping from %s to %s: %v\n%s", from, to, err, out)
		}
	}
	for _, n := range v.from.Nodes {
		ping("node "+n.Name, n.Host.Try, v.gatewayIP())
		ping("node "+n.Name+" (its own)", n.Host.Try, v.nodeIP(n))
	}
	for _, p := range v.from.pods {
		ping("pod on "+p.Node.Name, p.Try, v.gatewayIP())
		ping("pod on "+p.Node.Name+" (its node)", p.Try, v.nodeIP(p.Node))
	}
}

// checkExternalCIDR: both use the same external CIDR, so each has to call the
// other's by another name.
func checkExternalCIDR(t *testing.T, v *view) {
	var list networkingv1beta1.ConfigurationList
	if err := v.from.Client().List(t.Context(), &list, ofPeer(v.to.Name)); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d Configurations (%v)", len(list.Items), err)
	}
	c := list.Items[0]
	theirs, here := fmt.Sprint(c.Spec.Remote.CIDR.External.List), fmt.Sprint(c.Status.Remote.CIDR.External.List)
	if own := fmt.Sprint(c.Spec.Local.CIDR.External.List); own != theirs || here == theirs || here == "[]" {
		t.Errorf("this cluster's external CIDR is %s, the peer's is %s and called %s here; want the same twice, and another name", own, theirs, here)
	}
	t.Logf("the external CIDR %s of %s is %s in %s", theirs, v.to.Name, here, v.from.Name)
}
