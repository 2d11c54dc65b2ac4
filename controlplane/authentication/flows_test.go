package authentication_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/authentication"
	"github.com/sluice-net/sluice/controlplane/authentication/credentials"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
	"github.com/sluice-net/sluice/controlplane/authentication/resourceslice"
	"github.com/sluice-net/sluice/controlplane/kinds"
	"github.com/sluice-net/sluice/test/controlplanetest"
	"github.com/sluice-net/sluice/test/credentialtest"
)

// site is a cluster of a peering: rome asks, milan gives.
type site struct {
	*controlplanetest.Cluster
	t       *testing.T
	id      string
	tenant  string // the namespace of the peering
	options authentication.Options
	// stop ends the controllers.
	stop func()
}

func newSite(t *testing.T, id, peer, tenant string, changes ...func(*authentication.Options)) *site {
	t.Helper()
	s := &site{Cluster: controlplanetest.Start(t), t: t, id: id, tenant: tenant}
	s.options = authentication.Options{
		LiqoNamespace: controlplanetest.LiqoNamespace,
		APIServer:     issue.APIServer{URL: s.Config.Host, CA: s.Config.CAData},
		Slices:        resourceslice.Options{DefaultClass: true, NodeLabels: map[string]string{"region": s.id}},
	}
	for _, change := range changes {
		change(&s.options)
	}
	s.ApplyManifest(t, "authentication", "authentication.yaml")
	s.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: controlplanetest.LiqoNamespace, Name: "liqo-clusterid-configmap"}, Data: map[string]string{"CLUSTER_ID": id}})
	s.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": peer}}})
	s.run()
	return s
}

// run runs the controllers, under the roles that are shipped.
func (s *site) run() {
	s.stop = s.RunManager(s.t, func(mgr ctrl.Manager) error {
		peerings, err := authentication.PeeringCache(mgr)
		if err != nil {
			return err
		}
		return authentication.SetupWithManager(mgr, peerings, s.options)
	})
}

// secret waits until a Secret of the peering has a value for a key.
func (s *site) secret(name, key string) (value []byte) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("Secret %s of %s has %s", name, s.id, key), func(ctx context.Context) error {
		var o corev1.Secret
		if err := s.Get(ctx, s.tenant, name, &o); err != nil {
			return err
		}
		if value = o.Data[key]; len(value) == 0 {
			return errors.New("it is empty")
		}
		return nil
	})
	return value
}

func peering(id string, more ...string) map[string]string {
	l := map[string]string{"liqo.io/remote-cluster-id": id}
	for i := 0; i < len(more); i += 2 {
		l[more[i]] = more[i+1]
	}
	return l
}

// prove makes the Tenant of rome at milan: nonce, signature, request.
func prove(t *testing.T, rome, milan *site) *authv1beta1.Tenant {
	t.Helper()
	milan.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "liqo-nonce", Labels: peering("rome", "liqo.io/nonce", "true")}})
	nonce := milan.secret("liqo-nonce", "nonce")
	rome.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "liqo-signed-nonce", Labels: peering("milan", "liqo.io/signed-nonce", "true")},
		Data:       map[string][]byte{"nonce": nonce},
	})
	signature := rome.secret("liqo-signed-nonce", "signedNonce")
	public, csr := rome.secret("liqo-signed-nonce", "publicKey"), rome.secret("liqo-signed-nonce", "csr")
	return &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "rome", Labels: peering("rome")},
		Spec:       authv1beta1.TenantSpec{ClusterID: "rome", PublicKey: public, CSR: csr, Signature: signature},
	}
}

