package access

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPermissions(t *testing.T) {
	want := []Permission{
		{Verb: "get", Group: "apps", Resource: "deployments", Namespace: "liqo"},
		{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "liqo"},
	}
	if diff := cmp.Diff(want, Permissions("apps", "deployments", "liqo", "get", "patch")); diff != "" {
		t.Error(diff)
	}
}

// TestGrouped guards that rights to the same, at the same place, are one line.
func TestGrouped(t *testing.T) {
	var many []Permission
	for _, namespace := range []string{"", "liqo"} {
		for _, resource := range []string{"secrets", "services", "configmaps", "roles"} {
			many = append(many, Permissions("", resource, namespace, "create", "patch", "delete")...)
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
