package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/controlplane/offloading"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// site is a cluster of a peering.
type site struct {
	*controlplanetest.Cluster
	t    *testing.T
	id   string
	stop func()
}

// newSite starts the controllers of authentication and offloading, under the roles and policies that are shipped.
func newSite(t *testing.T, id string) *site {
	t.Helper()
	s := &site{Cluster: controlplanetest.Start(t), t: t, id: id}
	for _, name := range []string{"authentication", "offloading"} {
		s.ApplyManifest(t, name, name+".yaml")
	}
	s.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": id}})
	s.run()
	return s
}

func (s *site) run(before ...func(ctrl.Manager)) {
	s.t.Helper()
	s.stop = s.RunManager(s.t, func(mgr ctrl.Manager) error {
		for _, do := range before {
			do(mgr)
		}
		peerings, err := authentication.PeeringCache(mgr)
		if err != nil {
			return err
		}
		return errors.Join(
			authentication.SetupWithManager(mgr, peerings, authentication.Options{
				LiqoNamespace: controlplanetest.LiqoNamespace, NamespaceMaps: true,
				APIServer: issue.APIServer{URL: s.Config.Host, CA: s.Config.CAData}, Slices: resourceslice.Options{DefaultClass: true},
			}),
			offloading.SetupWithManager(mgr, peerings, offloading.Options{
				LiqoNamespace: controlplanetest.LiqoNamespace, PodSecurity: "baseline", MaxNamespaces: 4, NamespaceQuota: bounds, LimitsEnforcement: "None",
			}))
	})
}

// as is a client of somebody whom this API server knows by that name and these groups.
func (s *site) as(user string, groups ...string) client.Client {
	s.t.Helper()
	cfg := rest.CopyConfig(s.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(cfg, client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func object(namespace, name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for i := 0; i < len(labels); i += 2 {
		metav1.SetMetaDataLabel(&m, labels[i], labels[i+1])
	}
	return m
}

const remoteID = "liqo.io/remote-cluster-id"

// authorize gives another cluster, known here by its ID, a tenant namespace with a Tenant that is ready.
func (s *site) authorize(consumer string) (tenantNamespace string) {
	s.t.Helper()
	ns := "liqo-tenant-" + consumer
	s.Create(s.t, &corev1.Namespace{ObjectMeta: object("", ns, "liqo.io/tenant-namespace", "true", remoteID, consumer)})
	s.Create(s.t, &rbacv1.RoleBinding{
		ObjectMeta: object(ns, "of-"+consumer, remoteID, consumer),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: consumer}},
	})
	tenant := &authv1beta1.Tenant{
		ObjectMeta: object(ns, consumer, remoteID, consumer),
		Spec:       authv1beta1.TenantSpec{ClusterID: authv1beta1.ClusterID(consumer), AuthzPolicy: authv1beta1.TolerateNoHandshake},
	}
	s.Create(s.t, tenant)
	s.tenantIs(tenant, authv1beta1.ReasonTenantReady)
	return ns
}

func (s *site) tenantIs(o *authv1beta1.Tenant, reason string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, "the Tenant is "+reason, func(ctx context.Context) error {
		if err := s.Get(ctx, o.Namespace, o.Name, o); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(o.Status.Conditions, authv1beta1.ConditionReady); c == nil || c.Reason != reason {
			return fmt.Errorf("its conditions are %+v", o.Status.Conditions)
		}
		return nil
	})
}

// mapping is LOCAL, REMOTE, PHASE and so on.
func (s *site) mapping(namespace, name string, want ...string) {
	s.t.Helper()
	wanted := map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for i := 0; i < len(want); i += 3 {
		wanted[want[i]] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: want[i+1], Phase: offloadingv1beta1.MappingPhase(want[i+2])}
	}
	controlplanetest.Eventually(s.t, fmt.Sprintf("NamespaceMap %s of %s has %v", name, s.id, want), func(ctx context.Context) error {
		var m offloadingv1beta1.NamespaceMap
		if err := s.Get(ctx, namespace, name, &m); err != nil {
			return err
		}
		for local, s := range m.Status.CurrentMapping {
			if (s.Message != "") != (s.Phase == offloadingv1beta1.MappingCreationLoopBackOff) {
				return fmt.Errorf("of %s it says %v", local, s)
			}
			s.Message = ""
			m.Status.CurrentMapping[local] = s
		}
		if !maps.Equal(m.Status.CurrentMapping, wanted) {
			return fmt.Errorf("it has %v", m.Status.CurrentMapping)
		}
		return nil
	})
}

