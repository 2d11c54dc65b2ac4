// Package peeraddress judges addresses that a peer names: of pods of its own, to which something of this cluster shall lead.
//
// What leads to an address leads there past the rules that keep the peer away from a place (CVE-2021-25740). So an address
// passes only if it is in the CIDRs of the peer, as the Configuration of the peering has them, and what it is translated to
// belongs to nobody here.
package peeraddress

import (
	"context"
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/api/text"
	"github.com/sluice-net/sluice/controlplane/cidr"
	"github.com/sluice-net/sluice/controlplane/reserved"
	"github.com/sluice-net/sluice/reflection"
)

// Judge is what addresses of one peer are judged by. The zero value accepts none.
type Judge struct {
	// Cluster is the ID of the peer.
	Cluster string
	// Addresses translates addresses of the peer. The zero value, without a network, knows none. Its Pods are for what
	// may lead to pods only.
	Addresses reflection.Addresses
	// Networks are the prefixes of this cluster, and Taken addresses that nothing may lead to; the values say whose they are.
	Networks map[netip.Prefix]string
	Taken    map[netip.Addr]string
}

// Gather reads what addresses of a peer are judged by. The Configuration is in the tenant namespace of the peering. Nodes and
// Networks are read through c, the API servers through live, past every cache. Unknown says why none of the peer's addresses
// is known; empty: they are.
func Gather(ctx context.Context, c, live client.Reader, liqoNamespace, tenant, cluster string) (j Judge, unknown string, err error) {
	j = Judge{Cluster: cluster, Networks: map[netip.Prefix]string{}}
	var configurations networkingv1beta1.ConfigurationList
	ofPeer := client.MatchingLabels{networkingv1beta1.LabelRemoteClusterID: cluster}
	if err := c.List(ctx, &configurations, client.UnsafeDisableDeepCopy, client.InNamespace(tenant), ofPeer); err != nil {
		return j, "", fmt.Errorf("list Configurations: %w", err)
	}
	if j.Addresses, err = reflection.OldestAddresses(configurations.Items); err != nil {
		unknown = fmt.Sprintf("the addresses of cluster %s are not known here: %v", cluster, err)
	}
	var networks ipamv1alpha1.NetworkList
	if err := c.List(ctx, &networks, client.UnsafeDisableDeepCopy, client.InNamespace(liqoNamespace)); err != nil {
		return j, "", fmt.Errorf("list Networks: %w", err)
	}
	for i := range networks.Items {
		n := &networks.Items[i]
		if p, err := n.Status.CIDR.Prefix(); err == nil {
			j.Networks[p.Masked()] = "Network " + n.Name + " of this cluster"
		}
	}
	if j.Taken, err = reserved.Addresses(ctx, c, live); err != nil {
		return j, "", err
	}
	return j, unknown, nil
}

// Here returns the address by which this cluster reaches what the peer names, or why nothing may lead there.
func (j *Judge) Here(asked string, family discoveryv1.AddressType) (netip.Addr, error) {
	there, err := netip.ParseAddr(asked)
	if err != nil || there.Zone() != "" {
		return there, fmt.Errorf("%q is not an address", text.Quoted(asked))
	}
	if there.Is4() != (family == discoveryv1.AddressTypeIPv4) || there.Is4In6() {
		return there, fmt.Errorf("%s is not of type %s", there, text.Quoted(string(family)))
	}
	here, ok := j.Addresses.Here(there)
	if !ok {
		return there, fmt.Errorf("%s is in no CIDR of cluster %s that this cluster knows", there, j.Cluster)
	}
	if err := cidr.Routable(netip.PrefixFrom(here, here.BitLen())); err != nil {
		return there, fmt.Errorf("%s: %w", there, err)
	}
	if who, taken := j.Taken[here]; taken {
		return there, fmt.Errorf("%s leads to %s here, an address of %s", there, here, who)
	}
	for p, who := range j.Networks {
		if p.Contains(here) {
			return there, fmt.Errorf("%s leads to %s here, which is in %s, %s", there, here, p, who)
		}
	}
	return here, nil
}
