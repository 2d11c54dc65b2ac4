package survey

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/access"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// build orders what was read.
func (f *facts) build(c *access.Cluster, o Options) *Cluster {
	s := &Cluster{
		Name: c.Name, ReadAt: f.now, Networks: f.installed(), Exposed: f.exposed(), Offloaded: offloadedNamespaces(f.offloaded),
		Installation: Installation{
			ClusterID: f.id, Namespace: c.LiqoNamespace, KubernetesVersion: f.kubernetes,
			Version: cmp.Or(f.install.Version, controllerVersion(f.components)), Labels: f.install.ClusterLabels, Components: f.components,
			ControllerReplicas: f.install.ControllerReplicas, Interrupted: f.interrupted,
		},
	}
	if c.Config != nil {
		s.Installation.APIServer = c.Config.Host
	}
	if s.Peers = f.peers(); len(o.Peers) > 0 {
		s.Peers = slices.DeleteFunc(s.Peers, func(p Peer) bool { return !slices.Contains(o.Peers, p.ID) })
	}
	s.Peers = slices.DeleteFunc(s.Peers, func(p Peer) bool { // a ForeignCluster has no namespace
		return o.Namespace != "" && p.Foreign != nil && p.Empty() && p.Namespace != o.Namespace
	})
	if o.Nodes != nil {
		s.Nodes = o.Nodes.Nodes
		for i := range s.Peers {
			if old := o.Nodes.Peer(s.Peers[i].ID); old != nil {
				s.Peers[i].Tunnels = old.Tunnels
			}
		}
		return s
	}
	s.Nodes = f.internal()
	return s
}

func controllerVersion(cs []Component) string {
	for _, c := range cs {
		if c.Kind == "Deployment" && strings.Contains(c.Name, "controller") {
			return c.Version
		}
	}
	return ""
}

// installed are the Networks of the installation, by the label of their type or,
// where that is lost, by their name.
func (f *facts) installed() (n Networks) {
	of := map[string]*[]Network{
		ipamv1alpha1.NetworkTypePodCIDR: &n.Pod, ipamv1alpha1.NetworkTypeServiceCIDR: &n.Service, ipamv1alpha1.NetworkTypeExternalCIDR: &n.External,
		ipamv1alpha1.NetworkTypeInternalCIDR: &n.Internal, ipamv1alpha1.NetworkTypeReserved: &n.Reserved,
	}
	for i := range f.networks {
		o := &f.networks[i]
		list, ok := of[cmp.Or(o.Labels[ipamv1alpha1.LabelNetworkType], o.Name)]
		if !ok {
			list = &n.Other
		}
		w := Network{Name: o.Name, Desired: string(o.Spec.CIDR), CIDR: string(o.Status.CIDR)}
		if c := meta.FindStatusCondition(o.Status.Conditions, string(ipamv1alpha1.ConditionAllocated)); c != nil && c.Status != metav1.ConditionTrue {
			w.Problem = c.Message
		}
		*list = append(*list, w)
	}
	of[""] = &n.Other
	for _, list := range of {
		slices.SortFunc(*list, func(a, b Network) int { return strings.Compare(a.Name, b.Name) })
	}
	return n
}