// tenantBecomes waits until the condition of a Tenant has a reason.
func (s *site) tenantBecomes(name, reason string) *authv1beta1.Tenant {
	s.t.Helper()
	o := new(authv1beta1.Tenant)
	controlplanetest.Eventually(s.t, "Tenant "+name+" becomes "+reason, func(ctx context.Context) error {
		if err := s.Get(ctx, s.tenant, name, o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, authv1beta1.ConditionReady)
		if c == nil || c.Reason != reason || c.ObservedGeneration != o.Generation {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
	return o
}

func slice(rome *site, name string, resources ...string) *authv1beta1.ResourceSlice {
	s := &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: name, Labels: peering("milan", "liqo.io/replication", "true", "liqo.io/remoteID", "milan")},
		Spec:       authv1beta1.ResourceSliceSpec{Class: "default", Resources: corev1.ResourceList{}},
	}
	for i := 0; i < len(resources); i += 2 {
		s.Spec.Resources[corev1.ResourceName(resources[i])] = resource.MustParse(resources[i+1])
	}
	return s
}

// sliceBecomes waits until the conditions of a slice have these reasons.
func (s *site) sliceBecomes(name, authentication, resources string) *authv1beta1.ResourceSlice {
	s.t.Helper()
	o := new(authv1beta1.ResourceSlice)
	controlplanetest.Eventually(s.t, fmt.Sprintf("ResourceSlice %s of %s becomes %s, %s", name, s.id, authentication, resources), func(ctx context.Context) error {
		if err := s.Get(ctx, s.tenant, name, o); err != nil {
			return err
		}
		got := map[authv1beta1.ResourceSliceConditionType]string{}
		for _, c := range o.Status.Conditions {
			got[c.Type] = c.Reason
		}
		if got[authv1beta1.SliceAuthentication] != authentication || got[authv1beta1.SliceResources] != resources {
			return fmt.Errorf("the conditions are %+v", o.Status.Conditions)
		}
		return nil
	})
	return o
}

// copies waits until there are exactly these copies of rome's slices at milan.
func (s *site) copies(names ...string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("the copies at %s are %v", s.id, names), func(ctx context.Context) error {
		var list authv1beta1.ResourceSliceList
		if err := s.Client.List(ctx, &list, client.InNamespace(s.tenant)); err != nil {
			return err
		}
		var got []string
		for _, o := range list.Items {
			got = append(got, o.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, names) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
}

// event waits for an event about an object with a reason and a text.
func (s *site) event(name, reason, says string) {
	s.t.Helper()
	s.Event(s.t, s.tenant, name, reason, says)
}

// who asks an API server as whom it knows the owner of a kubeconfig.
func who(t *testing.T, kubeconfig []byte) (client.Client, authenticationv1.UserInfo) {
	t.Helper()
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: kinds.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(t.Context(), &review); err != nil {
		t.Fatal(err)
	}
	return c, review.Status.UserInfo
}

func may(t *testing.T, c client.Client, a authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	if err := c.Create(t.Context(), &review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// TestHandshake is a peering from the first nonce to the last copy, between two API servers with real signers.
func TestHandshake(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", "liqo-tenant-milan"), newSite(t, "milan", "rome", "any-name-for-rome", func(o *authentication.Options) {
		o.Slices.Volumes, o.Slices.LoadBalancerClasses = true, []resourceslice.Class{{Name: "example.org/public", Default: true}, {Name: "internal"}}
	})
	tenant := prove(t, rome, milan)
	replayed := tenant.DeepCopy()
	milan.Create(t, tenant)
	params := milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady).Status.AuthParams
	if params == nil {
		t.Fatal("a Tenant that is ready has no credentials")
	}

	rome.Create(t, &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "controlplane-milan", Labels: peering("milan")},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity, AuthParams: *params, Namespace: new(milan.tenant)},
	})
	kubeconfig := rome.secret("kubeconfig-controlplane-milan", "kubeconfig")
	asRome, user := who(t, kubeconfig)
	if user.Username != "rome" || !slices.Contains(user.Groups, "liqo.io") {
		t.Errorf("milan knows rome as %+v", user)
	}
	t.Run("rights", func(t *testing.T) { rights(t, asRome, milan) })

	rome.Create(t, slice(rome, "milan", "cpu", "2"))
	got := rome.sliceBecomes("milan", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	if cpu := got.Status.Resources[corev1.ResourceCPU]; cpu.String() != "2" || got.Status.NodeLabels["region"] != "milan" {
		t.Errorf("granted: %+v", got.Status)
	}
	_, user = who(t, rome.secret("kubeconfig-resourceslice-milan", "kubeconfig"))
	if want := credentials.SliceSubject("milan", "rome"); user.Username != want.CommonName || !slices.Contains(user.Groups, want.Organization) {
		t.Errorf("milan knows the slice as %+v, want %+v", user, want)
	}

	// A changed spec, a changed label.
	got.Spec.Resources[corev1.ResourceCPU] = resource.MustParse("3")
	got.Labels["team"] = "network"
	if err := rome.Client.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the change is granted", func(ctx context.Context) error {
		var here, there authv1beta1.ResourceSlice
		if err := errors.Join(rome.Get(ctx, rome.tenant, "milan", &here), milan.Get(ctx, milan.tenant, "milan", &there)); err != nil {
			return err
		}
		if cpu := here.Status.Resources[corev1.ResourceCPU]; cpu.String() != "3" || there.Labels["team"] != "network" {
			return fmt.Errorf("%v; the copy has the labels %v", here.Status.Resources, there.Labels)
		}
		return nil
	})

	t.Run("a consumer that cordons and uncordons", func(t *testing.T) {
		for _, annotation := range []string{"liqo.io/cordon", "liqo.io/cordon-tenant"} {
			there := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "milan"}}
			patch := func(value string) client.Patch {
				return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, annotation, value))
			}
			controlplanetest.Eventually(t, "rome may not set "+annotation, func(ctx context.Context) error {
				if err := asRome.Patch(ctx, there, patch(`"true"`), client.DryRunAll); !apierrors.IsForbidden(err) {
					return fmt.Errorf("it gets %v", err)
				}
				return nil
			})
			for _, value := range []string{`"true"`, "null"} {
				// milan's controller may take away what is set here, and then null changes nothing.
				controlplanetest.Eventually(t, "rome may not change "+annotation+" to "+value, func(ctx context.Context) error {
					if err := milan.Client.Patch(ctx, there, patch(`"false"`)); err != nil {
						return err
					}
					if err := asRome.Patch(ctx, there, patch(value), client.DryRunAll); !apierrors.IsForbidden(err) {
						return fmt.Errorf("it gets %v", err)
					}
					return nil
				})
			}
			if err := asRome.Patch(t.Context(), there, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"x"}}}`)), client.DryRunAll); err != nil {
				t.Errorf("another annotation: %v", err)
			}
		}
	})

	t.Run("cordon", func(t *testing.T) {
		milan.condition("rome", authv1beta1.TenantCordoned)
		milan.tenantBecomes("rome", authv1beta1.ReasonTenantCordoned)
		rome.Create(t, slice(rome, "more"))
		rome.sliceBecomes("more", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonTenantCordoned)
		rome.sliceBecomes("milan", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
		milan.condition("rome", authv1beta1.TenantActive)
		rome.sliceBecomes("more", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	})

	t.Run("classes", func(t *testing.T) { testClasses(t, rome, milan) })
	t.Run("drain", func(t *testing.T) { testDrain(t, rome, milan, tenant.Name) })
	t.Run("quota", func(t *testing.T) { testQuota(t, rome, milan) })
	t.Run("what the nodes have left", func(t *testing.T) { testAvailable(t, rome, milan) })

	t.Run("outage", func(t *testing.T) {
		milan.StopAPIServer()
		rome.Delete(t, slice(rome, "more"))
		rome.Create(t, slice(rome, "later"))
		if err := milan.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		milan.copies("later", "milan")
		rome.sliceBecomes("later", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	})

	t.Run("identity removed first", func(t *testing.T) {
		rome.Delete(t, &authv1beta1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "controlplane-milan"}})
		milan.copies()
	})

	t.Run("replay", func(t *testing.T) {
		milan.Delete(t, tenant)
		milan.Gone(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "liqo-binding-liqo-remote-controlplane"}}) // with its Tenant
		milan.Create(t, replayed)
		milan.tenantBecomes("rome", authv1beta1.ReasonNonceReplayed)
		err := asRome.List(t.Context(), &authv1beta1.ResourceSliceList{}, client.InNamespace(milan.tenant))
		if !apierrors.IsForbidden(err) {
			t.Errorf("rome may still ask: %v", err)
		}
	})
}

// says fails unless the condition Resources of a slice says something.
func says(t *testing.T, s *authv1beta1.ResourceSlice, text string) {
	t.Helper()
	for _, c := range s.Status.Conditions {
		if c.Type == authv1beta1.SliceResources && strings.Contains(c.Message, text) {
			return
		}
	}
	t.Errorf("the conditions of %s are %+v; want %q", s.Name, s.Status.Conditions, text)
}

// changeCPU changes what a slice asks for.
func (s *site) changeCPU(name, cpu string) {
	s.t.Helper()
	o := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: name}}
	if err := s.Client.Patch(s.t.Context(), o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"resources":{"cpu":%q}}}`, cpu))); err != nil {
		s.t.Fatal(err)
	}
}

