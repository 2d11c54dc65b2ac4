package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/survey"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/cmd/liqoctl/console"
)

// write shows an info. The Networks are for those who want more.
func (i info) write(p *console.Page, verbose bool) {
	p.Box("Local installation info", i.Local.section())
	p.Box("Installation health", i.Health.section())
	if verbose {
		p.Box("Network", i.Network.section())
	}
	p.Box("Active peerings", i.Peerings.section())
	if len(i.Offloaded) > 0 {
		s := &console.Section{}
		for _, n := range i.Offloaded {
			n.write(s.Sub(n.Namespace))
		}
		p.Box("Offloaded namespaces", s)
	}
}

func (n offloadedInfo) write(s *console.Section) {
	phase := orUnknown(n.Phase)
	switch offloadingv1beta1.OffloadingPhase(n.Phase) {
	case offloadingv1beta1.OffloadingReady:
		phase = console.Good(phase)
	case offloadingv1beta1.OffloadingSomeFailed, offloadingv1beta1.OffloadingAllFailed:
		phase = console.Bad(phase)
	}
	s.Entry("Phase", phase)
	s.Entry("Remote namespace", orUnknown(n.RemoteNamespace))
	writeAlerts(s, n.Alerts)
}

// versionText says what runs, and which version of it.
func (l localInfo) versionText() string {
	version := orUnknown(l.Version)
	if l.ofLiqo {
		version += ", of Liqo"
	}
	return version
}

func (l localInfo) section() *console.Section {
	s := &console.Section{}
	s.Entry("Cluster ID", orUnknown(l.ClusterID))
	s.Entry("Version", l.versionText())
	s.Entry("K8s API server", orUnknown(l.APIServerAddr))
	s.Entry("K8s version", orUnknown(l.KubernetesVersion))
	if len(l.Labels) > 0 {
		labels := s.Sub("Cluster labels")
		for _, k := range slices.Sorted(maps.Keys(l.Labels)) {
			labels.Entry(k, l.Labels[k])
		}
	}
	return s
}

func (h healthInfo) section() *console.Section {
	s := &console.Section{}
	who := "Sluice"
	if h.ofLiqo {
		who = "Liqo"
	}
	switch {
	case h.Healthy == nil:
		s.Text(console.Caution("Not known: it may not be seen by this user"))
	case *h.Healthy:
		s.Text(console.Good(who + " is healthy"))
	default:
		s.Text(console.Bad(who + " is unhealthy"))
	}
	for _, p := range h.Problems {
		s.Text(console.Bad(p))
	}
	for _, n := range h.Notes {
		s.Text(n)
	}
	if len(h.UnhealthyPods) > 0 {
		pods := s.Sub("Unhealthy pods")
		for _, name := range slices.Sorted(maps.Keys(h.UnhealthyPods)) {
			p := h.UnhealthyPods[name]
			pods.Entry(name, fmt.Sprintf("%s, restarts: %d", p.Status, p.Restarts))
		}
	}
	return s
}

func (n networkInfo) section() *console.Section {
	s := &console.Section{}
	s.Entry("Pod CIDR", orUnknown(strings.Join(n.PodCIDRs, ", ")))
	s.Entry("Service CIDR", orUnknown(n.ServiceCIDR))
	s.Entry("External CIDR", orUnknown(n.ExternalCIDR))
	s.Entry("Internal CIDR", orUnknown(n.InternalCIDR))
	if len(n.ReservedSubnets) > 0 {
		s.Entry("Reserved subnets", n.ReservedSubnets...)
	}
	for _, p := range n.Problems {
		s.Text(console.Bad(p))
	}
	return s
}

func (ps peeringsInfo) section() *console.Section {
	s := &console.Section{}
	for _, p := range ps.Peers {
		peer := s.Sub(orUnknown(p.ClusterID))
		peer.Entry("Role", roleText(p.Role))
		peer.Entry("Networking status", healthText(p.NetworkingStatus))
		peer.Entry("Authentication status", healthText(p.AuthenticationStatus))
		peer.Entry("Offloading status", healthText(p.OffloadingStatus))
	}
	if len(ps.Peers) == 0 {
		s.Text(ps.none)
	}
	return s
}

// roleText is the role of a peer, or of its gateway, and, lest it be taken for this
// cluster's, the other.
func roleText(peer string) string {
	switch peer {
	case string(networkingv1beta1.ConnectionServer):
		return "Server (this cluster is the client)"
	case string(networkingv1beta1.ConnectionClient):
		return "Client (this cluster is the server)"
	case string(corev1beta1.ConsumerRole):
		return "Consumer (this cluster is the provider)"
	case string(corev1beta1.ProviderRole):
		return "Provider (this cluster is the consumer)"
	}
	return peer
}