func namespaceMap(namespace, name, origin string, mapping ...string) *offloadingv1beta1.NamespaceMap {
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: object(namespace, name, "liqo.io/replicated", "true", "liqo.io/originID", origin),
		Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{}},
	}
	for i := 0; i < len(mapping); i += 2 {
		m.Spec.DesiredMapping[mapping[i]] = mapping[i+1]
	}
	return m
}

// patch writes as somebody else than the administrator, and returns what the API server says.
func patch(t *testing.T, c client.Client, o client.Object, text string) error {
	t.Helper()
	return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)))
}

// TestProvider is an offloaded namespace from the consumer's controllers to the namespace at the provider, and back.
func TestProvider(t *testing.T) {
	rome, milan := newSite(t, "rome"), newSite(t, "milan")
	tenant := milan.authorize("rome")
	milan.Create(t, &corev1.ServiceAccount{ObjectMeta: object(tenant, "rome")})
	milan.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: object(tenant, "by-token", remoteID, "rome"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: tenant, Name: "rome"}},
	})
	const here = "liqo-tenant-milan"
	rome.Create(t, &corev1.Namespace{ObjectMeta: object("", here, "liqo.io/tenant-namespace", "true", remoteID, "milan")})
	identity := &corev1.Secret{
		ObjectMeta: object(here, "to-milan", remoteID, "milan", "liqo.io/identity-type", "ControlPlane"),
		Data:       map[string][]byte{"kubeconfig": credentialtest.TokenKubeconfig(milan.ServiceAccount(tenant, "rome"))},
	}
	identity.Annotations = map[string]string{"liqo.io/remote-tenant-namespace": tenant}
	rome.Create(t, identity)
	rome.Create(t, virtualNode("milan", "milan", "north"))
	rome.Create(t, &corev1.Namespace{ObjectMeta: object("", "shop")})
	rome.Create(t, offloadingOf("shop", nil))
	rome.mapping(here, "milan", "shop", "shop-rome", "Accepted")

	ns := new(corev1.Namespace)
	milan.Read(t, "", "shop-rome", ns)
	for k, v := range map[string]string{remoteID: "rome", "pod-security.kubernetes.io/enforce": "baseline"} {
		if ns.Labels[k] != v {
			t.Errorf("label %s is %q", k, ns.Labels[k])
		}
	}
	for k, v := range map[string]string{"liqo.io/managed-by-namespace-map": tenant + "/milan", "liqo.io/original-name": "shop"} {
		if ns.Annotations[k] != v {
			t.Errorf("annotation %s is %q", k, ns.Annotations[k])
		}
	}
	t.Run("a namespace that an administrator deletes comes back", func(t *testing.T) {
		milan.Delete(t, ns)
		controlplanetest.Eventually(t, "there is another one", func(ctx context.Context) error {
			again := new(corev1.Namespace)
			if err := milan.Get(ctx, "", "shop-rome", again); err != nil {
				return err
			}
			if again.UID == ns.UID {
				return errors.New("it is the same")
			}
			return nil
		})
		rome.mapping(here, "milan", "shop", "shop-rome", "Accepted")
	})
	t.Run("one more, one less", func(t *testing.T) {
		rome.Create(t, &corev1.Namespace{ObjectMeta: object("", "bank")})
		rome.Create(t, offloadingOf("bank", func(o *offloadingv1beta1.NamespaceOffloadingSpec) {
			o.NamespaceMappingStrategy = offloadingv1beta1.EnforceSameNameMappingStrategy
		}))
		rome.Delete(t, offloadingOf("shop", nil))
		rome.mapping(here, "milan", "bank", "bank", "Accepted")
		milan.Gone(t, &corev1.Namespace{ObjectMeta: object("", "shop-rome")})
	})
	t.Run("the last one", func(t *testing.T) {
		rome.Delete(t, offloadingOf("bank", nil))
		rome.mapping(here, "milan")
		rome.Create(t, offloadingOf("bank", func(o *offloadingv1beta1.NamespaceOffloadingSpec) {
			o.NamespaceMappingStrategy = offloadingv1beta1.EnforceSameNameMappingStrategy
		}))
		rome.mapping(here, "milan", "bank", "bank", "Accepted")
	})
	t.Run("an outage of the provider's controllers", func(t *testing.T) {
		milan.stop()
		// The map goes while nobody looks. What was made for it is found.
		rome.Delete(t, virtualNode("milan", "milan", "north"))
		milan.Gone(t, &offloadingv1beta1.NamespaceMap{ObjectMeta: object(tenant, "milan")})
		milan.Read(t, "", "bank", new(corev1.Namespace))
		milan.run()
		milan.Gone(t, &corev1.Namespace{ObjectMeta: object("", "bank")})
	})
}