// exposed are the IPs that peers reach: those of the external CIDR. An IP that names a
// Network of its own has an address for which peers have no route.
func (f *facts) exposed() []Exposed {
	var all []Exposed
	for i := range f.ips {
		o := &f.ips[i]
		if o.Spec.NetworkRef != nil {
			continue
		}
		e := Exposed{Namespace: o.Namespace, Name: o.Name, IP: string(o.Spec.IP), Remapped: string(o.Status.IP)}
		if c := meta.FindStatusCondition(o.Status.Conditions, string(ipamv1alpha1.ConditionAllocated)); c != nil && c.Status != metav1.ConditionTrue {
			e.Problem = c.Message
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Exposed) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all
}

// internal joins Nodes and InternalNodes. Nodes that stand for a remote cluster
// have no part in it.
func (f *facts) internal() []Node {
	byName := make(map[string]*Node, len(f.nodes))
	for i := range f.nodes {
		if o := &f.nodes[i]; o.Labels[networkingv1beta1.LabelNodeType] != networkingv1beta1.NodeTypeVirtual {
			byName[o.Name] = &Node{Name: o.Name, Created: o.CreationTimestamp.Time}
		}
	}
	liqos, ours := controllers(f.components)
	for i := range f.internalNodes {
		o := &f.internalNodes[i]
		if liqos && !ours { // agents of ours have said it before Liqo's took over again
			o = o.DeepCopy()
			o.Status.Conditions = nil
		}
		n := byName[o.Name]
		if n == nil {
			n = &Node{Name: o.Name}
			byName[o.Name] = n
		}
		n.Internal = o
	}
	out := make([]Node, 0, len(byName))
	for _, n := range byName {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// group is what there is for one remote cluster, or, without an ID, in one
// namespace.
type group struct{ id, namespace string }

func groupOf(m metav1.ObjectMeta) group {
	if id := m.Labels[networkingv1beta1.LabelRemoteClusterID]; id != "" {
		return group{id: id}
	}
	return group{namespace: m.Namespace}
}

// older orders objects as the controllers do when several want to be the one:
// the oldest is it.
func older(a, b time.Time, x, y string) int { return cmp.Or(a.Compare(b), strings.Compare(x, y)) }

// peers makes a Peer of the objects of each remote cluster.
func (f *facts) peers() []Peer {
	byGroup := make(map[group]*Peer)
	at := func(m metav1.ObjectMeta) *Peer {
		g := groupOf(m)
		if byGroup[g] == nil {
			byGroup[g] = &Peer{ID: g.id}
		}
		return byGroup[g]
	}
	for _, g := range f.gateways() {
		at(g.meta).takeGateway(g.Gateway)
	}
	slices.SortFunc(f.configurations, func(a, b networkingv1beta1.Configuration) int {
		return older(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a.Name, b.Name)
	})
	for i := range f.configurations {
		at(f.configurations[i].ObjectMeta).takeConfiguration(&f.configurations[i])
	}
	for i := range f.publicKeys {
		if k := &f.publicKeys[i]; k.Labels[networkingv1beta1.LabelRemoteClusterID] != "" {
			at(k.ObjectMeta).takePublicKey(k)
		}
	}
	for i := range f.tenants {
		t := &f.tenants[i]
		if t.Labels[networkingv1beta1.LabelRemoteClusterID] == "" {
			continue
		}
		if p := at(t.ObjectMeta); p.Namespace == "" {
			p.Namespace = t.Name
		}
	}
	for i := range f.foreign {
		c := &f.foreign[i]
		p := at(metav1.ObjectMeta{Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: string(c.Spec.ClusterID)}})
		if p.Foreign == nil || c.Name == p.ID { // one of another name is no controller's
			p.Foreign = c
		}
		p.Namespace = cmp.Or(p.Namespace, c.Status.TenantNamespace.Local)
	}
	for _, s := range f.slices {
		if s.Labels[networkingv1beta1.LabelRemoteClusterID] != "" {
			p := at(s.ObjectMeta)
			p.Slices = append(p.Slices, s)
		}
	}
	for _, v := range f.virtual {
		p := at(metav1.ObjectMeta{Namespace: v.Namespace, Labels: map[string]string{networkingv1beta1.LabelRemoteClusterID: string(v.Spec.ClusterID)}})
		p.VirtualNodes = append(p.VirtualNodes, v)
	}
	out := make([]Peer, 0, len(byGroup))
	for _, p := range byGroup {
		f.complete(p)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Peer) int {
		return cmp.Or(trueFirst(a.ID != "", b.ID != ""), strings.Compare(a.ID, b.ID), strings.Compare(a.Namespace, b.Namespace))
	})
	return out
}

// takeGateway is called with the oldest first.
func (p *Peer) takeGateway(g *Gateway) {
	if p.Gateway != nil {
		p.Surplus = append(p.Surplus, g.String())
		return
	}
	p.Gateway, p.Namespace = g, g.Namespace
}

// takeConfiguration is called after the gateways, with the oldest first.
func (p *Peer) takeConfiguration(c *networkingv1beta1.Configuration) {
	if p.Configuration != nil || p.Namespace != "" && c.Namespace != p.Namespace {
		p.Surplus = append(p.Surplus, "Configuration "+c.Namespace+"/"+c.Name)
		return
	}
	p.Configuration, p.Namespace = c, c.Namespace
}

// takePublicKey is called after gateways and Configurations.
func (p *Peer) takePublicKey(k *networkingv1beta1.PublicKey) {
	p.Namespace = cmp.Or(p.Namespace, k.Namespace)
	if k.Namespace != p.Namespace {
		p.Surplus = append(p.Surplus, "PublicKey "+k.Namespace+"/"+k.Name)
		return
	}
	p.PublicKeys = append(p.PublicKeys, *k)
}

// complete adds what belongs to the gateway of a peer.
func (f *facts) complete(p *Peer) {
	for i := range f.firewalls {
		if o := &f.firewalls[i]; appliesTo(o, p.ID) && (o.Namespace == p.Namespace || o.Namespace == f.liqoNamespace) {
			p.Firewall = append(p.Firewall, *o)
		}
	}
	for i := range f.fabrics {
		if o := &f.fabrics[i]; o.Namespace == p.Namespace && o.Name == p.ID {
			p.Fabric = o
		}
	}
	for i := range f.tunnels {
		if o := &f.tunnels[i]; p.Fabric != nil && o.Namespace == p.Namespace && o.Labels[networkingv1beta1.LabelInternalFabricName] == p.Fabric.Name {
			p.Tunnels = append(p.Tunnels, o.Labels[networkingv1beta1.LabelInternalNodeName])
		}
	}
	slices.Sort(p.Tunnels)
	g := p.Gateway
	if g == nil {
		return
	}
	for i := range f.connections {
		// The kind that it refers to is that of the template's object.
		if o := &f.connections[i]; o.Namespace == g.Namespace && o.Spec.Type == g.Role && o.Spec.GatewayRef.Name == g.Name {
			p.Connection = o
		}
	}
	for i := range f.pods {
		l := f.pods[i].Labels
		if l[networkingv1beta1.LabelGatewayName] == g.Name && l[networkingv1beta1.LabelGatewayNamespace] == g.Namespace {
			g.Pods = append(g.Pods, podOf(&f.pods[i]))
		}
	}
	slices.SortFunc(g.Pods, comparePods)
}

// appliesTo tells whether the gateway of a peer is one of those that a filter is
// for.
func appliesTo(o *networkingv1beta1.FirewallConfiguration, id string) bool {
	if unique, one := o.Labels[networkingv1beta1.LabelFirewallUnique]; one {
		return unique == id
	}
	return o.Labels[networkingv1beta1.LabelFirewallSubcategory] == networkingv1beta1.SubcategoryAllGateways
}

// comparePods orders pods: the active one first, then those that are ready.
func comparePods(a, b Pod) int {
	return cmp.Or(trueFirst(a.Active, b.Active), trueFirst(a.Ready, b.Ready), b.Created.Compare(a.Created), strings.Compare(a.Name, b.Name))
}

// trueFirst orders what is true before what is not.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
