package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/survey"
)

// networks judges the Networks of the installation, and whether the cluster
// really uses them.
func networks(c *cluster) (out []Finding) {
	if why := c.unread("Network"); why != "" {
		return []Finding{skip("%s", why)}
	}
	for _, kind := range []struct {
		name, flag string
		networks   []survey.Network
	}{
		{"pod-cidr", "--pod-cidr", c.Networks.Pod}, {"external-cidr", "", c.Networks.External},
		{"internal-cidr", "", c.Networks.Internal}, {"service-cidr", "--service-cidr", c.Networks.Service},
	} {
		out = append(out, c.grantedNetworks(kind.name, kind.flag, kind.networks)...)
	}
	for _, kind := range [][]survey.Network{c.Networks.Reserved, c.Networks.Other} {
		out = append(out, c.refusedNetworks(kind)...)
	}
	out = append(out, overlapsAmong(c.own())...)
	out = append(out, c.nodesWithin()...)
	out = append(out, c.podsOutside()...)
	out = append(out, c.serviceOutside()...)
	if len(out) == 0 {
		var texts []string
		for _, p := range c.own() {
			texts = append(texts, p.what+" "+p.prefix.String())
		}
		out = append(out, pass("%s%s", strings.Join(texts, ", "), c.withoutNodes()))
	}
	return out
}

// withoutNodes says that the addresses of nodes were not looked at.
func (c *cluster) withoutNodes() string {
	if c.nodes.err != nil {
		return "; not compared with the addresses of the nodes, which cannot be read"
	}
	return ""
}

// grantedNetworks judges the Networks of one kind.
func (c *cluster) grantedNetworks(name, flag string, networks []survey.Network) (out []Finding) {
	if len(networks) == 0 {
		f := fail("there is no Network %s in namespace %s", name, c.Installation.Namespace).
			because("the controller makes it when it starts").fix("see the log of the controller")
		if flag != "" {
			f = f.fix("install again with %s, and see the log of the controller", flag)
		}
		return []Finding{f}
	}
	for _, n := range networks {
		if n.CIDR != "" {
			continue
		}
		f := fail("%s is not granted", n.Desired).on("Network " + c.Installation.Namespace + "/" + n.Name)
		if n.Problem != "" {
			f = f.because("%s", n.Problem)
		}
		out = append(out, f)
	}
	return out
}

// refusedNetworks judges those that say what is used around the cluster. One that
// is not granted overlaps what is used in it, such as the prefix of a peer.
func (c *cluster) refusedNetworks(networks []survey.Network) (out []Finding) {
	for _, n := range networks {
		if n.CIDR != "" || n.Problem == "" {
			continue
		}
		out = append(out, fail("%s is not granted: %s", n.Desired, n.Problem).on("Network "+c.Installation.Namespace+"/"+n.Name).
			because("two networks have the same addresses: only one of them can be reached from this cluster").
			fix("delete it if there is no such network; otherwise free the prefix: run 'liqoctl network reset' with the peer that uses it, and 'liqoctl network connect' again, which chooses another prefix"))
	}
	return out
}

// overlapsAmong finds prefixes that are not apart from each other.
func overlapsAmong(ps []named) (out []Finding) {
	for i, p := range ps {
		if o, ok := clash(p.prefix, ps[:i]); ok {
			out = append(out, fail("the %s %s and the %s %s overlap", o.what, o.prefix, p.what, p.prefix).
				because("one address would mean two things").fix("install again with CIDRs that do not overlap"))
		}
	}
	return out
}

// nodesWithin finds nodes whose addresses mean something else. Where a cloud gives
// pods addresses of the nodes' own network, both are in the pod CIDR.
func (c *cluster) nodesWithin() (out []Finding) {
	pods := granted("", c.Networks.Pod)
	for _, a := range c.nodeAddresses() {
		if contains(pods, a.prefix.Addr()) {
			if len(out) == 0 {
				out = append(out, warn("the %s, %s, lies in the pod CIDR %s", a.what, a.prefix.Addr(), prefixText(prefixesOf(pods))).
					because("this is normal if pods have addresses of the nodes' network, as with the VPC CNI of EKS; otherwise packets to the node would be routed like those to pods").
					fix("if pods and nodes are not in one network, install again with a --pod-cidr that covers only the pods"))
			}
			continue
		}
		if o, ok := clash(a.prefix, c.own()); ok {
			out = append(out, fail("the %s, %s, lies in the %s %s", a.what, a.prefix.Addr(), o.what, o.prefix).
				because("packets to the node would be routed like those to that CIDR").
				fix("install again with a CIDR outside the nodes' network, and reserve that network: --reserved-subnets"))
		}
	}
	return out
}

