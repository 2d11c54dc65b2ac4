package peering_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/admin/peering"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

// testTunnels changes the number of tunnels of a living peering: both gateways stay, and so does where the first is.
func testTunnels(t *testing.T, local, remote *side) {
	read := func() (s networkingv1beta1.GatewayServer, c networkingv1beta1.GatewayClient) {
		t.Helper()
		remote.Read(t, "liqo-tenant-rome", "rome", &s)
		local.Read(t, "liqo-tenant-milan", "milan", &c)
		return s, c
	}
	before, client := read()
	first := before.Status.Endpoint.AllPorts()[0]
	for _, ports := range [][]int32{{51840, 51841}, {51840, 51842, 51841}, {51840}} {
		o := options()
		o.Server.Ports = ports
		was, _ := read()
		var lines told
		if err := peering.Connect(t.Context(), local.access, remote.access, o, lines.tell); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(lines.lines, "\n"); strings.Contains(text, "Deleted existing") || !strings.Contains(text, "(local) Connection is established") {
			t.Errorf("%v: the user reads:\n%s", ports, text)
		}
		s, c := read()
		at := s.Status.Endpoint.AllPorts()
		if s.UID != before.UID || c.UID != client.UID || !slices.Equal(s.Spec.Endpoint.AllPorts(), ports) {
			t.Errorf("%v: another gateway, or of other ports: %+v", ports, s.Spec.Endpoint)
		}
		if len(at) != len(ports) || at[0] != first || !slices.Equal(c.Spec.Endpoint.AllPorts(), at) {
			t.Errorf("%v: the server is at %v, the client dials %v; the first was %d", ports, at, c.Spec.Endpoint.AllPorts(), first)
		}
		for i, p := range was.Spec.Endpoint.AllPorts() {
			if k := slices.Index(ports, p); k >= 0 && at[k] != was.Status.Endpoint.AllPorts()[i] {
				t.Errorf("%v: port %d was at %v, and is at %v", ports, p, was.Status.Endpoint, at)
			}
		}
	}
}
