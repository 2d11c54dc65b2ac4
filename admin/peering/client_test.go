package peering

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestChangedClient(t *testing.T) {
	server := &networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8", "fd00::8"}, Port: 32009}
	same := networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8", "fd00::8"}, Port: 32009, Protocol: "UDP"}
	other := networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.7"}, Port: 51840, Protocol: "UDP"}
	ref := ClientTemplate("", "liqo")
	with := func(e networkingv1beta1.Endpoint, ports ...int32) networkingv1beta1.Endpoint {
		e.SetPorts(ports)
		return e
	}
	several := with(same, 32009, 32010)
	for _, tt := range []struct {
		name     string
		have     networkingv1beta1.Endpoint
		server   []int32 // its ports; nil: the one above
		flags    ClientFlags
		works    bool
		want     networkingv1beta1.Endpoint
		wantKept bool
	}{
		{name: "as the server tells", have: same, want: same},
		{name: "as the server tells, connected", have: same, works: true, want: same},
		{name: "the server moved", have: other, want: same},
		{name: "somebody chose another address, and it is right", have: other, works: true, want: other, wantKept: true},
		{name: "flags say another", have: same, flags: ClientFlags{Address: "203.0.113.7", Ports: []int32{51840}}, works: true, want: other},
		{name: "flags say the same as it is", have: other, flags: ClientFlags{Address: "203.0.113.7", Ports: []int32{51840}}, want: other},
		{name: "flags say another port only", have: same, flags: ClientFlags{Ports: []int32{51840}}, want: networkingv1beta1.Endpoint{Addresses: same.Addresses, Port: 51840, Protocol: "UDP"}},
		{name: "the server has fewer tunnels", have: several, works: true, want: same},
		{name: "the server has more tunnels", have: same, server: []int32{32009, 32010}, works: true, want: several},
		{name: "the server has more tunnels, and the tunnel learnt its address", have: with(other, 32009), server: []int32{32009, 32010}, works: true,
			want: with(other, 32009, 32010), wantKept: true},
		{name: "the server has other tunnels, and somebody chose", have: other, server: []int32{32009, 32010}, works: true, want: other, wantKept: true},
		{name: "as many as the server", have: several, server: []int32{32009, 32010}, want: several},
		{name: "flags say several", have: same, flags: ClientFlags{Ports: []int32{1, 2}}, works: true, want: with(same, 1, 2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := networkingv1beta1.GatewayClientSpec{MTU: 1300, ClientTemplateRef: ref, Endpoint: tt.have}
			o, server := Options{Client: tt.flags}, *server
			if tt.server != nil {
				server.SetPorts(tt.server)
			}
			kept := o.changedClient(&spec, ref, &server, tt.works && !tt.flags.given())
			want := networkingv1beta1.GatewayClientSpec{MTU: 1300, ClientTemplateRef: ref, Endpoint: tt.want}
			if diff := cmp.Diff(want, spec); diff != "" || kept != tt.wantKept {
				t.Errorf("kept %v, want %v; (-want +got):\n%s", kept, tt.wantKept, diff)
			}
		})
	}
}

// What was said once is said again by later commands without flags.
func TestChosenEndpoint(t *testing.T) {
	for _, tt := range []struct {
		first, then, want ClientFlags
	}{
		{ClientFlags{}, ClientFlags{}, ClientFlags{}},
		{ClientFlags{Address: "203.0.113.7"}, ClientFlags{}, ClientFlags{Address: "203.0.113.7"}},
		{ClientFlags{Ports: []int32{51840}}, ClientFlags{}, ClientFlags{Ports: []int32{51840}}},
		{ClientFlags{Address: "2001:db8::7", Ports: []int32{51840}}, ClientFlags{}, ClientFlags{Address: "2001:db8::7", Ports: []int32{51840}}},
		{ClientFlags{Address: "2001:db8::7", Ports: []int32{51840, 51841}}, ClientFlags{}, ClientFlags{Address: "2001:db8::7", Ports: []int32{51840, 51841}}},
		{ClientFlags{Address: "gw.example.org"}, ClientFlags{Ports: []int32{51841}}, ClientFlags{Ports: []int32{51841}}},
	} {
		var o networkingv1beta1.GatewayClient
		tt.first.remember(&o)
		if got := tt.then.orChosen(&o); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v, then %+v: %+v, want %+v", tt.first, tt.then, got, tt.want)
		}
	}
}
