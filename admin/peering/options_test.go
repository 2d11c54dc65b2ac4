package peering

import (
	"iter"
	"slices"
	"testing"
)

// ports are so many of them.
func ports(n int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for p := range n {
			if !yield(p + 1) {
				return
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    string
	}{
		{"nothing", Options{}, ""},
		{"all", Options{MTU: 1340, Server: ServerFlags{ServiceType: "LoadBalancer", Ports: []int32{51840}, NodePorts: []int32{30742}, LoadBalancerIP: "fd00::1"}, Client: ClientFlags{Address: "gw.milan.example.com", Ports: []int32{1}}}, ""},
		{"a small MTU", Options{MTU: 575}, "--mtu 575: must be from 576 to 65455"},
		{"an unknown type", Options{Server: ServerFlags{ServiceType: "ExternalName"}}, `--gw-server-service-type "ExternalName": must be LoadBalancer, NodePort or ClusterIP`},
		{"ports", Options{Server: ServerFlags{Ports: []int32{65536}}, Client: ClientFlags{Ports: []int32{-1}}}, "--gw-server-service-port 65536: must be from 1 to 65535\n--gw-client-port -1: must be from 1 to 65535"},
		{"several ports", Options{Server: ServerFlags{Ports: []int32{1, 2}, NodePorts: []int32{30001, 30002}}, Client: ClientFlags{Ports: []int32{3, 4}}}, ""},
		{"a port twice", Options{Client: ClientFlags{Ports: []int32{1, 2, 1}}}, "--gw-client-port 1,2,1: 1 is there twice, and each port is a tunnel of its own"},
		{"too many ports", Options{Client: ClientFlags{Ports: slices.Collect(ports(65))}}, "--gw-client-port: there can be 64 tunnels, and these are 65 ports"},
		{"more node ports than ports", Options{Server: ServerFlags{NodePorts: []int32{30001, 30002}}},
			"--gw-server-service-nodeport 30001,30002: each tunnel has a port and a node port; name 2 ports with --gw-server-service-port, too"},
		{"another number of ports to dial", Options{Server: ServerFlags{Ports: []int32{1, 2}}, Client: ClientFlags{Ports: []int32{3}}},
			"--gw-server-service-port 1,2, --gw-client-port 3: each tunnel has one of both; name the same number"},
		{"a node port of a ClusterIP", Options{Server: ServerFlags{ServiceType: "ClusterIP", NodePorts: []int32{30742}}}, "--gw-server-service-nodeport 30742: a Service of type ClusterIP has no node port; use --gw-server-service-type NodePort"},
		{"a load balancer's name", Options{Server: ServerFlags{LoadBalancerIP: "lb"}}, `--gw-server-service-loadbalancerip "lb": must be an IP address`},
		{"an address with a port", Options{Client: ClientFlags{Address: "192.0.2.1:51840"}}, `--gw-client-address "192.0.2.1:51840": must be an IP address or a DNS name, without a port (that is --gw-client-port)`},
		{"a mistyped address", Options{Client: ClientFlags{Address: "192.0.2.300"}}, `--gw-client-address "192.0.2.300": must be an IP address or a DNS name, without a port (that is --gw-client-port)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := errText(tt.options.Validate()); got != tt.want {
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
