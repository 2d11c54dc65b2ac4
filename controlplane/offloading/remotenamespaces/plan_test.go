package remotenamespaces

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/reserved"
)

// good are the facts about rome, which asks for one namespace at milan.
func good(asked ...string) Facts {
	f := Facts{
		Options: Options{LiqoNamespace: "liqo", PodSecurity: "baseline", MaxNamespaces: 3},
		Name:    types.NamespacedName{Namespace: "liqo-tenant-rome", Name: "milan"},
		Map: &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "rome"}},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{}},
		},
		Tenant: &authv1beta1.Tenant{Spec: authv1beta1.TenantSpec{ClusterID: "rome", TenantCondition: authv1beta1.TenantActive}},
	}
	for i := 0; i < len(asked); i += 2 {
		f.Map.Spec.DesiredMapping[asked[i]] = asked[i+1]
	}
	return f
}

// made is a namespace that was made for a map.
func made(name, original, by string) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"liqo.io/managed": "true", "liqo.io/remote-cluster-id": "rome"},
		Annotations: map[string]string{"liqo.io/managed-by-namespace-map": by, "liqo.io/original-name": original},
	}}
}

const ours = "liqo-tenant-rome/milan"

func TestBuild(t *testing.T) {
	going := made("shop-rome", "shop", ours)
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	unlabelled := made("shop-rome", "shop", ours)
	unlabelled.Labels = nil
	for _, tt := range []struct {
		name   string
		facts  func() Facts
		phases string // LOCAL=REMOTE:PHASE ...
		ensure string
		remove string
		why    string
	}{
		{"one is made", func() Facts { return good("shop", "shop-rome") }, "shop=shop-rome:Accepted", "shop-rome", "", ""},
		{"one is there", func() Facts {
			f := good("shop", "shop-rome")
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", ours)}
			return f
		}, "shop=shop-rome:Accepted", "shop-rome", "", ""},
		{"a user's is there", func() Facts {
			f := good("shop", "shop-rome")
			f.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}}}
			return f
		}, "shop=shop-rome:CreationLoopBackOff", "", "", "was not made for this"},
		{"a user's with our annotations is there", func() Facts {
			f := good("shop", "shop-rome")
			f.Namespaces = []corev1.Namespace{unlabelled}
			return f
		}, "shop=shop-rome:CreationLoopBackOff", "", "", "was not made for this"},
		{"another map's is there", func() Facts {
			f := good("shop", "shop-rome")
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", "liqo-tenant-rome/other")}
			return f
		}, "shop=shop-rome:CreationLoopBackOff", "", "", "was not made for this"},
		{"another tenant's is there", func() Facts {
			f := good("shop", "shop-rome")
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", "liqo-tenant-naples/milan")}
			return f
		}, "shop=shop-rome:CreationLoopBackOff", "", "", "was not made for this"},
		{"one of ours for another namespace is there", func() Facts {
			f := good("shop", "store")
			f.Namespaces = []corev1.Namespace{made("store", "bank", ours)}
			return f
		}, "bank=store:Terminating shop=store:CreationLoopBackOff", "", "store", "was made for namespace bank"},
		{"two are to have one name", func() Facts { return good("bank", "store", "shop", "store") },
			"bank=store:Accepted shop=store:CreationLoopBackOff", "store", "", "namespace bank would get the same name"},
		{"it is being deleted", func() Facts {
			f := good("shop", "shop-rome")
			f.Namespaces = []corev1.Namespace{going}
			return f
		}, "shop=shop-rome:Terminating", "", "", ""},
		{"it is not asked for any more", func() Facts {
			f := good()
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", ours), made("x", "x", "liqo-tenant-rome/other"), unlabelled}
			f.Namespaces[2].Name = "mine"
			return f
		}, "shop=shop-rome:Terminating", "", "shop-rome", ""},
		{"it is to have another name", func() Facts {
			f := good("shop", "store")
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", ours)}
			return f
		}, "shop=store:Accepted", "store", "shop-rome", ""},
		{"the map is gone", func() Facts {
			f := good()
			f.Map = nil
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", ours), going, made("x", "x", "liqo-tenant-rome/other")}
			return f
		}, "", "", "shop-rome", ""},
		{"the map is being deleted", func() Facts {
			f := good("shop", "shop-rome")
			f.Map.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", ours)}
			return f
		}, "shop=shop-rome:Terminating", "", "shop-rome", ""},
		{"the Tenant is drained", func() Facts {
			f := good("shop", "shop-rome")
			f.Tenant.Spec.TenantCondition = authv1beta1.TenantDrained
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", ours)}
			return f
		}, "shop=shop-rome:CreationLoopBackOff", "", "shop-rome", "has drained cluster rome"},
		{"no Tenant is ready: what is there stays", func() Facts {
			f := good("shop", "shop-rome", "bank", "bank-rome")
			f.Tenant = nil
			f.Namespaces = []corev1.Namespace{made("shop-rome", "shop", ours)}
			return f
		}, "bank=bank-rome:CreationLoopBackOff shop=shop-rome:Accepted", "shop-rome", "", "has no Tenant that is ready"},
		{"the map is labelled for another cluster", func() Facts {
			f := good("shop", "shop-rome")
			f.Map.Labels["liqo.io/originID"] = "naples"
			return f
		}, "shop=shop-rome:CreationLoopBackOff", "", "", `"naples"; in this namespace it must be rome`},
		{"more than it may have", func() Facts {
			f := good("a", "a-rome", "b", "b-rome", "c", "c-rome")
			f.Namespaces = []corev1.Namespace{made("z", "z", "liqo-tenant-rome/other"), made("c-rome", "c", ours), made("n", "n", "liqo-tenant-naples/milan")}
			return f
		}, "a=a-rome:Accepted b=b-rome:CreationLoopBackOff c=c-rome:Accepted", "a-rome c-rome", "", "allows no more"},
		{"a name that is none", func() Facts { return good("shop", "../etc") }, "shop=../etc:CreationLoopBackOff", "", "", "is not the name"},
		{"a name at the consumer that is none", func() Facts { return good("Shop!", "shop") }, "Shop!=shop:CreationLoopBackOff", "", "", "is not the name"},
		{"a name that is too long", func() Facts { return good("shop", strings.Repeat("a", 64)) }, "shop=" + strings.Repeat("a", 64) + ":CreationLoopBackOff", "", "", "is not the name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.facts()
			p := Build(f)
			var phases, ensure, remove []string
			for local, m := range p.Mapping {
				phases = append(phases, fmt.Sprintf("%s=%s:%s", local, m.RemoteNamespace, m.Phase))
			}
			for local, n := range p.Ensure {
				ensure = append(ensure, n.Name)
				want := made(n.Name, local, ours)
				want.Labels["pod-security.kubernetes.io/enforce"] = "baseline"
				if diff := cmp.Diff(want.ObjectMeta, n.ObjectMeta); diff != "" {
					t.Errorf("namespace (-want +got):\n%s", diff)
				}
			}
			for _, n := range p.Remove {
				remove = append(remove, n.Name)
			}
			for _, list := range [][]string{phases, ensure, remove} {
				slices.Sort(list)
			}
			got := []string{strings.Join(phases, " "), strings.Join(ensure, " "), strings.Join(remove, " ")}
			if diff := cmp.Diff([]string{tt.phases, tt.ensure, tt.remove}, got); diff != "" {
				t.Errorf("phases, namespaces, removed (-want +got):\n%s", diff)
			}
			if text := fmt.Sprint(slices.Collect(maps.Values(p.Refused))); !strings.Contains(text, tt.why) || (tt.why == "") != (len(p.Refused) == 0) {
				t.Errorf("refused: %s, want %q", text, tt.why)
			}
		})
	}
}

