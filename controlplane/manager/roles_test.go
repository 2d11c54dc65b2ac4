package manager_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/controlplane/manager"
	"github.com/sluice-net/sluice/deploy"
)

// TestRoles guards what the generated roles must not hold, whatever a marker
// says: a right to everything, and a right to give oneself more.
func TestRoles(t *testing.T) {
	b, err := fs.ReadFile(deploy.Manifests(), "role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, doc := range strings.Split(string(b), "\n---\n") {
		var role rbacv1.Role // a ClusterRole looks alike
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		found[role.Kind+" "+role.Namespace+"/"+role.Name] = true
		for _, r := range role.Rules {
			for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs} {
				if slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
					t.Errorf("%s: everything: %v", role.Kind, r)
				}
			}
			for _, verb := range []string{"escalate", "impersonate", "deletecollection", "approve", "sign"} {
				if slices.Contains(r.Verbs, verb) {
					t.Errorf("%s: %s: %v", role.Kind, verb, r)
				}
			}
			if slices.Contains(r.Verbs, "bind") && !slices.Equal(r.ResourceNames, []string{"liqo-gateway"}) {
				t.Errorf("%s: bind of other roles than the gateway's: %v", role.Kind, r)
			}
			// It makes these, and others' are none of its business.
			if slices.Contains(r.Resources, "clusterroles") && !slices.Equal(r.Verbs, []string{"bind"}) {
				t.Errorf("%s: %v", role.Kind, r)
			}
		}
	}
	for _, want := range []string{"ClusterRole /" + manager.Lease, "Role liqo/" + manager.Lease} {
		if !found[want] {
			t.Errorf("no %s; there are %v", want, found)
		}
	}
}