// testClasses: rome's slices tell which classes milan has, also later.
func testClasses(t *testing.T, rome, milan *site) {
	has := func(what string, storage []authv1beta1.StorageClass, ingress []authv1beta1.IngressClass) {
		t.Helper()
		controlplanetest.Eventually(t, "rome's slice tells of "+what, func(ctx context.Context) error {
			var s authv1beta1.ResourceSlice
			if err := rome.Get(ctx, rome.tenant, "milan", &s); err != nil {
				return err
			}
			balancers := []authv1beta1.LoadBalancerClass{{LoadBalancerClassName: "example.org/public", Default: true}, {LoadBalancerClassName: "internal"}}
			if !slices.Equal(s.Status.StorageClasses, storage) || !slices.Equal(s.Status.IngressClasses, ingress) || !slices.Equal(s.Status.LoadBalancerClasses, balancers) {
				return fmt.Errorf("it tells of %+v, %+v, %+v", s.Status.StorageClasses, s.Status.IngressClasses, s.Status.LoadBalancerClasses)
			}
			return nil
		})
	}
	has("no class", nil, nil)
	const isDefault = "storageclass.kubernetes.io/is-default-class"
	fast := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{isDefault: "true"}}, Provisioner: "example.org/disk"}
	milan.Create(t, fast)
	milan.Create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "example.org/disk"})
	nginx := &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: "nginx", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}},
		Spec:       networkingv1.IngressClassSpec{Controller: "example.org/nginx"},
	}
	milan.Create(t, nginx)
	all := []authv1beta1.StorageClass{{StorageClassName: "fast", Default: true}, {StorageClassName: "slow"}}
	has("all classes", all, []authv1beta1.IngressClass{{IngressClassName: "nginx", Default: true}})
	delete(fast.Annotations, isDefault)
	milan.update(fast)
	milan.Delete(t, nginx)
	all[0].Default = false
	has("what changed", all, nil)
}

