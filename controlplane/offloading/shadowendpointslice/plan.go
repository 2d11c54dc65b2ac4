package shadowendpointslice

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/peeraddress"
)

const (
	// maxEndpoints, maxPorts and maxAddresses are what an API server takes in an EndpointSlice, the last per endpoint.
	maxEndpoints, maxPorts, maxAddresses = 1000, 100, 100
	// maxProblems is of how many endpoints is told.
	maxProblems = 5
)

// Facts are what a slice depends on beside what the consumer asks for.
type Facts struct {
	// Judge judges the addresses of the consumer.
	peeraddress.Judge
	// Away is why no endpoint is ready; empty: each is as the consumer says.
	Away string
}

// Build makes the EndpointSlice that a ShadowEndpointSlice asks for, of which owner has the metadata. Endpoints that are
// refused are left out, and problems says of the first few of them why. Without a slice nothing of it is allowed: err is why.
//
//	an address that is of none of the consumer's CIDRs     the endpoint is left out
//	one that would lead to something of this cluster       the endpoint is left out
//	a name, host name or target that is none               the endpoint is left out
//	ports, address type or Service that are none           no slice
//	the consumer is away                                   the slice, nothing in it ready
func Build(owner metav1.ObjectMeta, t *offloadingv1beta1.EndpointSliceTemplate, f Facts) (s *discoveryv1.EndpointSlice, problems []string, err error) {
	service := owner.Labels[discoveryv1.LabelServiceName]
	switch {
	case len(validation.IsDNS1123Label(service)) > 0:
		return nil, nil, fmt.Errorf("the label %s is %q, which is not the name of a Service", discoveryv1.LabelServiceName, text.Quoted(service))
	case t.AddressType != discoveryv1.AddressTypeIPv4 && t.AddressType != discoveryv1.AddressTypeIPv6:
		return nil, nil, fmt.Errorf("spec.template.addressType is %q: only IPv4 and IPv6 are allowed", text.Quoted(string(t.AddressType)))
	case len(t.Endpoints) > maxEndpoints:
		return nil, nil, fmt.Errorf("spec.template.endpoints has %d entries: %d are allowed", len(t.Endpoints), maxEndpoints)
	}
	ports, err := portsOf(t.Ports)
	if err != nil {
		return nil, nil, err
	}
	s = &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.Namespace, Name: owner.Name,
			Labels: map[string]string{
				networkingv1beta1.LabelManaged:   networkingv1beta1.LabelTrue,
				offloadingv1beta1.LabelManagedBy: offloadingv1beta1.ManagedByShadowEndpointSlice,
				offloadingv1beta1.LabelOrigin:    f.Cluster,
				discoveryv1.LabelServiceName:     service,
				discoveryv1.LabelManagedBy:       offloadingv1beta1.EndpointSliceManager,
			},
			OwnerReferences: apply.Controller(&owner, offloadingv1beta1.GroupVersion.WithKind("ShadowEndpointSlice")),
		},
		AddressType: t.AddressType, Ports: ports, Endpoints: []discoveryv1.Endpoint{},
	}
	if _, headless := owner.Labels[corev1.IsHeadlessService]; headless {
		s.Labels[corev1.IsHeadlessService] = "" // by which a cluster's DNS knows it
	}
	left := 0
	for i := range t.Endpoints {
		e, err := f.endpoint(&t.Endpoints[i], t.AddressType)
		if err == nil {
			s.Endpoints = append(s.Endpoints, e)
			continue
		}
		if left++; left <= maxProblems {
			problems = append(problems, fmt.Sprintf("spec.template.endpoints[%d]%v", i, err))
		}
	}
	if left > maxProblems {
		problems = append(problems, fmt.Sprintf("and %d more", left-maxProblems))
	}
	return s, problems, nil
}

// endpoint judges one endpoint. The path in an error goes on from that of the endpoint.
func (f *Facts) endpoint(in *discoveryv1.Endpoint, family discoveryv1.AddressType) (out discoveryv1.Endpoint, err error) {
	if n := len(in.Addresses); n == 0 || n > maxAddresses {
		return out, fmt.Errorf(".addresses has %d entries: 1 to %d are allowed", n, maxAddresses)
	}
	for i, there := range in.Addresses {
		a, err := f.Here(there, family)
		if err != nil {
			return out, fmt.Errorf(".addresses[%d]: %w", i, err)
		}
		out.Addresses = append(out.Addresses, a.String())
	}
	if h := in.Hostname; h != nil {
		if len(validation.IsDNS1123Label(*h)) > 0 {
			return out, fmt.Errorf(".hostname: %q is not a host name", text.Quoted(*h))
		}
		out.Hostname = new(*h)
	}
	if out.TargetRef, err = target(in.TargetRef); err != nil {
		return out, err
	}
	out.Conditions = *in.Conditions.DeepCopy()
	if f.Away != "" {
		out.Conditions.Ready, out.Conditions.Serving = new(false), new(false)
	}
	// Not what the consumer says: the name of a node here would say that the endpoint is on it.
	out.NodeName = new(f.Cluster)
	return out, nil
}

