package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/admin/survey"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// info is what `info -o json` prints. Its keys are Liqo's, and stay.
type info struct {
	Local    localInfo    `json:"local"`
	Health   healthInfo   `json:"health"`
	Network  networkInfo  `json:"network"`
	Peerings peeringsInfo `json:"peerings"`
	// Offloaded is absent where there are none. Liqo has no such key.
	Offloaded []offloadedInfo `json:"offloadedNamespaces,omitempty"`
}

type localInfo struct {
	ClusterID         string            `json:"clusterID"`
	Version           string            `json:"version"`
	Labels            map[string]string `json:"labels"`
	APIServerAddr     string            `json:"APIServerAddr"`
	KubernetesVersion string            `json:"kubernetesVersion"`

	ofLiqo bool // Liqo runs there
}

type healthInfo struct {
	// Healthy is null where the user may not see what tells.
	Healthy    *bool           `json:"healthy"`
	Components []componentInfo `json:"components"`
	// UnhealthyPods are the pods that are not ready, by name.
	UnhealthyPods map[string]podInfo `json:"unhealthyPods,omitempty"`
	// Problems say why it is not healthy.
	Problems []string `json:"problems,omitempty"`
	// Notes are about parts of Liqo that somebody has scaled to zero.
	Notes []string `json:"notes,omitempty"`

	ofLiqo bool // Liqo runs there
}

type componentInfo struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Ready     int32  `json:"ready"`
	Desired   int32  `json:"desired"`
}

type podInfo struct {
	Namespace string `json:"namespace"`
	Node      string `json:"node,omitempty"`
	Status    string `json:"status"`
	Restarts  int32  `json:"restarts"`
}

type networkInfo struct {
	PodCIDRs        []string `json:"podCIDRs"`
	ServiceCIDR     string   `json:"serviceCIDR"`
	ExternalCIDR    string   `json:"externalCIDR"`
	InternalCIDR    string   `json:"internalCIDR"`
	ReservedSubnets []string `json:"reservedSubnets,omitempty"`
	// Problems are Networks that the cluster could not have.
	Problems []string `json:"problems,omitempty"`
}

type peeringsInfo struct {
	Peers []peeringInfo `json:"peers"`

	none string // what is shown where there are none
}

type peeringInfo struct {
	ClusterID            string        `json:"clusterID"`
	Role                 string        `json:"role"`
	NetworkingStatus     survey.Health `json:"networkingStatus"`
	AuthenticationStatus survey.Health `json:"authenticationStatus"`
	OffloadingStatus     survey.Health `json:"offloadingStatus"`
}

type offloadedInfo struct {
	Namespace string `json:"namespace"`
	// RemoteNamespace is its name in the other clusters.
	RemoteNamespace string `json:"remoteNamespace"`
	Phase           string `json:"phase"`
	Alerts          alerts `json:"alerts"`
}

// infoOf is what a reading of a cluster says.
func infoOf(s *survey.Cluster) info {
	i := info{
		Local: localInfo{
			ClusterID: s.Installation.ClusterID, Version: s.Installation.Version, Labels: s.Installation.Labels,
			APIServerAddr: s.Installation.APIServer, KubernetesVersion: s.Installation.KubernetesVersion,
			ofLiqo: s.Installation.OfLiqo(),
		},
		Health:   healthOf(s),
		Network:  networkOf(s.Networks),
		Peerings: peeringsInfo{Peers: []peeringInfo{}, none: noPeersIn(nil, s)},
	}
	for _, n := range s.Offloaded {
		i.Offloaded = append(i.Offloaded, offloadedInfo{n.Namespace, n.RemoteName, string(n.Phase), n.Alerts})
	}
	if i.Local.Labels == nil {
		i.Local.Labels = map[string]string{}
	}
	for n := range s.Peers {
		p := &s.Peers[n]
		if !p.Peered() {
			continue
		}
		health, _ := s.Health(p)
		authentication, _ := s.Authentication(p)
		offloading, _ := s.Offloading(p)
		i.Peerings.Peers = append(i.Peerings.Peers, peeringInfo{
			ClusterID: p.ID, Role: peerRole(s, p), NetworkingStatus: health,
			AuthenticationStatus: authentication, OffloadingStatus: offloading,
		})
	}
	return i
}

func healthOf(s *survey.Cluster) healthInfo {
	h := healthInfo{Components: []componentInfo{}, Notes: s.ComponentNotes(), ofLiqo: s.Installation.OfLiqo()}
	for _, a := range s.ComponentAlerts() {
		h.Problems = append(h.Problems, a.String())
	}
	healthy := len(h.Problems) == 0 && len(s.Installation.Components) > 0
	for i := range s.Installation.Components {
		c := &s.Installation.Components[i]
		h.Components = append(h.Components, componentInfo{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Version: c.Version, Ready: c.Ready, Desired: c.Desired})
		for _, p := range c.Pods {
			if h.UnhealthyPods == nil {
				h.UnhealthyPods = make(map[string]podInfo)
			}
			h.UnhealthyPods[p.Name] = podInfo{p.Namespace, p.Node, p.Reason, p.Restarts}
		}
	}
	if healthy || len(h.Problems) > 0 || !s.Unread("Deployment") {
		h.Healthy = &healthy
	}
	return h
}