// testQuota: rome has 3 cpu by slice milan and 4 by slice more.
func testQuota(t *testing.T, rome, milan *site) {
	quota := func(value string) {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: milan.tenant}}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, authv1beta1.AnnotationQuota, value)
		if err := milan.Client.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	quota(`"cpu=8"`)
	rome.Create(t, slice(rome, "third", "cpu", "2"))
	got := rome.sliceBecomes("third", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonQuotaExceeded)
	says(t, got, "2 of cpu are asked for; the quota of cluster rome is 8, of which its other slices have 7")
	if len(got.Status.Resources) > 0 {
		t.Errorf("it is granted %v", got.Status.Resources)
	}
	rome.changeCPU("third", "1")
	rome.sliceBecomes("third", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	quota(`"cpu=much"`)
	rome.changeCPU("third", "500m")
	rome.sliceBecomes("third", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonQuotaInvalid)
	quota("null")
	rome.changeCPU("third", "1")
	rome.sliceBecomes("third", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	rome.sliceBecomes("milan", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
}

// testAvailable: rome has 8 cpu by three slices, and a pod of milan's own 1500m.
func testAvailable(t *testing.T, rome, milan *site) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12"), corev1.ResourceMemory: resource.MustParse("64Gi")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	milan.Create(t, node)
	defer milan.Delete(t, node)
	milan.Namespace(t, "load", nil)
	milan.Create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "load", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
	}}}})
	big := slice(rome, "big", "cpu", "3")
	big.Spec.Class = authv1beta1.SliceClassAvailable
	rome.Create(t, big)
	got := rome.sliceBecomes("big", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonResourcesUnavailable)
	says(t, got, "3 of cpu are asked for; the provider has 2500m left: its nodes have 12, of which slices have 8 and other pods request 1500m")
	rome.changeCPU("big", "2500m")
	rome.sliceBecomes("big", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	for _, name := range []string{"big", "third"} {
		rome.Delete(t, slice(rome, name))
	}
	milan.copies("milan", "more")
}

// condition sets what the consumer of a Tenant may do.
func (s *site) condition(tenant string, c authv1beta1.TenantCondition) {
	s.t.Helper()
	t := &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: tenant}}
	before := t.DeepCopy()
	t.Spec.TenantCondition = c
	if err := s.Client.Patch(s.t.Context(), t, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// testDrain: a consumer that is drained loses what it has by slice milan and gets nothing by another one. Both say so, and
// get it when the Tenant is active again. What it has copied stays as it is: nobody deletes and writes it again and again.
func testDrain(t *testing.T, rome, milan *site, tenant string) {
	var before, after authv1beta1.ResourceSlice
	milan.Read(t, milan.tenant, "milan", &before)
	milan.condition(tenant, authv1beta1.TenantDrained)
	milan.tenantBecomes(tenant, authv1beta1.ReasonTenantDrained)
	rome.Create(t, slice(rome, "meanwhile"))
	for _, name := range []string{"milan", "meanwhile"} {
		got := rome.sliceBecomes(name, authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonTenantDrained)
		says(t, got, "the provider has drained cluster rome")
		if len(got.Status.Resources)+len(got.Status.NodeLabels) > 0 {
			t.Errorf("slice %s of a drained consumer has %+v", name, got.Status)
		}
	}
	milan.condition(tenant, authv1beta1.TenantActive)
	for _, name := range []string{"milan", "meanwhile"} {
		rome.sliceBecomes(name, authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	}
	if err := milan.Get(t.Context(), milan.tenant, "milan", &after); err != nil || after.UID != before.UID {
		t.Errorf("the copy is %s, and was %s: %v", after.UID, before.UID, err)
	}
	rome.Delete(t, slice(rome, "meanwhile"))
	milan.Gone(t, slice(milan, "meanwhile"))
}

// rights is what a consumer may do at a provider: its tenant namespace, and there two kinds without their status.
func rights(t *testing.T, asRome client.Client, milan *site) {
	const group = "authentication.liqo.io"
	for _, c := range []struct {
		a    authorizationv1.ResourceAttributes
		want bool
	}{
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Group: group, Resource: "resourceslices", Verb: "create"}, true},
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Group: group, Resource: "renews", Verb: "patch"}, true},
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Group: group, Resource: "resourceslices", Subresource: "status", Verb: "get"}, true},
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Group: group, Resource: "resourceslices", Subresource: "status", Verb: "patch"}, false},
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Group: group, Resource: "renews", Subresource: "status", Verb: "update"}, false},
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Group: group, Resource: "tenants", Verb: "get"}, false},
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Resource: "secrets", Verb: "get"}, false},
		{authorizationv1.ResourceAttributes{Namespace: milan.tenant, Resource: "pods", Verb: "create"}, false},
		{authorizationv1.ResourceAttributes{Namespace: "default", Group: group, Resource: "resourceslices", Verb: "list"}, false},
		{authorizationv1.ResourceAttributes{Group: group, Resource: "resourceslices", Verb: "list"}, false},
		{authorizationv1.ResourceAttributes{Resource: "nodes", Verb: "list"}, false},
		{authorizationv1.ResourceAttributes{Resource: "namespaces", Verb: "get", Name: milan.tenant}, false},
	} {
		if got := may(t, asRome, c.a); got != c.want {
			t.Errorf("%s %s/%s %s in %q: %v", c.a.Verb, c.a.Group, c.a.Resource, c.a.Subresource, c.a.Namespace, got)
		}
	}
}