// TestConsumer is what a consumer may do, and what one tries that means no good, as a user with the roles that are shipped.
func TestConsumer(t *testing.T) {
	milan := newSite(t, "milan")
	tenant, other := milan.authorize("rome"), milan.authorize("naples")
	rome := milan.as("rome")
	slice := milan.as("milan-0123456789ab", "rome")
	create := func(o client.Object) {
		t.Helper()
		if err := rome.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	milan.Create(t, &corev1.Namespace{ObjectMeta: object("", "production")})
	milan.Create(t, namespaceMap(other, "milan", "naples", "shop", "shop-naples"))
	milan.mapping(other, "milan", "shop", "shop-naples", "Accepted")

	m := namespaceMap(tenant, "milan", "rome", "shop", "shop-rome", "a", "kube-system", "b", "production", "c", "liqo", "d", "shop-naples", "e", tenant)
	create(m)
	const no = "CreationLoopBackOff"
	milan.mapping(tenant, "milan", "shop", "shop-rome", "Accepted", "a", "kube-system", no, "b", "production", no, "c", "liqo", no, "d", "shop-naples", no, "e", tenant, no)
	milan.Event(t, tenant, "milan", "NamespaceNotMade", "namespace production exists and was not made for this")
	t.Run("a map that is forged for another cluster", func(t *testing.T) {
		create(namespaceMap(tenant, "forged", "naples", "shop", "shop-naples", "x", "x-naples"))
		milan.mapping(tenant, "forged", "shop", "shop-naples", no, "x", "x-naples", no)
		create(namespaceMap(tenant, "second", "rome", "shop", "shop-rome"))
		milan.mapping(tenant, "second", "shop", "shop-rome", no)
	})
	t.Run("more namespaces than it may have", func(t *testing.T) {
		create(namespaceMap(tenant, "many", "rome", "1", "m1", "2", "m2", "3", "m3", "4", "m4"))
		milan.mapping(tenant, "many", "1", "m1", "Accepted", "2", "m2", "Accepted", "3", "m3", "Accepted", "4", "m4", no)
	})
	t.Run("somebody else's namespaces stay as they are", func(t *testing.T) {
		for _, name := range []string{"production", "kube-system", "liqo", tenant} {
			ns := new(corev1.Namespace)
			if err := milan.Get(t.Context(), "", name, ns); err != nil || ns.Labels["liqo.io/managed"] != "" || !ns.DeletionTimestamp.IsZero() {
				t.Errorf("%s: %v, %+v", name, err, ns.ObjectMeta)
			}
		}
	})
	t.Run("a name that is free again", func(t *testing.T) {
		milan.Create(t, &corev1.Namespace{ObjectMeta: object("", "in-the-way")})
		milan.Create(t, namespaceMap(other, "late", "naples", "w", "in-the-way"))
		milan.mapping(other, "late", "w", "in-the-way", no)
		milan.Delete(t, &corev1.Namespace{ObjectMeta: object("", "in-the-way")})
		milan.mapping(other, "late", "w", "in-the-way", "Accepted")
	})
	t.Run("rights", func(t *testing.T) {
		pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}
		for _, tt := range []struct {
			name    string
			do      func() error
			allowed bool
		}{
			{"a ShadowPod", func() error {
				return slice.Create(t.Context(), &offloadingv1beta1.ShadowPod{ObjectMeta: object("shop-rome", "a"), Spec: offloadingv1beta1.ShadowPodSpec{Pod: pod}}, client.DryRunAll)
			}, true},
			{"a Secret", func() error {
				return slice.Create(t.Context(), &corev1.Secret{ObjectMeta: object("shop-rome", "a")}, client.DryRunAll)
			}, true},
			{"a pod", func() error {
				return slice.Create(t.Context(), &corev1.Pod{ObjectMeta: object("shop-rome", "a"), Spec: pod}, client.DryRunAll)
			}, false},
			{"the status of a NamespaceMap", func() error {
				return rome.Status().Patch(t.Context(), m.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{}}`)))
			}, false},
			{"a ShadowPod elsewhere", func() error {
				return slice.Create(t.Context(), &offloadingv1beta1.ShadowPod{ObjectMeta: object("production", "a")}, client.DryRunAll)
			}, false},
			{"a ShadowPod of another consumer", func() error {
				return slice.Create(t.Context(), &offloadingv1beta1.ShadowPod{ObjectMeta: object("shop-naples", "a")}, client.DryRunAll)
			}, false},
			{"Secrets of another consumer", func() error { return slice.List(t.Context(), &corev1.SecretList{}, client.InNamespace("shop-naples")) }, false},
			{"a service account", func() error {
				return slice.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: object("shop-rome", "a")}, client.DryRunAll)
			}, false},
			{"a RoleBinding", func() error {
				return slice.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: object("shop-rome", "a"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin", APIGroup: rbacv1.GroupName}}, client.DryRunAll)
			}, false},
			{"its namespace", func() error {
				return patch(t, slice, &corev1.Namespace{ObjectMeta: object("", "shop-rome")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)
			}, false},
			{"a Quota", func() error {
				return rome.Create(t.Context(), &offloadingv1beta1.Quota{ObjectMeta: object(tenant, "a"), Spec: offloadingv1beta1.QuotaSpec{User: "x", Resources: corev1.ResourceList{}}}, client.DryRunAll)
			}, false},
			{"all namespaces", func() error { return slice.List(t.Context(), &corev1.NamespaceList{}) }, false},
			{"nodes", func() error { return slice.List(t.Context(), &corev1.NodeList{}) }, false},
		} {
			if err := tt.do(); (err == nil) != tt.allowed || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
	t.Run("who gets hold of the controller's token", func(t *testing.T) {
		thief := milan.as("system:serviceaccount:liqo:liqo-controller")
		controlplanetest.Eventually(t, "the policy is in force", func(ctx context.Context) error {
			if err := thief.Create(ctx, &corev1.Namespace{ObjectMeta: object("", "evil")}, client.DryRunAll); err == nil {
				return errors.New("it is not")
			}
			return nil
		})
		for name, err := range map[string]error{
			"a privileged namespace": thief.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "evil",
				Labels: map[string]string{"liqo.io/managed": "true", "pod-security.kubernetes.io/enforce": "privileged"}, Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "a/b"}}}),
			"a namespace that nobody sees": thief.Create(t.Context(), &corev1.Namespace{ObjectMeta: object("", "evil")}),
			"somebody's namespace":         patch(t, thief, &corev1.Namespace{ObjectMeta: object("", "production")}, `{"metadata":{"labels":{"liqo.io/managed":"true","pod-security.kubernetes.io/enforce":"baseline"},"annotations":{"liqo.io/managed-by-namespace-map":"a/b"}}}`),
			"another label of somebody's":  patch(t, thief, &corev1.Namespace{ObjectMeta: object("", "production")}, `{"metadata":{"labels":{"liqo.io/scheduling-enabled":"true","a":"b"}}}`),
			"the end of a namespace":       thief.Delete(t.Context(), &corev1.Namespace{ObjectMeta: object("", "production")}),
			"a weaker level":               patch(t, thief, &corev1.Namespace{ObjectMeta: object("", "shop-rome")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("a Tenant that is drained", func(t *testing.T) {
		o := &authv1beta1.Tenant{ObjectMeta: object(tenant, "rome")}
		if err := patch(t, milan.Client, o, `{"spec":{"tenantCondition":"Drained"}}`); err != nil {
			t.Fatal(err)
		}
		milan.Gone(t, &corev1.Namespace{ObjectMeta: object("", "shop-rome")})
		milan.Gone(t, &corev1.Namespace{ObjectMeta: object("", "m1")})
		milan.Event(t, tenant, m.Name, "NamespaceNotMade", "has drained cluster rome")
		milan.mapping(other, "milan", "shop", "shop-naples", "Accepted")
	})
	t.Run("a Tenant that is deleted", func(t *testing.T) {
		milan.Delete(t, &authv1beta1.Tenant{ObjectMeta: object(other, "naples")})
		milan.Gone(t, &corev1.Namespace{ObjectMeta: object("", "shop-naples")})
	})
}

// TestQuota follows a slice: its Quota, cordoned and not, and gone with it.
func TestQuota(t *testing.T) {
	milan := newSite(t, "milan")
	tenant := milan.authorize("rome")
	milan.Create(t, sliceOf(t, tenant, "rome", "milan", corev1.ResourceList{"cpu": resource.MustParse("2")}))
	user := credentials.SliceSubject("milan", "rome").CommonName
	q := &offloadingv1beta1.Quota{ObjectMeta: object(tenant, user)}
	quotaIs := func(what string, ok func(offloadingv1beta1.QuotaSpec) bool) {
		t.Helper()
		controlplanetest.Eventually(t, "the Quota is "+what, func(ctx context.Context) error {
			if err := milan.Get(ctx, tenant, user, q); err != nil {
				return err
			}
			if !ok(q.Spec) {
				return fmt.Errorf("it is %+v", q.Spec)
			}
			return nil
		})
	}
	quotaIs("what is granted", func(s offloadingv1beta1.QuotaSpec) bool {
		return s.User == user && s.Resources.Cpu().String() == "2" && s.Resources.Pods().String() == "110" && !*s.Cordoned && s.LimitsEnforcement == "None"
	})
	for _, cordoned := range []bool{true, false} {
		condition := "Active"
		if cordoned {
			condition = "Cordoned"
		}
		if err := patch(t, milan.Client, &authv1beta1.Tenant{ObjectMeta: object(tenant, "rome")}, fmt.Sprintf(`{"spec":{"tenantCondition":%q}}`, condition)); err != nil {
			t.Fatal(err)
		}
		quotaIs(condition, func(s offloadingv1beta1.QuotaSpec) bool { return *s.Cordoned == cordoned })
	}
	milan.Delete(t, &authv1beta1.ResourceSlice{ObjectMeta: object(tenant, "milan")})
	milan.Gone(t, q)
}

// sliceOf is the copy of a slice, as a consumer's controller writes it.
func sliceOf(t *testing.T, namespace, consumer, provider string, resources corev1.ResourceList) *authv1beta1.ResourceSlice {
	t.Helper()
	key, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := key.Request(credentials.SliceSubject(provider, consumer))
	if err != nil {
		t.Fatal(err)
	}
	return &authv1beta1.ResourceSlice{
		ObjectMeta: object(namespace, provider, "liqo.io/replicated", "true", "liqo.io/originID", consumer, remoteID, consumer),
		Spec: authv1beta1.ResourceSliceSpec{
			ConsumerClusterID: new(authv1beta1.ClusterID(consumer)), ProviderClusterID: new(authv1beta1.ClusterID(provider)), Resources: resources, CSR: csr,
		},
	}
}
