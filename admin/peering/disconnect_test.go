package peering

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-net/sluice/admin/access"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
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

// TestKeptBecause: what other commands delete is told with them.
func TestKeptBecause(t *testing.T) {
	user := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "liqo-peer-user-rome-1", Labels: map[string]string{"liqo.io/peering-user-name": "liqo-peer-user-rome-1"}}}
	c := &access.Cluster{Client: fake.NewClientBuilder().WithScheme(kinds.Scheme()).WithObjects(user).Build()}
	e := alone(c, "rome", &Options{})[0]
	others, err := e.othersOf(t.Context(), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), "tenant")
	if err != nil {
		t.Fatal(err)
	}
	const why = "Namespace tenant is kept, because it contains objects that do not belong to the peering: "
	for _, tt := range []struct {
		others []string
		want   string
	}{
		{[]string{"ConfigMap mine"}, "ConfigMap mine"},
		{[]string{"Tenant rome"}, "Tenant rome; 'liqoctl unpeer' removes identities, tenants and resources"},
		{others, "RoleBinding liqo-peer-user-rome-1 of a peering user; 'liqoctl delete peering-user --consumer-cluster-id rome' removes peering users"},
	} {
		if got := e.keptBecause("tenant", tt.others); got != why+tt.want {
			t.Errorf("got  %s\nwant %s", got, why+tt.want)
		}
	}
}