// TestProxy: milan's API server is reached through a proxy, and not otherwise.
func TestProxy(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:1" // nobody listens there
	rome := newSite(t, "rome", "milan", "liqo-tenant-milan")
	milan := newSite(t, "milan", "rome", "liqo-tenant-rome", func(o *authentication.Options) { o.APIServer.URL = "https://" + address })
	proxy, connections := connectProxy(t, address, strings.TrimPrefix(milan.Config.Host, "https://"))

	tenant := prove(t, rome, milan)
	tenant.Spec.ProxyURL = &proxy
	milan.Create(t, tenant)
	params := milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady).Status.AuthParams
	rome.Create(t, &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "controlplane-milan", Labels: peering("milan")},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity, AuthParams: *params, Namespace: new(milan.tenant)},
	})
	rome.Create(t, slice(rome, "milan", "cpu", "2"))
	rome.sliceBecomes("milan", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	if n := connections.Load(); n == 0 {
		t.Error("nobody asked the proxy")
	}
	// The kubeconfig of the slice names the proxy, too.
	before := connections.Load()
	_, user := who(t, rome.secret("kubeconfig-resourceslice-milan", "kubeconfig"))
	if want := credentials.SliceSubject("milan", "rome"); user.Username != want.CommonName || connections.Load() == before {
		t.Errorf("through the proxy milan knows the slice as %+v", user)
	}
	milan.StopAPIServer()
	rome.changeCPU("milan", "3")
	if err := milan.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Eventually(t, "the change is granted after an outage", func(ctx context.Context) error {
		var s authv1beta1.ResourceSlice
		if err := rome.Get(ctx, rome.tenant, "milan", &s); err != nil {
			return err
		}
		if cpu := s.Status.Resources[corev1.ResourceCPU]; cpu.String() != "3" {
			return fmt.Errorf("it has %s", cpu.String())
		}
		return nil
	})
}

// connectProxy runs an HTTP proxy that connects to one address, and to another one in its place. It counts.
func connectProxy(t *testing.T, address, instead string) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != address {
			t.Errorf("the proxy is asked to %s %s", r.Method, r.Host)
			http.Error(w, "not allowed", http.StatusForbidden)
			return
		}
		there, err := new(net.Dialer).DialContext(r.Context(), "tcp", instead)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			there.Close()
			return
		}
		connections.Add(1)
		end := func() { here.Close(); there.Close() }
		context.AfterFunc(t.Context(), end)
		fmt.Fprint(here, "HTTP/1.1 200 Connection established\r\n\r\n")
		for from, to := range map[net.Conn]net.Conn{here: there, there: here} {
			go func() {
				defer end()
				_, _ = io.Copy(to, from)
			}()
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, connections
}

