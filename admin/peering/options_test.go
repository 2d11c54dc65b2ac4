package peering

import (
	"testing"
)

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    string
	}{
		{"nothing", Options{}, ""},
		{"all", Options{MTU: 1340, Server: ServerFlags{ServiceType: "LoadBalancer", Port: 51840, NodePort: 30742, LoadBalancerIP: "fd00::1"}, Client: ClientFlags{Address: "gw.milan.example.com", Port: 1}}, ""},
		{"a small MTU", Options{MTU: 575}, "--mtu 575: must be from 576 to 65455"},
		{"an unknown type", Options{Server: ServerFlags{ServiceType: "ExternalName"}}, `--gw-server-service-type "ExternalName": must be LoadBalancer, NodePort or ClusterIP`},
		{"ports", Options{Server: ServerFlags{Port: 65536}, Client: ClientFlags{Port: -1}}, "--gw-server-service-port 65536: must be from 1 to 65535\n--gw-client-port -1: must be from 1 to 65535"},
		{"a node port of a ClusterIP", Options{Server: ServerFlags{ServiceType: "ClusterIP", NodePort: 30742}}, "--gw-server-service-nodeport 30742: a Service of type ClusterIP has no node port; use --gw-server-service-type NodePort"},
		{"a load balancer's name", Options{Server: ServerFlags{LoadBalancerIP: "lb"}}, `--gw-server-service-loadbalancerip "lb": must be an IP address`},
		{"an address with a port", Options{Client: ClientFlags{Address: "192.0.2.1:51840"}}, `--gw-client-address "192.0.2.1:51840": must be an IP address or a DNS name, without a port (that is --gw-client-port)`},
		{"a mistyped address", Options{Client: ClientFlags{Address: "192.0.2.300"}}, `--gw-client-address "192.0.2.300": must be an IP address or a DNS name, without a port (that is --gw-client-port)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(tt.options.Validate()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseTemplateType(t *testing.T) {
	gvr, err := parseTemplateType("networking.liqo.io/v1beta1/WgGatewayServerTemplates")
	if err != nil || gvr.Resource != "wggatewayservertemplates" || gvr.Group != "networking.liqo.io" || gvr.Version != "v1beta1" {
		t.Errorf("got %v, %v", gvr, err)
	}
	for _, s := range []string{"", "wggatewayservertemplates", "a/b", "a//b", "a/b/c/d"} {
		if _, err := parseTemplateType(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}
