package peering

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// TestInBand: where the consumer finds the proxy of the provider at its end of the tunnel.
func TestInBand(t *testing.T) {
	ip := func(address string) *ipamv1alpha1.IP {
		return &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "api-server-proxy"}, Status: ipamv1alpha1.IPStatus{IP: ipamv1alpha1.Address(address)}}
	}
	configuration := func(of, there, here string) *networkingv1beta1.Configuration {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: of, Labels: map[string]string{"liqo.io/remote-cluster-id": of}}}
		c.Spec.Remote.CIDR.External = networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(there)}}
		if here != "" {
			c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{External: networkingv1beta1.CIDRs{List: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(here)}}}}
		}
		return c
	}
	for _, tt := range []struct {
		name          string
		provider      []client.Object
		consumer      []client.Object
		want, missing string
		wrong         string
	}{
		{"no proxy", nil, nil, "", "", "there is no IP liqo/api-server-proxy"},
		{"no address yet", []client.Object{ip("")}, nil, "", "IP liqo/api-server-proxy has no address yet", ""},
		{"no network", []client.Object{ip("10.70.0.1")}, []client.Object{configuration("naples", "10.70.0.0/16", "10.70.0.0/16")}, "", "cluster rome has no CIDRs for cluster milan", ""},
		{"a network that is being set up", []client.Object{ip("10.70.0.1")}, []client.Object{configuration("milan", "10.70.0.0/16", "")}, "", "cluster rome has no CIDRs for cluster milan", ""},
		{"the same CIDR", []client.Object{ip("10.70.0.1")}, []client.Object{configuration("milan", "10.70.0.0/16", "10.70.0.0/16")}, "http://10.70.0.1:8118", "", ""},
		{"another CIDR", []client.Object{ip("10.70.3.1")}, []client.Object{configuration("milan", "10.70.0.0/16", "10.71.0.0/16")}, "http://10.71.3.1:8118", "", ""},
		{"IPv6", []client.Object{ip("fd00:70::1")}, []client.Object{configuration("milan", "fd00:70::/64", "fd00:71::/64")}, "http://[fd00:71::1]:8118", "", ""},
		{"an address elsewhere", []client.Object{ip("10.99.0.1")}, []client.Object{configuration("milan", "10.70.0.0/16", "10.71.0.0/16")}, "", "", "which is not in the external CIDR that cluster rome knows"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := func(of []client.Object) *access.Cluster {
				return &access.Cluster{Options: access.Options{LiqoNamespace: "liqo"}, Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(of...).Build()}
			}
			p := newPair(cluster(tt.consumer), cluster(tt.provider), &Options{})
			p[0].id, p[1].id = "rome", "milan"
			h := &handshake{consumer: p[0], provider: p[1]}
			missing, err := h.inBand().try(t.Context())
			got := ""
			if h.proxyURL != nil {
				got = *h.proxyURL
			}
			if got != tt.want || !strings.HasPrefix(missing, tt.missing) || (missing == "") != (tt.missing == "") || !strings.Contains(errText(err), tt.wrong) || (err == nil) != (tt.wrong == "") {
				t.Errorf("%q, missing %q, %v", got, missing, err)
			}
		})
	}
}
