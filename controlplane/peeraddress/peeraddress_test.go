package peeraddress_test

import (
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/peeraddress"
	"github.com/sluice-net/sluice/reflection"
)

// milan has the pod CIDRs of this cluster, which knows the first by another one, and an external CIDR.
func milan(t *testing.T) peeraddress.Judge {
	t.Helper()
	var c networkingv1beta1.Configuration
	c.Spec.Remote.CIDR.Pod.List = []networkingv1beta1.CIDR{"10.243.0.0/16", "fd00:243::/48", "169.254.0.0/16"}
	c.Spec.Remote.CIDR.External.List = []networkingv1beta1.CIDR{"10.80.0.0/16"}
	c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: c.Spec.Remote.CIDR}
	c.Status.Remote.CIDR.Pod.List = []networkingv1beta1.CIDR{"10.71.0.0/16", "fd00:243::/48", "169.254.0.0/16"}
	a, err := reflection.NewAddresses(&c)
	if err != nil {
		t.Fatal(err)
	}
	return peeraddress.Judge{
		Cluster: "milan", Addresses: a,
		Networks: map[netip.Prefix]string{netip.MustParsePrefix("10.71.200.0/24"): "Network service-cidr of this cluster"},
		Taken:    map[netip.Addr]string{netip.MustParseAddr("10.71.9.9"): "Node worker"},
	}
}

func TestHere(t *testing.T) {
	all := milan(t)
	pods := all
	pods.Addresses = all.Addresses.Pods()
	for name, c := range map[string]struct {
		judge   peeraddress.Judge
		family  discoveryv1.AddressType
		address string
		here    string
		refused string
	}{
		"a pod":                      {all, "IPv4", "10.243.1.2", "10.71.1.2", ""},
		"a pod of IPv6":              {all, "IPv6", "fd00:243::7", "fd00:243::7", ""},
		"an external address":        {all, "IPv4", "10.80.0.7", "10.80.0.7", ""},
		"that one, of pods only":     {pods, "IPv4", "10.80.0.7", "", "10.80.0.7 is in no CIDR of cluster milan"},
		"a pod, of pods only":        {pods, "IPv4", "10.243.1.2", "10.71.1.2", ""},
		"somebody else's":            {all, "IPv4", "192.0.2.1", "", "192.0.2.1 is in no CIDR of cluster milan"},
		"loopback":                   {all, "IPv4", "127.0.0.1", "", "127.0.0.1 is in no CIDR of cluster milan"},
		"link-local in its own CIDR": {all, "IPv4", "169.254.169.254", "", "169.254.169.254: "},
		"a node of this cluster":     {all, "IPv4", "10.243.9.9", "", "10.243.9.9 leads to 10.71.9.9 here, an address of Node worker"},
		"a Service of this cluster":  {all, "IPv4", "10.243.200.1", "", "which is in 10.71.200.0/24, Network service-cidr"},
		"the other family":           {all, "IPv4", "fd00:243::7", "", "fd00:243::7 is not of type IPv4"},
		"IPv4 in IPv6":               {all, "IPv6", "::ffff:10.243.1.2", "", "is not of type IPv6"},
		"a zone":                     {all, "IPv6", "fe80::1%eth0", "", "is not an address"},
		"no address":                 {all, "IPv4", strings.Repeat("x", 200), "", `x..." is not an address`},
		"without a network":          {peeraddress.Judge{Cluster: "milan"}, "IPv4", "10.243.1.2", "", "is in no CIDR of cluster milan"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.judge.Here(c.address, c.family)
			switch {
			case c.refused == "" && (err != nil || got.String() != c.here):
				t.Errorf("%v, %v, want %s", got, err, c.here)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("%v, %v, want %s", got, err, c.refused)
			}
		})
	}
}