// target judges what an endpoint stands for. It is nothing of this cluster, so its kind is none of this cluster either.
func target(in *corev1.ObjectReference) (*corev1.ObjectReference, error) {
	if in == nil {
		return nil, nil
	}
	kind, remote := strings.CutPrefix(in.Kind, "Remote")
	switch {
	case !remote || len(in.Kind) > validation.DNS1123LabelMaxLength || len(validation.IsDNS1035Label(strings.ToLower(kind))) > 0:
		return nil, fmt.Errorf(".targetRef.kind: %q is not RemotePod or alike: the endpoint is nothing of this cluster", text.Quoted(in.Kind))
	case len(validation.IsDNS1123Label(in.Namespace)) > 0:
		return nil, fmt.Errorf(".targetRef.namespace: %q is not the name of a namespace", text.Quoted(in.Namespace))
	case len(validation.IsDNS1123Subdomain(in.Name)) > 0:
		return nil, fmt.Errorf(".targetRef.name: %q is not the name of an object", text.Quoted(in.Name))
	case len(validation.IsValidLabelValue(string(in.UID))) > 0:
		return nil, errors.New(".targetRef.uid is not a UID")
	}
	return &corev1.ObjectReference{Kind: in.Kind, Namespace: in.Namespace, Name: in.Name, UID: in.UID}, nil
}

// portsOf judges ports as an API server does, and sets its defaults: so a second look finds no difference.
func portsOf(in []discoveryv1.EndpointPort) (out []discoveryv1.EndpointPort, err error) {
	const path = "spec.template.ports"
	if len(in) > maxPorts {
		return nil, fmt.Errorf("%s has %d entries: %d are allowed", path, len(in), maxPorts)
	}
	names := map[string]bool{}
	for i := range in {
		var p discoveryv1.EndpointPort
		name := ""
		if n := in[i].Name; n != nil {
			name = *n
		}
		switch {
		case name != "" && len(validation.IsDNS1123Label(name)) > 0:
			return nil, fmt.Errorf("%s[%d].name: %q is not the name of a port", path, i, text.Quoted(name))
		case names[name]:
			return nil, fmt.Errorf("%s[%d].name: another port has the name %q too", path, i, name)
		case in[i].Port == nil || len(validation.IsValidPortNum(int(*in[i].Port))) > 0:
			return nil, fmt.Errorf("%s[%d].port must be between 1 and 65535", path, i)
		}
		names[name] = true
		protocol := corev1.ProtocolTCP
		if in[i].Protocol != nil {
			protocol = cmp.Or(*in[i].Protocol, protocol)
		}
		if protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP && protocol != corev1.ProtocolSCTP {
			return nil, fmt.Errorf("%s[%d].protocol: there is no protocol %q", path, i, text.Quoted(string(protocol)))
		}
		if a := in[i].AppProtocol; a != nil {
			if len(validation.IsQualifiedName(*a)) > 0 {
				return nil, fmt.Errorf("%s[%d].appProtocol: %q is not the name of a protocol", path, i, text.Quoted(*a))
			}
			p.AppProtocol = new(*a)
		}
		p.Name, p.Port, p.Protocol = &name, new(*in[i].Port), &protocol
		out = append(out, p)
	}
	return out, nil
}

// away says why nothing of a consumer is ready; empty: it may be. What a ForeignCluster does not say is taken for bad news
// of the network, without which nothing is reached, and for good news of an API server that this cluster does not use.
func away(c *corev1beta1.ForeignCluster) string {
	if c == nil {
		return "there is no ForeignCluster of it"
	}
	established := false
	for _, n := range c.Status.Modules.Networking.Conditions {
		established = established || n.Type == corev1beta1.ConditionNetworkConnection && n.Status == corev1beta1.StatusEstablished
	}
	if !established {
		return "the network of the peering is down"
	}
	for _, a := range c.Status.Conditions {
		if a.Type == corev1beta1.ConditionAPIServer && a.Status == corev1beta1.StatusError {
			return "its API server does not answer"
		}
	}
	return ""
}
