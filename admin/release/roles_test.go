package release

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestRights guards what gateways, virtual kubelets and the DNS server may do by the roles of the chart, and who is bound to
// roles at all: docs/operations.md says it.
func TestRights(t *testing.T) {
	values := merge(parse(t, minimal), parse(t, "{authentication: {enabled: true}, offloading: {enabled: true}, services: {enabled: true}, clusterDNS: {enabled: true}}"))
	objects := objectsOf(t, values)
	want := map[string][]string{
		"ClusterRole liqo-clusterdns": {
			"list watch discovery.k8s.io/endpointslices",
			"list watch multicluster.x-k8s.io/serviceimports",
		},
		"ClusterRole liqo-gateway": {
			"get list watch ipam.liqo.io/ips",
			"get list watch networking.liqo.io/internalnodes",
		},
		"Role liqo/liqo-gateway": {
			"get list watch networking.liqo.io/firewallconfigurations",
			"get list watch networking.liqo.io/routeconfigurations",
			"get patch networking.liqo.io/firewallconfigurations/status",
		},
		"ClusterRole liqo-virtual-kubelet-local": {
			"create authentication.k8s.io/tokenreviews",
			"create authorization.k8s.io/subjectaccessreviews",
			"create delete get patch update /nodes",
			"create get certificates.k8s.io/certificatesigningrequests",
			"create get update coordination.k8s.io/leases",
			"create /events",
			"delete get list patch watch /pods",
			"get list watch /configmaps extension-apiserver-authentication",
			"get list watch ipam.liqo.io/ips api-server",
			"get /namespaces",
			"update /nodes/status",
			"update /pods/status",
		},
		"ClusterRole liqo-virtual-kubelet-offloaded": {
			"create /serviceaccounts/token",
			"get list watch /configmaps",
			"get list watch /secrets",
			"get list watch /services",
			"get list watch discovery.k8s.io/endpointslices",
			"get list watch networking.k8s.io/ingresses",
		},
	}
	got, bound := map[string][]string{}, map[string][]string{}
	for _, u := range objects {
		switch u.GetKind() {
		case "Role", "ClusterRole":
			var role rbacv1.Role // a ClusterRole looks alike
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
				t.Fatal(err)
			}
			if _, named := want[describe(u)]; named {
				got[describe(u)] = rightsOf(role.Rules)
			}
		case "RoleBinding", "ClusterRoleBinding":
			var b rbacv1.RoleBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &b); err != nil {
				t.Fatal(err)
			}
			for _, s := range b.Subjects {
				who := s.Kind + " " + s.Namespace + "/" + s.Name
				bound[who] = append(bound[who], b.RoleRef.Kind+" "+b.RoleRef.Name)
				slices.Sort(bound[who])
			}
		}
	}
	for role := range want {
		slices.Sort(want[role])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	wantBound := map[string][]string{
		"ServiceAccount liqo-fabric/liqo-fabric": {"ClusterRole liqo-fabric"},
		"ServiceAccount liqo/liqo-clusterdns":    {"ClusterRole liqo-clusterdns"},
		"ServiceAccount liqo/liqo-controller": {
			"ClusterRole liqo-controller", "ClusterRole liqo-controller-authentication", "ClusterRole liqo-controller-offloading", "ClusterRole liqo-controller-services",
			"Role liqo-controller", "Role liqo-controller-authentication", "Role liqo-controller-offloading", "Role liqo-controller-services",
		},
	}
	if diff := cmp.Diff(wantBound, bound); diff != "" {
		t.Errorf("who has which roles (-want +got):\n%s", diff)
	}
}

// rightsOf is a line for each kind of each rule: the verbs, the kind, and the names if others are none of its business.
func rightsOf(rules []rbacv1.PolicyRule) (lines []string) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				verbs := slices.Sorted(slices.Values(r.Verbs))
				lines = append(lines, strings.Join(slices.Concat(verbs, []string{group + "/" + resource}, r.ResourceNames), " "))
			}
		}
	}
	slices.Sort(lines)
	return lines
}