func networkOf(n survey.Networks) networkInfo {
	i := networkInfo{PodCIDRs: []string{}}
	cidrs := func(list []survey.Network) (out []string) {
		for _, o := range list {
			if o.CIDR != "" {
				out = append(out, o.CIDR)
			}
			if o.Problem != "" {
				i.Problems = append(i.Problems, "Network "+o.Name+": "+o.Problem)
			}
		}
		return out
	}
	i.PodCIDRs = append(i.PodCIDRs, cidrs(n.Pod)...)
	i.ServiceCIDR = strings.Join(cidrs(n.Service), ",")
	i.ExternalCIDR = strings.Join(cidrs(n.External), ",")
	i.InternalCIDR = strings.Join(cidrs(n.Internal), ",")
	i.ReservedSubnets = cidrs(n.Reserved)
	return i
}

// peerInfo is what `info peer -o json` prints of each peer. Its keys are Liqo's,
// and stay.
type peerInfo struct {
	Info struct {
		ClusterID string `json:"clusterID"`
		Role      string `json:"role"`
	} `json:"info"`
	Network        peerNetwork        `json:"network"`
	Authentication peerAuthentication `json:"authentication"`
	Offloading     peerOffloading     `json:"offloading"`
}

// alerts are always a list, so that a script that asks for them need not tell none from a mistake in the path.
type alerts []string

// MarshalJSON implements json.Marshaler.
func (a alerts) MarshalJSON() ([]byte, error) { return json.Marshal(append([]string{}, a...)) }

// moduleInfo is about a part of a peering.
type moduleInfo struct {
	Status survey.Health `json:"status"`
	Alerts alerts        `json:"alerts"`
}

type peerOffloading struct {
	moduleInfo
	VirtualNodes []virtualNodeInfo `json:"virtualNodes"`
}

type virtualNodeInfo struct {
	Name   string        `json:"name"`
	Status survey.Health `json:"status"`
	Alerts alerts        `json:"alerts"`
	// Secret holds the kubeconfig for the provider.
	Secret string `json:"secret"`
	// ResourceSlice is the one that it was made of; empty: none.
	ResourceSlice string              `json:"resourceSlice,omitempty"`
	Resources     corev1.ResourceList `json:"resources"`
}

type peerAuthentication struct {
	moduleInfo
	// APIServerAddr is where a provider is reached: the proxy, if there is one.
	APIServerAddr  string      `json:"APIServerAddr"`
	ResourceSlices []sliceInfo `json:"resourceSlices"`
}

type sliceInfo struct {
	Name string `json:"name"`
	// Action is what this cluster does: Consuming or Providing.
	Action    string              `json:"action"`
	Accepted  bool                `json:"accepted"`
	Alerts    alerts              `json:"alerts"`
	Resources corev1.ResourceList `json:"resources"`
}

type peerNetwork struct {
	Status  survey.Health `json:"status"`
	Alerts  alerts        `json:"alerts"`
	CIDRs   peerCIDRs     `json:"CIDRs"`
	Gateway peerGateway   `json:"gateway"`
	// Connection is absent while there is none.
	Connection *peerConnection `json:"connection,omitempty"`
	// ExposedIPs are the addresses of this cluster that IPs make known to all peers.
	ExposedIPs []exposedIP `json:"exposedIPs,omitempty"`
}

type exposedIP struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	IP        string `json:"IP"`
	// Remapped is its address in the external CIDR; empty while there is none.
	Remapped string `json:"remapped"`
	Problem  string `json:"problem,omitempty"`
}

type peerCIDRs struct {
	Remote networkingv1beta1.ClusterCIDR `json:"remote"`
	// Remapped is how the peer is reached from here; absent until that is known.
	Remapped *networkingv1beta1.ClusterCIDR `json:"remapped,omitempty"`
}

type peerGateway struct {
	// Address and Port are those of the server of the two. Of several tunnels Port is the first, and Ports are all.
	Address []string `json:"address"`
	Port    int32    `json:"port"`
	Ports   []int32  `json:"ports,omitempty"`
	// Role is that of the peer's gateway: Server or Client.
	Role string `json:"role"`
}

type peerConnection struct {
	Status  string `json:"status"`
	Latency string `json:"latency"`
}

