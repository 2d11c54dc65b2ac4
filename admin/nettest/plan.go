package nettest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/admin/peering"
	"github.com/sluice-net/sluice/admin/probe"
)

// Kind is one group of checks.
type Kind string

// The groups, in the order in which they run.
const (
	PodToPod               Kind = "pod-to-pod"
	PodToPodLarge          Kind = "pod-to-pod, large packets"
	PodToService           Kind = "pod-to-service"
	PodToExported          Kind = "pod-to-exported-service"
	NodeToPod              Kind = "node-to-pod"
	PodToNodePort          Kind = "pod-to-nodeport"
	ExternalToNodePort     Kind = "external-to-nodeport"
	ExternalToLoadBalancer Kind = "external-to-loadbalancer"
	PodToInternet          Kind = "pod-to-internet"
	PodToExternalIP        Kind = "pod-to-external-ip"
)

// Wanted says which checks are to run, besides pod to pod.
type Wanted struct {
	// Basic leaves out everything else that runs by default: large packets, Services,
	// nodes, the Internet.
	Basic bool
	// PodNodePort, ExternalNodePort, LoadBalancer and ExternalIP ask for more.
	PodNodePort, ExternalNodePort, LoadBalancer, ExternalIP bool
	// Nodes says on which nodes node ports are tried. Empty: AllNodes.
	Nodes NodeSet
	// Internet is a host outside all clusters that serves HTTP and HTTPS. Invalid: access to
	// the Internet is not tested.
	Internet netip.Addr
}

// Party is one end of a check.
type Party struct {
	// Cluster is empty for what is in no cluster: the Internet, this machine.
	Cluster string `json:"cluster,omitempty"`
	// Pod is the prober's name. Empty on the receiving side: any prober of the
	// cluster.
	Pod  string `json:"pod,omitempty"`
	Node string `json:"node,omitempty"`
	// Name is what to call it in a table.
	Name string `json:"name"`
}

// Check is one thing to try, and the expected result.
type Check struct {
	Kind Kind   `json:"check"`
	From Party  `json:"from"`
	To   Party  `json:"to"`
	URL  string `json:"url,omitempty"`
	// Times is how often it is tried, if more than once: every attempt must succeed.
	Times int `json:"times,omitempty"`
	// Sources are the addresses by which the receiver may see the sender. None: it
	// does not matter.
	Sources []netip.Addr `json:"sources,omitempty"`
	// Odd are addresses by which it may also see the sender, which is worth a note.
	Odd []netip.Addr `json:"-"`
	// Missing says why the check cannot even be tried, which is a failure.
	Missing string `json:"-"`

	namespace string     // of the prober that tries
	unmapped  netip.Addr // of the sender, in its own cluster
	unknown   netip.Addr // by which the receiver sees whatever is not a pod in the sender's cluster
}

// byService tells whether a check uses a Service of the test.
func (c *Check) byService() bool {
	switch c.Kind {
	case PodToService, PodToExported, PodToNodePort, ExternalToNodePort, ExternalToLoadBalancer:
		return true
	}
	return false
}

// Sizes of what is sent to see whether large packets get through.
const (
	downloadSize = 2 << 20
	datagramSize = 1200 // fits in one packet, also over IPv6
	fragmentSize = 4000 // takes several
)

// Plan returns the checks for the clusters.
//
//	pod-to-pod                every prober to every other, in its own cluster and in its peers
//	  large packets           every prober to one of each peer: a download, a datagram, a datagram in fragments
//	pod-to-service            every prober to the Service that stands for a peer, twice as often as the peer has probers
//	pod-to-exported-service   the same with the Service that a peer exports, between clusters that share Services
//	node-to-pod               every prober on the network of its node to every prober of the peers
//	pod-to-nodeport           every prober to the node port of a peer's Service, on every node of its own cluster
//	external-to-nodeport      this machine to the same
//	external-to-loadbalancer  this machine to the load balancer of a peer's Service
//	pod-to-internet           every prober to a host outside all clusters
//	pod-to-external-ip        every prober to the addresses that stand for that host in its own cluster and its peers
func Plan(clusters []Inventory, w Wanted) (checks []Check) {
	p := &planner{clusters: clusters, wanted: w}
	for _, group := range []struct {
		run  bool
		plan func(*Inventory) []Check
	}{
		{true, p.podToPod},
		{!w.Basic, p.large},
		{!w.Basic, p.podToService},
		{!w.Basic, p.podToExported},
		{!w.Basic, p.nodeToPod},
		{w.PodNodePort, p.podToNodePort},
		{w.ExternalNodePort, p.externalToNodePort},
		{w.LoadBalancer, p.externalToLoadBalancer},
		{!w.Basic && w.Internet.IsValid(), p.podToInternet},
		{w.ExternalIP, p.podToExternalIP},
	} {
		for i := range clusters {
			if group.run {
				checks = append(checks, group.plan(&clusters[i])...)
			}
		}
	}
	return checks
}

