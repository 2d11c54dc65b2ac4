package peering

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestChangedClient(t *testing.T) {
	server := &networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8", "fd00::8"}, Port: 32009}
	same := networkingv1beta1.Endpoint{Addresses: []string{"172.19.0.8", "fd00::8"}, Port: 32009, Protocol: "UDP"}
	other := networkingv1beta1.Endpoint{Addresses: []string{"203.0.113.7"}, Port: 51840, Protocol: "UDP"}
	ref := ClientTemplate("", "liqo")
	for _, tt := range []struct {
		name     string
		have     networkingv1beta1.Endpoint
		flags    ClientFlags
		works    bool
		want     networkingv1beta1.Endpoint
		wantKept bool
	}{
		{name: "as the server tells", have: same, want: same},
		{name: "as the server tells, connected", have: same, works: true, want: same},
		{name: "the server moved", have: other, want: same},
		{name: "somebody chose another address, and it is right", have: other, works: true, want: other, wantKept: true},
		{name: "flags say another", have: same, flags: ClientFlags{Address: "203.0.113.7", Port: 51840}, works: true, want: other},
		{name: "flags say the same as it is", have: other, flags: ClientFlags{Address: "203.0.113.7", Port: 51840}, want: other},
		{name: "flags say another port only", have: same, flags: ClientFlags{Port: 51840}, want: networkingv1beta1.Endpoint{Addresses: same.Addresses, Port: 51840, Protocol: "UDP"}},
		{name: "one of several ports", have: networkingv1beta1.Endpoint{Addresses: same.Addresses, Ports: []int32{32009, 32010}}, want: networkingv1beta1.Endpoint{Addresses: same.Addresses, Ports: []int32{32009, 32010}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := networkingv1beta1.GatewayClientSpec{MTU: 1300, ClientTemplateRef: ref, Endpoint: tt.have}
			o := Options{Client: tt.flags}
			kept := o.changedClient(&spec, ref, server, tt.works && !tt.flags.given())
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
		{ClientFlags{Port: 51840}, ClientFlags{}, ClientFlags{Port: 51840}},
		{ClientFlags{Address: "2001:db8::7", Port: 51840}, ClientFlags{}, ClientFlags{Address: "2001:db8::7", Port: 51840}},
		{ClientFlags{Address: "gw.example.org"}, ClientFlags{Port: 51841}, ClientFlags{Port: 51841}},
	} {
		var o networkingv1beta1.GatewayClient
		tt.first.remember(&o)
		if got := tt.then.orChosen(&o); got != tt.want {
			t.Errorf("%+v, then %+v: %+v, want %+v", tt.first, tt.then, got, tt.want)
		}
	}
}
