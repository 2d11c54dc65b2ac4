package nettest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// Inventory is what one cluster has to test.
type Inventory struct {
	// ID is the cluster ID.
	ID string `json:"id"`
	// Name is "local", "remote" or the like.
	Name string `json:"name"`
	// Probers are the pods on the pod network, Hosts those on the network of their
	// node.
	Probers []Prober `json:"probers"`
	Hosts   []Prober `json:"hosts,omitempty"`
	Nodes   []Node   `json:"nodes"`
	// Views are how this cluster addresses the others that it is peered with.
	Views    []View    `json:"views"`
	Services []Service `json:"services,omitempty"`
	// Exports says that this cluster exports its probers as a Service, Imported are those that peers export.
	Exports  bool      `json:"exports,omitempty"`
	Imported []Service `json:"imported,omitempty"`
	// ExternalIP is the address of this cluster's external CIDR that stands for a
	// host outside.
	ExternalIP netip.Addr `json:"externalIP,omitzero"`
	// HidesPods says that the nodes hide the addresses of pods from the peers, as the
	// setting fullMasquerade tells them to.
	HidesPods bool `json:"hidesPods,omitempty"`
}

// Prober is one pod of the test.
type Prober struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Node      string     `json:"node"`
	IP        netip.Addr `json:"ip"`
}

// Node is one node.
type Node struct {
	Name         string     `json:"name"`
	InternalIP   netip.Addr `json:"internalIP,omitzero"`
	ExternalIP   netip.Addr `json:"externalIP,omitzero"`
	ControlPlane bool       `json:"controlPlane,omitempty"`
}

// Service is one whose endpoints are the probers of a peer.
type Service struct {
	Peer      string     `json:"peer"`
	ClusterIP netip.Addr `json:"clusterIP"`
	NodePort  uint16     `json:"nodePort,omitempty"`
	// Balancer is the address, or the name, that a load balancer has given it.
	Balancer string `json:"balancer,omitempty"`
}

// View is how one cluster addresses another.
type View struct {
	// ID is the other cluster's.
	ID string `json:"id"`
	// Configuration is what says so, as namespace/name.
	Configuration string          `json:"configuration"`
	Pod           []peering.Remap `json:"pod"`
	External      []peering.Remap `json:"external"`
}

// view returns how this cluster addresses another, nil if they are not peered.
func (i *Inventory) view(id string) *View {
	for n := range i.Views {
		if i.Views[n].ID == id {
			return &i.Views[n]
		}
	}
	return nil
}

func (i *Inventory) service(peer string) *Service {
	for n := range i.Services {
		if i.Services[n].Peer == peer {
			return &i.Services[n]
		}
	}
	return nil
}

// unknownSource is the source address by which this cluster sees everything in the other
// cluster that is not a pod: the first address of the external CIDR.
func (v *View) unknownSource() netip.Addr {
	if len(v.External) == 0 {
		return netip.Addr{}
	}
	return v.External[0].Here.Masked().Addr()
}

// viewOf reads a Configuration. It returns an error if the controllers have not set its
// status yet.
func viewOf(c *networkingv1beta1.Configuration) (View, error) {
	v := View{ID: c.Labels[networkingv1beta1.LabelRemoteClusterID], Configuration: c.Namespace + "/" + c.Name}
	if c.Status.Remote == nil {
		return v, fmt.Errorf("the status of Configuration %s has no CIDRs yet: check its conditions, and whether the controllers are running", v.Configuration)
	}
	spec, status := c.Spec.Remote.CIDR, c.Status.Remote.CIDR
	var err error
	if v.Pod, err = peering.Remaps(spec.Pod, status.Pod); err == nil {
		v.External, err = peering.Remaps(spec.External, status.External)
	}
	if err != nil {
		return v, fmt.Errorf("read Configuration %s: %w", v.Configuration, err)
	}
	return v, nil
}

// NodeSet says on which nodes a node port is tried.
type NodeSet string

// The sets of nodes.
const (
	AllNodes      NodeSet = "all"
	Workers       NodeSet = "workers"
	ControlPlanes NodeSet = "control-planes"
)

// NodeSets are all of them.
var NodeSets = []string{string(AllNodes), string(Workers), string(ControlPlanes)}

// of returns those of the nodes that belong to the set.
func (s NodeSet) of(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool {
		return s == Workers && n.ControlPlane || s == ControlPlanes && !n.ControlPlane
	})
}

// Address returns the address that a pod of another cluster has in this one, invalid if it
// has none.
func (i *Inventory) Address(cluster string, pod netip.Addr) netip.Addr {
	v := i.view(cluster)
	if v == nil {
		return netip.Addr{}
	}
	return peering.Translate(v.Pod, pod)
}
