package access

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGrouped guards that rights to the same, at the same place, are one line.
func TestGrouped(t *testing.T) {
	var many []Permission
	for _, namespace := range []string{"", "liqo"} {
		for _, resource := range []string{"secrets", "services", "configmaps", "roles"} {
			for _, verb := range []string{"create", "patch", "delete"} {
				many = append(many, Permission{Verb: verb, Resource: resource, Namespace: namespace})
			}
		}
	}
	many = append(many, Permission{Verb: "list", Group: "apps", Resource: "deployments", Subresource: "status"})
	want := `  create, patch, delete everywhere: secrets, services, configmaps, roles
  create, patch, delete in namespace liqo: secrets, services, configmaps, roles
  list everywhere: deployments.apps/status`
	if diff := cmp.Diff(want, grouped(many)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