// TestInTheWay has users take the names of what a handshake makes. It is left as it is, whoever wants the name is told,
// and goes on when it is free.
func TestInTheWay(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", "liqo-tenant-milan"), newSite(t, "milan", "rome", "liqo-tenant-rome")
	theirs := func(s *site, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: name}, Data: map[string][]byte{"a": []byte("b")}}
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "liqo-binding-liqo-remote-controlplane"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "somebody"}},
	}
	milan.Create(t, binding)
	milan.Create(t, theirs(milan, "liqo-remote-certificate"))
	milan.Create(t, prove(t, rome, milan))
	milan.tenantBecomes("rome", authv1beta1.ReasonRoleBindingInTheWay)
	milan.untouched(binding, binding.DeepCopy())
	milan.Delete(t, binding)
	milan.tenantBecomes("rome", authv1beta1.ReasonSecretInTheWay)
	milan.untouched(theirs(milan, "liqo-remote-certificate"), theirs(milan, "liqo-remote-certificate"))
	milan.Delete(t, theirs(milan, "liqo-remote-certificate"))
	milan.relabel(&authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "rome"}}) // sooner than by itself
	params := milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady).Status.AuthParams

	identity := &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "controlplane-milan", Labels: peering("milan")},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity, AuthParams: *params, Namespace: new(milan.tenant)},
	}
	rome.Create(t, theirs(rome, "kubeconfig-controlplane-milan"))
	rome.Create(t, identity)
	rome.event("controlplane-milan", authv1beta1.ReasonSecretInTheWay, "kubeconfig-controlplane-milan")
	rome.untouched(theirs(rome, "kubeconfig-controlplane-milan"), theirs(rome, "kubeconfig-controlplane-milan"))
	rome.Delete(t, theirs(rome, "kubeconfig-controlplane-milan"))
	rome.relabel(identity)
	rome.secret("kubeconfig-controlplane-milan", "kubeconfig")

	// milan has a slice of that name for rome.
	own := slice(milan, "same", "cpu", "5")
	own.Labels = peering("rome", "liqo.io/replication", "true", "liqo.io/remoteID", "rome")
	milan.Create(t, own)
	rome.Create(t, slice(rome, "same", "cpu", "1"))
	rome.event("kubeconfig-controlplane-milan", "NameTaken", "same")
	rome.Create(t, slice(rome, "other", "cpu", "1"))
	rome.sliceBecomes("other", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
	got := new(authv1beta1.ResourceSlice)
	milan.Read(t, milan.tenant, "same", got)
	if cpu := got.Spec.Resources[corev1.ResourceCPU]; cpu.String() != "5" || got.Labels["liqo.io/replication"] != "true" || got.Labels["liqo.io/replicated"] != "" {
		t.Errorf("milan's own slice became %+v", got)
	}
}

// TestEarlierRemains has the garbage collector not get rid of what an earlier Tenant and an earlier ResourceSlice had. Each
// says what it waits for, and goes on when that is gone.
func TestEarlierRemains(t *testing.T) {
	t.Parallel()
	rome := newSite(t, "rome", "milan", "liqo-tenant-milan")
	milan := newSite(t, "milan", "rome", "liqo-tenant-rome", func(o *authentication.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Minute) } // has it wait for long
	})
	left := func(o client.Object, name, kind, owner string) client.Object {
		o.SetNamespace(milan.tenant)
		o.SetName(name)
		o.SetLabels(map[string]string{"liqo.io/managed": "true"})
		o.SetFinalizers([]string{"example.org/wait"})
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: authv1beta1.GroupVersion.String(), Kind: kind, Name: owner, UID: "0", Controller: new(true)}})
		milan.Create(t, o)
		return o
	}
	release := func(o client.Object) {
		t.Helper()
		text := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := milan.Client.Patch(t.Context(), o, text); err != nil {
			t.Fatal(err)
		}
		if err := client.IgnoreNotFound(milan.Client.Delete(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
	}
	quota := left(new(corev1.ResourceQuota), "liqo-consumer", "Tenant", "rome")
	certificate := left(new(corev1.Secret), "liqo-remote-certificate", "Tenant", "rome")
	ofSlice := left(new(corev1.Secret), "liqo-remote-certificate-first", "ResourceSlice", "first")

	o := prove(t, rome, milan)
	milan.Create(t, o)
	names := func(what string) {
		t.Helper()
		controlplanetest.Eventually(t, "the Tenant names "+what, func(ctx context.Context) error {
			o := milan.tenantBecomes("rome", authv1beta1.ReasonEarlierRemains)
			if c := meta.FindStatusCondition(o.Status.Conditions, authv1beta1.ConditionReady); !strings.Contains(c.Message, what) {
				return fmt.Errorf("it says %s", c.Message)
			}
			return nil
		})
	}
	names("ResourceQuota liqo-consumer")
	release(quota)
	names("Secret liqo-remote-certificate")
	release(certificate)
	milan.relabel(o) // sooner than by itself
	params := milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady).Status.AuthParams

	rome.Create(t, &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "controlplane-milan", Labels: peering("milan")},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "milan", Type: authv1beta1.ControlPlaneIdentity, AuthParams: *params, Namespace: new(milan.tenant)},
	})
	rome.Create(t, slice(rome, "first", "cpu", "1"))
	says(t, rome.sliceBecomes("first", authv1beta1.ReasonEarlierRemains, authv1beta1.ReasonEarlierRemains), "Secret liqo-remote-certificate-first is that of an earlier ResourceSlice")
	release(ofSlice)
	copied := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "first"}}
	milan.relabel(copied)
	rome.sliceBecomes("first", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)
}

