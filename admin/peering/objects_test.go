package peering_test

import (
	_ "embed"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/test/golden"
)

//go:embed testdata/objects.yaml
var objects string

// TestObjects compares what is made of nothing but what is required, and of
// everything, with testdata/objects.yaml.
func TestObjects(t *testing.T) {
	m := peering.Metadata{Namespace: "liqo-tenant-milan", RemoteClusterID: "milan"}
	all := m
	all.Name = "mine"
	all.Labels = map[string]string{"team": "net", networkingv1beta1.LabelRemoteClusterID: "not-theirs"}
	all.Annotations = map[string]string{"ticket": "42"}
	cidrs := func(s ...networkingv1beta1.CIDR) networkingv1beta1.CIDRs {
		return networkingv1beta1.CIDRs{List: s, Scalar: len(s) == 1}
	}
	network := networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: cidrs("10.243.0.0/16", "fd00::/48"), External: cidrs("10.70.0.0/16")}}
	key := make([]byte, 32)
	var text strings.Builder
	for _, o := range []client.Object{
		peering.NewTenantNamespace(m, false),
		peering.NewConfiguration(m, network),
		peering.NewGatewayServer(m, peering.ServerOptions{LiqoNamespace: "liqo"}),
		peering.NewGatewayServer(all, peering.ServerOptions{
			Template: peering.ServerTemplate("fast", "templates"), MTU: 1400, ServiceType: corev1.ServiceTypeNodePort, Ports: []int32{51820}, NodePorts: []int32{30742},
		}),
		peering.NewGatewayClient(m, peering.ClientOptions{LiqoNamespace: "liqo", Addresses: []string{"172.19.0.8"}, Ports: []int32{32009}}),
		peering.NewGatewayClient(all, peering.ClientOptions{Template: peering.ClientTemplate("fast", ""), MTU: 1400, Addresses: []string{"milan.example.com"}, Ports: []int32{51820}}),
		peering.NewPublicKey(m, key),
	} {
		b, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n")
		text.Write(b)
	}
	golden.CompareEmbedded(t, "testdata/objects.yaml", objects, text.String())
}

func TestNamesOfLongIDs(t *testing.T) {
	for _, length := range []int{1, 50, 51, 52, 59, 60, 61, 63} {
		id := strings.Repeat("a", length-1) + "z"
		gateway, namespace := peering.GatewayName(id), peering.TenantNamespaceName(id)
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			t.Errorf("ID of %d characters: namespace %q: %v", length, namespace, wrong)
		}
		if wrong := validation.IsDNS1123Label("gw-" + gateway); len(wrong) > 0 {
			t.Errorf("ID of %d characters: gateway %q: %v", length, gateway, wrong)
		}
		if short := length <= 60; short != (gateway == id) {
			t.Errorf("ID of %d characters: gateway %q", length, gateway)
		}
		if other := peering.GatewayName(id[:length-1] + "y"); other == gateway {
			t.Errorf("two IDs of %d characters have gateways of one name, %q", length, gateway)
		}
	}
}