type planner struct {
	clusters []Inventory
	wanted   Wanted
}

// peers are the clusters that have a view of from, and from of them.
func (p *planner) peers(from *Inventory) (peers []*Inventory) {
	for i := range p.clusters {
		if to := &p.clusters[i]; to.ID != from.ID && from.view(to.ID) != nil && to.view(from.ID) != nil {
			peers = append(peers, to)
		}
	}
	return peers
}

func (p *planner) podToPod(from *Inventory) (checks []Check) {
	for _, pod := range from.Probers {
		for _, to := range from.Probers {
			if to.Name == pod.Name {
				continue
			}
			c := podCheck(PodToPod, from, pod)
			c.To, c.URL, c.Sources = proberParty(from, to), web(to.IP), []netip.Addr{pod.IP}
			checks = append(checks, c)
		}
	}
	for _, peer := range p.peers(from) {
		for _, pod := range from.Probers {
			for _, to := range peer.Probers {
				checks = append(checks, remoteCheck(PodToPod, from, peer, pod, to))
			}
		}
	}
	return checks
}

// remoteCheck is a check from a prober to one of a peer, at its address here.
func remoteCheck(kind Kind, from, peer *Inventory, pod, to Prober) Check {
	c := podCheck(kind, from, pod)
	c.To = proberParty(peer, to)
	c.from(from, peer, pod)
	if here := peering.Translate(from.view(peer.ID).Pod, to.IP); here.IsValid() {
		c.URL = web(here)
	} else {
		c.Missing = fmt.Sprintf("Configuration %s of cluster %s has no CIDR that contains %s: the pod CIDR in its spec is not the one that cluster %s uses",
			from.view(peer.ID).Configuration, from.ID, to.IP, peer.ID)
	}
	return c
}

// from notes how a peer should see a prober.
func (c *Check) from(from, peer *Inventory, pod Prober) {
	view := peer.view(from.ID)
	c.unmapped, c.unknown = pod.IP, view.unknownSource()
	c.Sources = []netip.Addr{peering.Translate(view.Pod, pod.IP)}
	if from.HidesPods {
		c.Sources = []netip.Addr{c.unknown}
	}
	c.Sources = slices.DeleteFunc(c.Sources, func(a netip.Addr) bool { return !a.IsValid() })
}

// large pairs the probers so that every prober on both sides takes part at least once.
func (p *planner) large(from *Inventory) (checks []Check) {
	for _, peer := range p.peers(from) {
		if len(peer.Probers) == 0 || len(from.Probers) == 0 {
			continue
		}
		for i := range max(len(from.Probers), len(peer.Probers)) {
			pod, to := from.Probers[i%len(from.Probers)], peer.Probers[i%len(peer.Probers)]
			base := remoteCheck(PodToPodLarge, from, peer, pod, to)
			if base.Missing != "" {
				continue // podToPod reports it
			}
			at := peering.Translate(from.view(peer.ID).Pod, to.IP)
			for _, url := range []string{
				fmt.Sprintf("%s?bytes=%d", web(at), downloadSize),
				datagram(at, datagramSize), datagram(at, fragmentSize),
			} {
				base.URL = url
				checks = append(checks, base)
			}
		}
	}
	return checks
}

func (p *planner) podToService(from *Inventory) (checks []Check) {
	for _, peer := range p.peers(from) {
		s := from.service(peer.ID)
		for _, pod := range from.Probers {
			c := toService(PodToService, from, peer, pod, s)
			if c.URL == "" {
				c.Missing = "there is no Service for this peer"
			}
			checks = append(checks, c)
		}
	}
	return checks
}

// toService is a check of a Service that leads to the probers of a peer; without an address it has no URL.
func toService(kind Kind, from, peer *Inventory, pod Prober, s *Service) Check {
	c := podCheck(kind, from, pod)
	c.To, c.Times = Party{Cluster: peer.ID, Name: peer.ID + ": Service"}, 2*len(peer.Probers)
	c.from(from, peer, pod)
	c.Odd = []netip.Addr{c.unknown} // kube-proxy may be configured to hide pod addresses from Services
	if s != nil && s.ClusterIP.IsValid() {
		c.URL = page(s.ClusterIP, 80)
	}
	return c
}

func (p *planner) nodeToPod(from *Inventory) (checks []Check) {
	for _, peer := range p.peers(from) {
		for _, host := range from.Hosts {
			for _, to := range peer.Probers {
				c := remoteCheck(NodeToPod, from, peer, host, to)
				c.From.Name = from.ID + "/node " + host.Node
				c.Sources = []netip.Addr{c.unknown}
				checks = append(checks, c)
			}
		}
	}
	return checks
}