// TestQuota leaves out what the cluster does not count, for a while.
func TestQuota(t *testing.T) {
	amount := func(names ...corev1.ResourceName) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, n := range names {
			list[n] = resource.MustParse("7")
		}
		return list
	}
	quota := func(hard, used corev1.ResourceList) corev1.ResourceQuota {
		return corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
	}
	f := good("shop", "shop-rome")
	f.Quota = amount("configmaps", "count/shadowpods.offloading.liqo.io")
	all := slices.Sorted(maps.Keys(f.Quota))
	u, start := uncounted{}, time.Unix(1000, 0)
	for _, tt := range []struct {
		name   string
		quotas []corev1.ResourceQuota
		after  time.Duration
		want   []corev1.ResourceName
	}{
		{"before there is one", nil, 0, all},
		{"nobody has counted anything", []corev1.ResourceQuota{quota(nil, nil)}, 0, all},
		{"all are counted", []corev1.ResourceQuota{quota(f.Quota, f.Quota)}, 0, all},
		{"one is not, in one of them", []corev1.ResourceQuota{quota(f.Quota, amount("configmaps")), quota(f.Quota, f.Quota)}, 0, []corev1.ResourceName{"configmaps"}},
		{"it is left out", []corev1.ResourceQuota{quota(amount("configmaps"), amount("configmaps"))}, recount - 1, []corev1.ResourceName{"configmaps"}},
		{"it is back", []corev1.ResourceQuota{quota(amount("configmaps"), amount("configmaps"))}, recount, all},
		{"another's is not counted", []corev1.ResourceQuota{quota(amount("configmaps", "pods"), amount("configmaps"))}, recount, all},
	} {
		f.Uncounted = u.update(f.Quota, tt.quotas, start.Add(tt.after))
		q := f.quota("shop-rome")
		if got := slices.Sorted(maps.Keys(q.Spec.Hard)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestReserved(t *testing.T) {
	for name, want := range map[string]bool{
		"kube-system": true, "kube-flannel": true, "default": true, "liqo": true, "liqo-fabric": true, "liqo-tenant-naples": true, "openshift-dns": true,
		"net": true, "net-fabric": true, "liqo-demo": false, "kubernetes": false, "shop": false, "openshifter": false,
	} {
		f := good("a", name)
		f.LiqoNamespace = "net"
		if p := Build(f); (len(p.Ensure) == 0) != want {
			t.Errorf("%s: %v, %v", name, p.Ensure, p.Refused)
		}
	}
}

// FuzzBuild asks for anything: what is made are valid names that nobody has, for the cluster of the Tenant, and nothing
// that was not made for the map is deleted or changed.
func FuzzBuild(f *testing.F) {
	f.Add("shop", "shop-rome", "bank", "store", "shop-rome", "rome", uint8(0))
	f.Add("a", "kube-system", "a/b", "x", "x", "naples", uint8(3))
	f.Add("", "default", "a", "", "liqo", "rome", uint8(7))
	f.Fuzz(func(t *testing.T, local1, remote1, local2, remote2, there, origin string, how uint8) {
		facts := good(local1, remote1, local2, remote2)
		facts.Map.Labels["liqo.io/originID"] = origin
		n := made(there, local1, ours)
		if how&1 != 0 {
			n.Labels = nil
		}
		if how&2 != 0 {
			n.Annotations["liqo.io/managed-by-namespace-map"] = "liqo-tenant-rome/other"
		}
		if how&4 != 0 {
			facts.Tenant = nil
		}
		facts.Namespaces = []corev1.Namespace{n}
		foreign := how&3 != 0
		p := Build(facts)
		names := map[string]bool{}
		for local, e := range p.Ensure {
			if names[e.Name] || reserved.FromPeers(e.Name, facts.LiqoNamespace) || facts.Tenant != nil && e.Labels["liqo.io/remote-cluster-id"] != "rome" || facts.Tenant == nil && e.Name != there {
				t.Errorf("%q is made: %+v", local, e)
			}
			if foreign && e.Name == there {
				t.Errorf("%q, which is somebody else's, is taken", there)
			}
			names[e.Name] = true
		}
		if len(p.Remove) > 0 && foreign {
			t.Errorf("%q, which is somebody else's, is deleted", there)
		}
		for local := range facts.Map.Spec.DesiredMapping {
			if _, ok := p.Mapping[local]; !ok {
				t.Errorf("%q has no phase", local)
			}
		}
	})
}