// podsOutside finds pods that prove the pod CIDR wrong.
func (c *cluster) podsOutside() (out []Finding) {
	ours := granted("", c.Networks.Pod)
	if len(ours) == 0 {
		return nil
	}
	wrong := func(f Finding) []Finding {
		return []Finding{f.because("packets of such pods are dropped as spoofed (DropSpoofedSource), and the peer cannot reach these pods").
			fix("install again with the real --pod-cidr: see the configuration of the CNI")}
	}
	for i := range c.pods.items {
		p := &c.pods.items[i]
		if p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err == nil && familyOf(ours, a) && !contains(ours, a) {
				return wrong(fail("pods have addresses outside of the pod CIDR %s: %s has %s", prefixText(prefixesOf(ours)), p.Name, a))
			}
		}
	}
	for _, n := range c.hosts() {
		for _, text := range n.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err == nil && familyOf(ours, p.Addr()) && !contains(ours, p.Addr()) {
				return wrong(warn("node %s has the pod CIDR %s, which is not in that of the installation, %s", n.Name, p, prefixText(prefixesOf(ours))))
			}
		}
	}
	return nil
}

// familyOf tells whether one of the prefixes is of the address's family.
func familyOf(ps []named, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p named) bool { return p.prefix.Addr().Is4() == a.Unmap().Is4() })
}

// serviceOutside finds out whether the service CIDR is wrong.
func (c *cluster) serviceOutside() []Finding {
	ours := granted("", c.Networks.Service)
	if c.apiService == nil || len(ours) == 0 {
		return nil
	}
	a, err := netip.ParseAddr(c.apiService.Spec.ClusterIP)
	if err != nil || !familyOf(ours, a) || contains(ours, a) {
		return nil
	}
	return []Finding{fail("the Service kubernetes has %s, which is not in the service CIDR of the installation, %s", a, prefixText(prefixesOf(ours))).
		because("a peer's CIDR may be remapped onto addresses of Services").fix("install again with the real --service-cidr")}
}

// cidrClashes judges by what this cluster reaches the other: these prefixes must
// mean nothing else here.
func cidrClashes(e *end) (out []Finding) {
	conf := e.peer.Configuration
	if why := e.cluster.unread("Configuration", "Network"); why != "" {
		return []Finding{skip("%s", why)}
	}
	if conf == nil || conf.Status.Remote == nil {
		return []Finding{skip("the addresses by which %s is reached are not settled yet: see the Configuration", e.id)}
	}
	object := "Configuration " + conf.Namespace + "/" + conf.Name
	used := append(e.cluster.own(), e.cluster.nodeAddresses()...)
	for i := range e.cluster.Peers {
		other := &e.cluster.Peers[i]
		if other.ID == e.id || other.Configuration == nil || other.Configuration.Status.Remote == nil {
			continue
		}
		for _, p := range append(parsed(other.Configuration.Status.Remote.CIDR.Pod), parsed(other.Configuration.Status.Remote.CIDR.External)...) {
			used = append(used, named{"CIDR of the peer " + other.ID, p})
		}
	}
	remote := conf.Status.Remote.CIDR
	var all []named
	for _, p := range parsed(remote.Pod) {
		all = append(all, named{"pods", p})
	}
	for _, p := range parsed(remote.External) {
		all = append(all, named{"external addresses", p})
	}
	for i, p := range all {
		if o, ok := clash(p.prefix, append(used, all[:i]...)); ok {
			out = append(out, fail("the %s of %s are reached as %s, which overlaps the %s %s", p.what, e.id, p.prefix, o.what, o.prefix).on(object).
				because("packets to these addresses go somewhere else").
				fix("reserve the networks around the cluster (--reserved-subnets of 'liqoctl install'), then have another CIDR chosen: 'liqoctl network reset' and 'connect'"))
		}
	}
	if len(out) == 0 {
		out = append(out, pass("%s: pods as %s, external addresses as %s%s", e.id, remapText(conf.Spec.Remote.CIDR.Pod.List, remote.Pod.List),
			remapText(conf.Spec.Remote.CIDR.External.List, remote.External.List), e.cluster.withoutNodes()))
	}
	return out
}

// remapText says by what prefixes are reached.
func remapText[C ~string](there, here []C) string {
	var texts []string
	for i, p := range here {
		text := string(p)
		if i < len(there) && there[i] != p {
			text = fmt.Sprintf("%s (there %s)", p, there[i])
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}
