package survey

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/admin/access"
	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	corev1beta1 "github.com/sluice-net/sluice/api/core/v1beta1"
)

func foreign(name, id string, role corev1beta1.Role, conditions ...corev1beta1.Condition) corev1beta1.ForeignCluster {
	f := corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: corev1beta1.ClusterID(id)}}
	f.Status.Role = role
	f.Status.Modules.Networking.Enabled = true
	f.Status.Modules.Authentication = corev1beta1.Module{Enabled: len(conditions) > 0, Conditions: conditions}
	return f
}

// TestForeignClusters reads what the controller tells of peerings beside their networks.
func TestForeignClusters(t *testing.T) {
	well := corev1beta1.Condition{Type: corev1beta1.ConditionAuthTenant, Status: corev1beta1.StatusReady}
	unwell := corev1beta1.Condition{Type: corev1beta1.ConditionAuthTenant, Status: corev1beta1.StatusNotReady, Message: "Tenant a/b: no nonce"}
	cordoned := corev1beta1.Condition{Type: corev1beta1.ConditionAuthTenant, Status: corev1beta1.StatusReady, Reason: corev1beta1.ReasonTenantCordoned, Message: "Tenant a/b: it gets no more"}
	away := corev1beta1.Condition{Type: corev1beta1.ConditionAPIServer, Status: corev1beta1.StatusError, Message: "the API server: away"}
	asking := func(f corev1beta1.ForeignCluster, namespace string, conditions ...corev1beta1.Condition) corev1beta1.ForeignCluster {
		f.Status.TenantNamespace.Local, f.Status.Conditions = namespace, conditions
		return f
	}
	slice := func(name, id string) authv1beta1.ResourceSlice {
		return authv1beta1.ResourceSlice{ObjectMeta: object("liqo-tenant-milan", name, id, 1)}
	}
	for _, tt := range []struct {
		name    string
		foreign []corev1beta1.ForeignCluster
		slices  []authv1beta1.ResourceSlice
		options Options
		want    []string // of each peering: ID, namespace, role, authentication and its alerts, slices
	}{
		{"a controller of an earlier version", nil, nil, Options{}, []string{"milan liqo-tenant-milan  Disabled [] 0"}},
		{"a network alone", []corev1beta1.ForeignCluster{foreign("milan", "milan", corev1beta1.UnknownRole)}, nil, Options{}, []string{"milan liqo-tenant-milan Unknown Disabled [] 0"}},
		{"a consumer", []corev1beta1.ForeignCluster{foreign("milan", "milan", corev1beta1.ConsumerRole, well)},
			[]authv1beta1.ResourceSlice{slice("a", "milan"), slice("b", "milan"), slice("lost", "")}, Options{}, []string{"milan liqo-tenant-milan Consumer Healthy [] 2"}},
		{"a Tenant that is refused", []corev1beta1.ForeignCluster{foreign("milan", "milan", corev1beta1.ConsumerRole, unwell)}, nil, Options{},
			[]string{"milan liqo-tenant-milan Consumer Unhealthy [Tenant a/b: no nonce] 0"}},
		{"a Tenant that is cordoned", []corev1beta1.ForeignCluster{foreign("milan", "milan", corev1beta1.ConsumerRole, cordoned)}, nil, Options{},
			[]string{"milan liqo-tenant-milan Consumer Healthy [Tenant a/b: it gets no more] 0"}},
		{"a provider that is away, without a network", []corev1beta1.ForeignCluster{asking(foreign("naples", "naples", corev1beta1.ProviderRole, well), "liqo-tenant-naples", away)}, nil, Options{},
			[]string{"milan liqo-tenant-milan  Disabled [] 0", "naples liqo-tenant-naples Provider Unhealthy [the API server: away] 0"}},
		{"what is left of a peering", []corev1beta1.ForeignCluster{foreign("naples", "naples", corev1beta1.UnknownRole)}, nil, Options{}, []string{"milan liqo-tenant-milan  Disabled [] 0"}},
		{"one of another name", []corev1beta1.ForeignCluster{
			foreign("a", "milan", corev1beta1.ConsumerRole), foreign("milan", "milan", corev1beta1.ProviderRole), foreign("z", "milan", corev1beta1.ConsumerRole),
		}, nil, Options{}, []string{"milan liqo-tenant-milan Provider Disabled [] 0"}},
		{"one namespace", []corev1beta1.ForeignCluster{
			asking(foreign("naples", "naples", corev1beta1.ProviderRole, well), "liqo-tenant-naples"), asking(foreign("bari", "bari", corev1beta1.ProviderRole, well), "liqo-tenant-bari"),
		}, nil, Options{Namespace: "liqo-tenant-bari"}, []string{"bari liqo-tenant-bari Provider Healthy [] 0", "milan liqo-tenant-milan  Disabled [] 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := peering()
			f.foreign, f.slices = tt.foreign, tt.slices
			got := []string{}
			s := f.build(&access.Cluster{}, tt.options)
			for i := range s.Peers {
				if p := &s.Peers[i]; p.Peered() {
					health, alerts := s.Authentication(p)
					got = append(got, fmt.Sprintf("%s %s %s %s %v %d", p.ID, p.Namespace, s.Role(p), health, alerts, len(p.Slices)))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestForeignClustersUnread: what cannot be read is not known, rather than not there.
func TestForeignClustersUnread(t *testing.T) {
	s := peering().build(&access.Cluster{}, Options{})
	s.Gaps = []Gap{{What: "ForeignClusters", Kind: "ForeignCluster"}}
	p := s.Peer("milan")
	authentication, _ := s.Authentication(p)
	offloading, _ := s.Offloading(p)
	if role := s.Role(p); role != corev1beta1.UnknownRole || authentication != Unknown || offloading != Unknown {
		t.Errorf("the role is %q, authentication %s, offloading %s", role, authentication, offloading)
	}
	if st := s.Status(p, nil); st.Authentication != nil || st.Offloading != nil {
		t.Errorf("the status tells of authentication: %+v, offloading: %+v", st.Authentication, st.Offloading)
	}
}