// untouched checks that an object of a user has no fields of the controllers.
func (s *site) untouched(o, before client.Object) {
	s.t.Helper()
	if err := s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		s.t.Fatal(err)
	}
	for _, f := range o.GetManagedFields() {
		if strings.HasPrefix(f.Manager, "sluice") || strings.HasPrefix(f.Manager, "liqo") {
			s.t.Errorf("%T %s has fields of %s", o, o.GetName(), f.Manager)
		}
	}
	if len(o.GetLabels())+len(o.GetOwnerReferences())+len(o.GetAnnotations()) != len(before.GetLabels()) {
		s.t.Errorf("%T %s has labels %v, owners %v, annotations %v", o, o.GetName(), o.GetLabels(), o.GetOwnerReferences(), o.GetAnnotations())
	}
}

// relabel wakes the controllers of an object.
func (s *site) relabel(o client.Object) {
	s.t.Helper()
	if err := s.Client.Patch(s.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"woken":"true"}}}`))); err != nil {
		s.t.Fatal(err)
	}
}

// TestDeclarative is what two users do by hand: credentials by other means than a handshake, and each missing piece is
// told where its author looks.
func TestDeclarative(t *testing.T) {
	t.Parallel()
	rome, milan := newSite(t, "rome", "milan", "consumer-side"), newSite(t, "milan", "rome", "provider-side")
	// The consumer first: what it will be allowed to do is nowhere yet.
	rome.Create(t, slice(rome, "milan", "cpu", "1", "memory", "1Gi"))
	rome.event("milan", authv1beta1.ReasonNotReplicated, "liqo.io/identity-type=ControlPlane")
	unlabelled := slice(rome, "unlabelled")
	delete(unlabelled.Labels, "liqo.io/replication")
	rome.Create(t, unlabelled)
	rome.event("unlabelled", authv1beta1.ReasonNotReplicated, "liqo.io/replication to true")
	milan.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "of-rome"}})
	credentials := credentialtest.TokenKubeconfig(milan.ServiceAccount(milan.tenant, "of-rome"))
	identity := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: rome.tenant, Name: "cplane-secret", Labels: peering("milan", "liqo.io/identity-type", "ControlPlane")},
		Data:       map[string][]byte{"kubeconfig": []byte(strings.ReplaceAll(string(credentials), "token:", "tokenFile: /etc/passwd, token:"))},
	}
	rome.Create(t, identity)
	rome.event("cplane-secret", "AnnotationMissing", "liqo.io/remote-tenant-namespace")
	identity.Annotations = map[string]string{"liqo.io/remote-tenant-namespace": milan.tenant}
	rome.update(identity)
	rome.event("cplane-secret", "KubeconfigInvalid", "tokenFile")
	identity.Data["kubeconfig"] = credentials
	rome.update(identity)
	rome.event("cplane-secret", "RoleBindingMissing", "liqo-remote-controlplane")

	milan.Create(t, &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "my-tenant", Labels: peering("rome")},
		Spec:       authv1beta1.TenantSpec{ClusterID: "rome", AuthzPolicy: authv1beta1.TolerateNoHandshake, TenantCondition: authv1beta1.TenantActive},
	})
	milan.tenantBecomes("my-tenant", authv1beta1.ReasonRoleBindingMissing)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "liqo-binding-liqo-remote-controlplane", Labels: peering("rome")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: milan.tenant, Name: "of-rome"}},
	}
	milan.Create(t, binding.DeepCopy())
	milan.tenantBecomes("my-tenant", authv1beta1.ReasonTenantReady)
	milan.Delete(t, binding)
	milan.tenantBecomes("my-tenant", authv1beta1.ReasonRoleBindingMissing)
	milan.Create(t, binding)
	if params := milan.tenantBecomes("my-tenant", authv1beta1.ReasonTenantReady).Status.AuthParams; params != nil {
		t.Error("a Tenant without a handshake was given a certificate")
	}
	rome.sliceBecomes("milan", authv1beta1.ReasonSliceAuthenticationAccepted, authv1beta1.ReasonSliceResourcesAccepted)

	t.Run("drain", func(t *testing.T) { testDrain(t, rome, milan, "my-tenant") })
	t.Run("the provider takes it back", func(t *testing.T) {
		milan.Delete(t, &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "my-tenant"}})
		rome.sliceBecomes("milan", authv1beta1.ReasonTenantMissing, authv1beta1.ReasonTenantMissing)
	})
	t.Run("the namespaces can always be deleted", func(t *testing.T) {
		for _, s := range []*site{rome, milan} {
			s.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant}})
			s.Gone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant}})
		}
	})
}

// TestWithoutSigner: where the cluster signs nothing, a consumer with credentials of its own gets resources all the same.
func TestWithoutSigner(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	rome := newSite(t, "rome", "milan", "consumer-side")
	milan := newSite(t, "milan", "rome", "provider-side", func(o *authentication.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	milan.Apply(noSigner)
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: newRequest(t), SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
	milan.Create(t, csr)
	controlplanetest.Eventually(t, "nothing is signed", func(ctx context.Context) error {
		if err := milan.Client.Status().Update(ctx, csr, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "this cluster signs nothing") {
			return fmt.Errorf("it gets %v", err)
		}
		return nil
	})

	rome.Create(t, admit(rome, milan))
	rome.Create(t, slice(rome, "milan", "cpu", "2"))
	controlplanetest.Eventually(t, "milan has approved what nobody signs", func(ctx context.Context) error {
		var list certificatesv1.CertificateSigningRequestList
		if err := milan.Client.List(ctx, &list, client.MatchingLabels(peering("rome"))); err != nil {
			return err
		}
		if len(list.Items) != 1 || len(list.Items[0].Status.Conditions) != 1 || len(list.Items[0].Status.Certificate) > 0 {
			return fmt.Errorf("there are %+v", list.Items)
		}
		return nil
	})
	later.Store(int64(time.Minute))
	got := rome.sliceBecomes("milan", authv1beta1.ReasonCredentialsByUser, authv1beta1.ReasonSliceResourcesAccepted)
	subject := credentials.SliceSubject("milan", "rome")
	for _, want := range []string{subject.CommonName, "group rome", "liqo.io/identity-type=ResourceSlice", "liqo.io/resourceslice-name=milan"} {
		if says := got.Status.Conditions[0].Message; !strings.Contains(says, want) {
			t.Errorf("the condition says %q, not %q", says, want)
		}
	}
	if cpu := got.Status.Resources[corev1.ResourceCPU]; cpu.String() != "2" || got.Status.AuthParams != nil {
		t.Errorf("granted: %+v", got.Status)
	}
	if err := rome.Get(t.Context(), rome.tenant, "resourceslice-milan", new(authv1beta1.Identity)); !apierrors.IsNotFound(err) {
		t.Errorf("an Identity without credentials: %v", err)
	}

	t.Run("a copy without a request", func(t *testing.T) {
		milan.Create(t, &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "bare", Labels: peering("rome", "liqo.io/replicated", "true", "liqo.io/originID", "another-origin")},
			Spec:       authv1beta1.ResourceSliceSpec{ConsumerClusterID: new(authv1beta1.ClusterID("rome")), ProviderClusterID: new(authv1beta1.ClusterID("milan"))},
		})
		milan.sliceBecomes("bare", authv1beta1.ReasonCredentialsByUser, authv1beta1.ReasonSliceResourcesAccepted)
	})
}

// admit lets rome ask milan, without a handshake, and returns the Secret that it needs for that.
func admit(rome, milan *site) *corev1.Secret {
	milan.t.Helper()
	milan.Create(milan.t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "of-rome"}})
	milan.Create(milan.t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "of-rome", Labels: peering("rome")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: milan.tenant, Name: "of-rome"}},
	})
	milan.Create(milan.t, &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "rome", Labels: peering("rome")},
		Spec:       authv1beta1.TenantSpec{ClusterID: "rome", AuthzPolicy: authv1beta1.TolerateNoHandshake},
	})
	milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rome.tenant, Name: "cplane-secret", Labels: peering("milan", "liqo.io/identity-type", "ControlPlane"),
			Annotations: map[string]string{"liqo.io/remote-tenant-namespace": milan.tenant},
		},
		Data: map[string][]byte{"kubeconfig": credentialtest.TokenKubeconfig(milan.ServiceAccount(milan.tenant, "of-rome"))},
	}
}

// noSigner refuses every certificate.
const noSigner = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-signer}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [certificates.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [certificatesigningrequests/status]}
  validations:
  - {expression: "false", message: this cluster signs nothing}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-signer}
spec: {policyName: no-signer, validationActions: [Deny]}
`

// newRequest is a certificate signing request of nobody in particular.
func newRequest(t *testing.T) []byte {
	t.Helper()
	k, err := credentials.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	r, err := k.Request(credentials.Subject{CommonName: "somebody", Organization: "nobodies"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *site) update(o client.Object) {
	s.t.Helper()
	if err := s.Client.Update(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}
