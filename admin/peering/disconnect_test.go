package peering

import (
	"testing"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

func TestDetectRoles(t *testing.T) {
	server, client := []*gateway{serverIn("n", "s", 0)}, []*gateway{clientGateway(new(networkingv1beta1.GatewayClient))}
	for _, tt := range []struct {
		name          string
		local, remote found
		want          networkingv1beta1.ConnectionType // of the local one
	}{
		{"nothing", found{}, found{}, "Client"},
		{"as connect makes them", found{clients: client}, found{servers: server}, "Client"},
		{"the other way", found{servers: server}, found{clients: client}, "Server"},
		{"only the local one is left", found{servers: server}, found{}, "Server"},
		{"only the remote one is left", found{}, found{clients: client}, "Server"},
		{"only the remote server is left", found{}, found{servers: server}, "Client"},
		{"clients on both sides", found{clients: client}, found{clients: client}, "Client"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(here, there, new(Options))
			p[0].found, p[1].found = tt.local, tt.remote
			p.detectRoles()
			if p[0].role != tt.want || p[1].role != otherRole(tt.want) {
				t.Errorf("local is %s, remote %s; want local %s", p[0].role, p[1].role, tt.want)
			}
		})
	}
}