func (p *planner) podToNodePort(from *Inventory) (checks []Check) {
	for _, peer := range p.peers(from) {
		for _, pod := range from.Probers {
			for _, n := range p.wanted.Nodes.of(from.Nodes) {
				c := podCheck(PodToNodePort, from, pod)
				c.from(from, peer, pod)
				c.toNodePort(from, peer, n, n.InternalIP)
				checks = append(checks, c)
			}
		}
	}
	return checks
}

func (p *planner) externalToNodePort(from *Inventory) (checks []Check) {
	for _, peer := range p.peers(from) {
		for _, n := range p.wanted.Nodes.of(from.Nodes) {
			c := Check{Kind: ExternalToNodePort, From: Party{Name: "this machine"}, unknown: peer.view(from.ID).unknownSource()}
			at := n.ExternalIP
			if !at.IsValid() {
				at = n.InternalIP
			}
			c.toNodePort(from, peer, n, at)
			checks = append(checks, c)
		}
	}
	return checks
}

// toNodePort aims a check at the node port of a peer's Service. So that answers come back
// through it, the node replaces the client's address by its own, and the peer sees the node;
// some network plugins leave the addresses of pods unchanged.
func (c *Check) toNodePort(from, peer *Inventory, n Node, at netip.Addr) {
	c.To = Party{Cluster: peer.ID, Node: n.Name, Name: fmt.Sprintf("%s: Service, through node %s/%s", peer.ID, from.ID, n.Name)}
	c.Sources = append(c.Sources, c.unknown)
	switch s := from.service(peer.ID); {
	case s == nil || s.NodePort == 0:
		c.Missing = "the Service for this peer has no node port"
	case !at.IsValid():
		c.Missing = fmt.Sprintf("node %s has no address", n.Name)
	default:
		c.URL = page(at, s.NodePort)
	}
}

func (p *planner) externalToLoadBalancer(from *Inventory) (checks []Check) {
	for _, peer := range p.peers(from) {
		c := Check{Kind: ExternalToLoadBalancer, From: Party{Name: "this machine"}, unknown: peer.view(from.ID).unknownSource()}
		c.To = Party{Cluster: peer.ID, Name: fmt.Sprintf("%s: Service, through load balancer of %s", peer.ID, from.ID)}
		c.Sources = []netip.Addr{c.unknown}
		switch s := from.service(peer.ID); {
		case s == nil || s.Balancer == "":
			c.Missing = "no load balancer has assigned an address to the Service: does the cluster have one?"
		default:
			c.URL = "http://" + hostPort(s.Balancer, 80) + "/"
		}
		checks = append(checks, c)
	}
	return checks
}

func (p *planner) podToInternet(from *Inventory) (checks []Check) {
	for _, pod := range from.Probers {
		c := podCheck(PodToInternet, from, pod)
		c.To, c.URL = Party{Name: "Internet: " + p.wanted.Internet.String()}, page(p.wanted.Internet, 80)
		checks = append(checks, c)
	}
	return checks
}

func (p *planner) podToExternalIP(from *Inventory) (checks []Check) {
	for _, pod := range from.Probers {
		for _, owner := range append([]*Inventory{from}, p.peers(from)...) {
			c := podCheck(PodToExternalIP, from, pod)
			c.To = Party{Name: fmt.Sprintf("%s: IP of %s", owner.ID, p.wanted.Internet)}
			at := owner.ExternalIP
			if at.IsValid() && owner != from {
				at = peering.Translate(from.view(owner.ID).External, at)
			}
			if at.IsValid() {
				c.URL = "tcp://" + netip.AddrPortFrom(at, 443).String()
			} else {
				c.Missing = fmt.Sprintf("the IP object of cluster %s has no address that cluster %s can use", owner.ID, from.ID)
			}
			checks = append(checks, c)
		}
	}
	return checks
}

func podCheck(kind Kind, in *Inventory, pod Prober) Check {
	return Check{Kind: kind, From: proberParty(in, pod), namespace: pod.Namespace}
}

func proberParty(in *Inventory, p Prober) Party {
	return Party{Cluster: in.ID, Pod: p.Name, Node: p.Node, Name: fmt.Sprintf("%s/%s (%s)", in.ID, p.Name, p.Node)}
}

// web is the page of a prober.
func web(a netip.Addr) string { return page(a, probe.Port) }

func page(a netip.Addr, port uint16) string {
	return "http://" + netip.AddrPortFrom(a, port).String() + "/"
}

func datagram(a netip.Addr, size int) string {
	return fmt.Sprintf("udp://%s?bytes=%d", netip.AddrPortFrom(a, probe.Port), size)
}

func hostPort(host string, port uint16) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a, port).String()
	}
	return fmt.Sprintf("%s:%d", host, port)
}