// peerInfoOf is what a reading of a cluster says of a peer.
func peerInfoOf(s *survey.Cluster, p *survey.Peer) peerInfo {
	var i peerInfo
	i.Info.ClusterID, i.Info.Role = p.ID, peerRole(s, p)
	i.Authentication = authenticationOf(s, p)
	i.Offloading = offloadingOf(s, p)
	health, alerts := s.Health(p)
	i.Network.Status = health
	for _, a := range alerts {
		i.Network.Alerts = append(i.Network.Alerts, a.String())
	}
	if c := p.Configuration; c != nil {
		i.Network.CIDRs.Remote = onePrefixes(c.Spec.Remote.CIDR)
		if c.Status.Remote != nil {
			remapped := onePrefixes(c.Status.Remote.CIDR)
			i.Network.CIDRs.Remapped = &remapped
		}
	}
	i.Network.Gateway = peerGateway{Address: []string{}, Role: gatewayRole(p)}
	if g := p.Gateway; g != nil && g.Endpoint != nil {
		i.Network.Gateway.Address = append(i.Network.Gateway.Address, g.Endpoint.Addresses...)
		i.Network.Gateway.Port = g.Endpoint.Port
		if ports := g.Endpoint.Ports; len(ports) > 0 {
			i.Network.Gateway.Port, i.Network.Gateway.Ports = ports[0], ports
		}
	}
	for _, e := range s.Exposed {
		i.Network.ExposedIPs = append(i.Network.ExposedIPs, exposedIP(e))
	}
	if c := p.Connection; c != nil {
		i.Network.Connection = &peerConnection{Status: string(c.Status.Value), Latency: cmp.Or(c.Status.Latency.Value, "N/A")}
	}
	return i
}

// authenticationOf is what a reading says of who asks whom.
func authenticationOf(c *survey.Cluster, p *survey.Peer) peerAuthentication {
	a := peerAuthentication{ResourceSlices: []sliceInfo{}}
	a.Status, a.Alerts = c.Authentication(p)
	if p.Foreign != nil {
		a.APIServerAddr = cmp.Or(p.Foreign.Status.ForeignProxyURL, p.Foreign.Status.APIServerURL)
	}
	for _, s := range p.Slices {
		i := sliceInfo{Name: s.Name, Action: "Consuming", Resources: s.Status.Resources}
		if s.Labels[authv1beta1.LabelReplicated] == networkingv1beta1.LabelTrue {
			i.Action = "Providing"
		}
		i.Alerts = lacks(&s)
		i.Accepted = len(i.Alerts) == 0
		if i.Resources == nil {
			i.Resources = corev1.ResourceList{}
		}
		a.ResourceSlices = append(a.ResourceSlices, i)
	}
	return a
}

// lacks says what a slice lacks to be accepted: each of its two conditions.
func lacks(s *authv1beta1.ResourceSlice) (alerts []string) {
	for _, of := range []authv1beta1.ResourceSliceConditionType{authv1beta1.SliceAuthentication, authv1beta1.SliceResources} {
		i := slices.IndexFunc(s.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool { return c.Type == of })
		switch {
		case i < 0:
			alerts = append(alerts, fmt.Sprintf("nobody has decided on %s yet", of))
		case s.Status.Conditions[i].Status != authv1beta1.SliceAccepted:
			alerts = append(alerts, s.Status.Conditions[i].Message)
		}
	}
	return alerts
}

// offloadingOf is what a reading says of the virtual nodes.
func offloadingOf(s *survey.Cluster, p *survey.Peer) peerOffloading {
	o := peerOffloading{VirtualNodes: []virtualNodeInfo{}}
	o.Status, o.Alerts = s.Offloading(p)
	for i := range p.VirtualNodes {
		v := &p.VirtualNodes[i]
		n := virtualNodeInfo{Name: v.Name, ResourceSlice: v.Labels[authv1beta1.LabelResourceSliceName], Resources: v.Spec.ResourceQuota.Hard}
		n.Status, n.Alerts = survey.VirtualNode(v)
		if v.Spec.KubeconfigSecretRef != nil {
			n.Secret = v.Spec.KubeconfigSecretRef.Name
		}
		if n.Resources == nil {
			n.Resources = corev1.ResourceList{}
		}
		o.VirtualNodes = append(o.VirtualNodes, n)
	}
	return o
}

// peerRole is what the peer is: where the controller does not tell, as one of an earlier version, what its gateway is.
func peerRole(s *survey.Cluster, p *survey.Peer) string {
	return cmp.Or(string(s.Role(p)), gatewayRole(p))
}

// gatewayRole is what the peer's gateway is: the opposite of ours.
func gatewayRole(p *survey.Peer) string {
	switch {
	case p.Gateway == nil:
		return "Unknown"
	case p.Gateway.Role == networkingv1beta1.ConnectionServer:
		return string(networkingv1beta1.ConnectionClient)
	}
	return string(networkingv1beta1.ConnectionServer)
}
