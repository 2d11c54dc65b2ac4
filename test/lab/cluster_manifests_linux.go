package lab

import "net/netip"

// Manifests returns what the cluster's gateway is configured from. Cluster a
// is the server.
func (c *Cluster) Manifests() *Manifests {
	m := &Manifests{
		Server:           c.Name == "a",
		ClusterID:        "cluster-" + c.Name,
		PeerID:           "cluster-" + c.Peer.Name,
		PrivateKey:       c.Keys.Private(),
		PeerKey:          c.Peer.Keys.Public(),
		Port:             WireGuardPort,
		MTU:              c.MTU,
		Gateway:          c.Underlay,
		Internal:         c.Internal,
		Pods:             []netip.Prefix{netip.MustParsePrefix(PodCIDR), netip.MustParsePrefix(PodCIDR6)},
		External:         []netip.Prefix{netip.MustParsePrefix(ExternalCIDR), netip.MustParsePrefix(ExternalCIDR6)},
		RemappedPods:     []netip.Prefix{c.RemotePod, c.RemotePod6},
		RemappedExternal: []netip.Prefix{c.RemoteExternal, c.RemoteExternal6},
	}
	if !m.Server {
		m.Endpoint = c.Peer.WAN.String()
	}
	for _, n := range c.Nodes {
		m.Nodes = append(m.Nodes, NodeManifest{
			Name:     n.Name,
			Underlay: n.Underlay,
			Internal: n.Internal,
			VNI:      n.VNI,
			Pods: []netip.Prefix{
				netip.PrefixFrom(n.PodAddr, n.PodAddr.BitLen()),
				netip.PrefixFrom(n.PodAddr6, n.PodAddr6.BitLen()),
			},
		})
	}
	return m
}