// write shows a peerInfo.
func (i peerInfo) write(p *console.Page) {
	s := &console.Section{}
	s.Entry("Cluster ID", orUnknown(i.Info.ClusterID))
	s.Entry("Role", roleText(i.Info.Role))
	p.Box("Peer cluster info", s)
	p.Box("Network", i.Network.section())
	if i.Authentication.Status != survey.Disabled { // else there is nothing to tell
		p.Box("Authentication", i.Authentication.section())
	}
	if i.Offloading.Status != survey.Disabled {
		p.Box("Offloading", i.Offloading.section())
	}
}

func (m moduleInfo) section() *console.Section {
	s := &console.Section{}
	s.Entry("Status", healthText(m.Status))
	writeAlerts(s, m.Alerts)
	return s
}

func writeAlerts(s *console.Section, alerts []string) {
	if len(alerts) == 0 {
		return
	}
	lines := make([]string, len(alerts))
	for i, a := range alerts {
		lines[i] = console.Caution(a)
	}
	s.Entry("Alerts", lines...)
}

func (a peerAuthentication) section() *console.Section {
	s := a.moduleInfo.section()
	if a.APIServerAddr != "" {
		s.Entry("API server", a.APIServerAddr)
	}
	if len(a.ResourceSlices) == 0 {
		return s
	}
	all := s.Sub("Resource slices")
	for _, r := range a.ResourceSlices {
		one := all.Sub(r.Name)
		if r.Accepted {
			one.Text(console.Good("Resource slice accepted"))
		} else {
			one.Text(console.Bad("Resource slice not accepted"))
		}
		writeAlerts(one, r.Alerts)
		one.Entry("Action", r.Action)
		writeResources(one, r.Resources)
	}
	return s
}

func writeResources(s *console.Section, all corev1.ResourceList) {
	if len(all) == 0 {
		return
	}
	resources := s.Sub("Resources")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		q := all[name]
		resources.Entry(string(name), q.String())
	}
}

func (o peerOffloading) section() *console.Section {
	s := o.moduleInfo.section()
	if len(o.VirtualNodes) == 0 {
		return s
	}
	all := s.Sub("Virtual nodes")
	for _, v := range o.VirtualNodes {
		one := all.Sub(v.Name)
		one.Entry("Status", healthText(v.Status))
		writeAlerts(one, v.Alerts)
		one.Entry("Secret", orUnknown(v.Secret))
		if v.ResourceSlice != "" {
			one.Entry("Resource slice", v.ResourceSlice)
		}
		writeResources(one, v.Resources)
	}
	return s
}

func (n peerNetwork) section() *console.Section {
	s := &console.Section{}
	s.Entry("Status", healthText(n.Status))
	writeAlerts(s, n.Alerts)
	if n.Connection != nil {
		s.Entry("Connection", fmt.Sprintf("%s, latency %s", orUnknown(n.Connection.Status), n.Connection.Latency))
	}
	if !n.CIDRs.Remote.Pod.IsZero() || !n.CIDRs.Remote.External.IsZero() {
		remapped := n.CIDRs.Remapped
		if remapped == nil {
			remapped = &networkingv1beta1.ClusterCIDR{}
		}
		remote := s.Sub("CIDR").Sub("Remote")
		remote.Entry("Pod CIDR", cidrText(n.CIDRs.Remote.Pod, remapped.Pod))
		remote.Entry("External CIDR", cidrText(n.CIDRs.Remote.External, remapped.External))
	}
	if n.Status != survey.Disabled {
		gateway := s.Sub("Gateway")
		gateway.Entry("Role", roleText(n.Gateway.Role))
		gateway.Entry("Address", orUnknown(strings.Join(n.Gateway.Address, ", ")))
		if p := ports(n.Gateway.Ports); len(p) > 0 {
			gateway.Entry("Ports", strings.ReplaceAll(p.String(), ",", ", "))
		} else if n.Gateway.Port != 0 {
			gateway.Entry("Port", fmt.Sprint(n.Gateway.Port))
		}
	}
	if len(n.ExposedIPs) > 0 {
		exposed := s.Sub("Exposed IPs")
		for _, e := range n.ExposedIPs {
			lines := []string{e.IP + " → Remapped to " + orUnknown(e.Remapped)}
			if e.Problem != "" {
				lines = append(lines, console.Bad(e.Problem))
			}
			exposed.Entry(e.Namespace+"/"+e.Name, lines...)
		}
	}
	return s
}

// cidrText is what the peer uses and what stands for it here.
func cidrText(remote, remapped networkingv1beta1.CIDRs) string {
	text := orUnknown(joinCIDRs(remote))
	if len(remapped.List) == 0 {
		return text
	}
	return text + " → Remapped to " + joinCIDRs(remapped)
}

func joinCIDRs(c networkingv1beta1.CIDRs) string { return text.Join(c.List, ", ") }

func healthText(h survey.Health) string {
	switch h {
	case survey.Healthy:
		return console.Good(string(h))
	case survey.Unhealthy:
		return console.Bad(string(h))
	}
	return string(h)
}

// orUnknown is a text, or what stands where there is none.
func orUnknown(text string) string { return cmp.Or(text, "-") }
