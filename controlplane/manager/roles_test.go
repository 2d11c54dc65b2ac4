package manager_test

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/deploy"
)

// TestRoles guards what the generated roles must not hold, whatever a marker
// says: a right to everything, and a right to give oneself more. What they let the
// controller write, bind and approve is what docs/operations.md says.
func TestRoles(t *testing.T) {
	found := map[string]bool{}
	for file, want := range map[string]map[string]string{
		"role.yaml": {
			// Kinds that are not of this project.
			"write": "clusterrolebindings configmaps deployments endpointslices events leases networkpolicies poddisruptionbudgets pods " +
				"rolebindings roles secrets serviceaccounts servicemonitors services",
			"bind": "liqo-gateway sluice-gateway",
		},
		"authentication/authentication.yaml": {
			"write":   "certificatesigningrequests certificatesigningrequests/approval events resourcequotas rolebindings secrets",
			"bind":    "liqo-remote-controlplane",
			"approve": "kubernetes.io/kube-apiserver-client",
		},
		"offloading/offloading.yaml": {
			"write": "certificatesigningrequests certificatesigningrequests/approval clusterrolebindings deployments endpointslices events namespaces " +
				"nodes pods pods/eviction pods/resize resourcequotas rolebindings roles serviceaccounts",
			"bind":    "liqo-virtual-kubelet-local liqo-virtual-kubelet-offloaded liqo-virtual-kubelet-remote",
			"approve": "kubernetes.io/kubelet-serving",
		},
		"services/services.yaml": {"write": "endpointslices namespaces serviceexports/status serviceimports serviceimports/status services"},
	} {
		may := map[string]map[string]bool{"write": {}, "bind": {}, "approve": {}}
		for _, role := range rolesOf(t, file) {
			found[role.Kind+" "+role.Namespace+"/"+role.Name] = true
			for _, r := range role.Rules {
				for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs} {
					if slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
						t.Errorf("%s: everything: %v", role.Name, r)
					}
				}
				for _, verb := range []string{"escalate", "impersonate", "deletecollection", "sign"} {
					if slices.Contains(r.Verbs, verb) {
						t.Errorf("%s: %s: %v", role.Name, verb, r)
					}
				}
				// It makes these, and others' are none of its business.
				if slices.Contains(r.Resources, "clusterroles") && !slices.Equal(r.Verbs, []string{"bind"}) {
					t.Errorf("%s: %v", role.Name, r)
				}
				for _, verb := range r.Verbs {
					switch verb {
					case "get", "list", "watch":
					case "bind", "approve":
						if len(r.ResourceNames) == 0 {
							t.Errorf("%s: %s of everything: %v", role.Name, verb, r)
						}
						add(may[verb], r.ResourceNames)
					default:
						if !strings.HasSuffix(r.APIGroups[0], ".liqo.io") {
							add(may["write"], r.Resources)
						}
					}
				}
			}
		}
		for verb, what := range may {
			if diff := cmp.Diff(want[verb], strings.Join(slices.Sorted(maps.Keys(what)), " ")); diff != "" {
				t.Errorf("%s: what it may %s (-want +got):\n%s", file, verb, diff)
			}
		}
	}
	for _, want := range []string{"ClusterRole /" + kinds.Lease, "Role liqo/" + kinds.Lease} {
		if !found[want] {
			t.Errorf("no %s; there are %v", want, found)
		}
	}
}

func add(set map[string]bool, names []string) {
	for _, n := range names {
		set[n] = true
	}
}

// rolesOf are the roles of the controller in a file of deploy/manifests.
func rolesOf(t *testing.T, file string) (roles []rbacv1.Role) {
	t.Helper()
	b, err := fs.ReadFile(deploy.Manifests(), file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		var role rbacv1.Role // a ClusterRole looks alike
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(role.Kind, "Role") && strings.HasPrefix(role.Name, kinds.Lease) {
			roles = append(roles, role)
		}
	}
	return roles
}
