package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

const countShadowPods = "count/shadowpods.offloading.liqo.io"

// bounds are what milan lets be in a namespace of another cluster.
var bounds = corev1.ResourceList{
	"configmaps": resource.MustParse("2"), countShadowPods: resource.MustParse("2"),
	"services.loadbalancers": resource.MustParse("0"), "services.nodeports": resource.MustParse("0"),
}

// quotaIs waits until the ResourceQuota of shop-rome bounds these, and no others.
func (s *site) quotaIs(q *corev1.ResourceQuota, want ...corev1.ResourceName) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("the ResourceQuota bounds %v", want), func(ctx context.Context) error {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(q.Spec.Hard)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("it bounds %v", got)
		}
		return nil
	})
}

// count plays the kube-controller-manager, which counts what a ResourceQuota bounds: nothing so far, and of some kinds it
// does not know.
func (s *site) count(q *corev1.ResourceQuota, except ...corev1.ResourceName) {
	s.t.Helper()
	controlplanetest.EditStatus(s.t, s.Cluster, q, func(q *corev1.ResourceQuota) {
		q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{}}
		for name := range q.Spec.Hard {
			if !slices.Contains(except, name) {
				q.Status.Used[name] = resource.MustParse("0")
			}
		}
	})
}

// TestBounds is what a consumer may do too much of in its namespaces, as its user.
func TestBounds(t *testing.T) {
	milan := newSite(t, "milan")
	tenant := milan.authorize("rome")
	rome := milan.as("milan-0123456789ab", "rome")
	milan.Create(t, namespaceMap(tenant, "milan", "rome", "shop", "shop-rome"))
	milan.mapping(tenant, "milan", "shop", "shop-rome", "Accepted")
	q := &corev1.ResourceQuota{ObjectMeta: object("shop-rome", tenant)}
	all := slices.Collect(maps.Keys(bounds))
	milan.quotaIs(q, all...)
	milan.count(q)

	service := func(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
		o := &corev1.Service{ObjectMeta: object("shop-rome", name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		if change != nil {
			change(&o.Spec)
		}
		return o
	}
	pod := offloadingv1beta1.ShadowPodSpec{Pod: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	// refused tries until an API server knows a policy or a count, which takes it a moment.
	refused := func(t *testing.T, what, why string, do func(ctx context.Context) error) {
		t.Helper()
		controlplanetest.Eventually(t, "forbidden: "+what, func(ctx context.Context) error {
			if err := do(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
	t.Run("what it asks for", func(t *testing.T) {
		consumer := milan.as("rome")
		many := map[string]string{}
		for i := range 1001 {
			many[fmt.Sprintf("n-%d", i)] = "x"
		}
		for what, mapping := range map[string]map[string]string{"too many namespaces": many, "a long name": {"a": strings.Repeat("x", 254)}, "a long name here": {strings.Repeat("x", 254): "a"}} {
			m := namespaceMap(tenant, "hostile", "rome")
			m.Spec.DesiredMapping = mapping
			if err := consumer.Create(t.Context(), m, client.DryRunAll); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	t.Run("numbers", func(t *testing.T) {
		for what, o := range map[string]client.Object{
			"a load balancer": service("a", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }),
			"a node port":     service("a", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }),
		} {
			refused(t, what, "exceeded quota", func(ctx context.Context) error {
				return rome.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
			})
		}
		for kind, make := range map[string]func(name string) client.Object{
			"ConfigMap": func(name string) client.Object { return &corev1.ConfigMap{ObjectMeta: object("shop-rome", name)} },
			"ShadowPod": func(name string) client.Object {
				return &offloadingv1beta1.ShadowPod{ObjectMeta: object("shop-rome", name), Spec: pod}
			},
		} {
			for _, name := range []string{"first", "second"} {
				if err := rome.Create(t.Context(), make(name)); err != nil {
					t.Errorf("%s %s: %v", name, kind, err)
				}
			}
			if err := rome.Create(t.Context(), make("third")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
				t.Errorf("a third %s: %v", kind, err)
			}
		}
		if err := rome.Create(t.Context(), &corev1.Secret{ObjectMeta: object("shop-rome", "any")}); err != nil {
			t.Errorf("what is not bounded: %v", err)
		}
	})
	t.Run("Events, which nothing counts", func(t *testing.T) {
		e := &corev1.Event{ObjectMeta: object("shop-rome", "a"), InvolvedObject: corev1.ObjectReference{Namespace: "shop-rome"}}
		if err := rome.Create(t.Context(), e); !apierrors.IsForbidden(err) {
			t.Errorf("a consumer makes one: %v", err)
		}
	})
	t.Run("size", func(t *testing.T) {
		const most = 256 << 10
		secret := func(n int) *corev1.Secret { // which is written as base64
			return &corev1.Secret{ObjectMeta: object("shop-rome", "large"), Data: map[string][]byte{"key": make([]byte, n)}}
		}
		refused(t, "a Secret", "offloading.maxObjectSize", func(ctx context.Context) error { return rome.Create(ctx, secret(most*3/4+3), client.DryRunAll) })
		fits := secret(most*3/4 - 6)
		if err := rome.Create(t.Context(), fits); err != nil {
			t.Errorf("one that fits: %v", err)
		}
		if err := rome.Update(t.Context(), secret(most)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "and this cluster takes 262144") {
			t.Errorf("one that grows: %v", err)
		}
		m := &corev1.ConfigMap{ObjectMeta: object("shop-rome", "first"), Data: map[string]string{"a": strings.Repeat("x", most/2)}, BinaryData: map[string][]byte{"b": make([]byte, most/2)}}
		if err := rome.Update(t.Context(), m); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "offloading.maxObjectSize") {
			t.Errorf("a ConfigMap with both kinds of data: %v", err)
		}
		milan.Create(t, &corev1.Secret{ObjectMeta: object("shop-rome", "own"), Data: map[string][]byte{"key": make([]byte, most)}}) // an administrator may
	})
	t.Run("credentials of this cluster", func(t *testing.T) {
		token := func(kind corev1.SecretType) *corev1.Secret {
			o := object("shop-rome", "token")
			o.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			return &corev1.Secret{ObjectMeta: o, Type: kind}
		}
		for _, kind := range []corev1.SecretType{corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken} {
			refused(t, string(kind), "no credentials of this one", func(ctx context.Context) error { return rome.Create(ctx, token(kind), client.DryRunAll) })
		}
	})
	t.Run("externalIPs", func(t *testing.T) {
		take := func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.1"} }
		refused(t, "a Service", "externalIPs", func(ctx context.Context) error { return rome.Create(ctx, service("taker", take), client.DryRunAll) })
		plain := service("plain", nil)
		if err := rome.Create(t.Context(), plain); err != nil {
			t.Fatal(err)
		}
		if err := patch(t, rome, plain, `{"spec":{"externalIPs":["192.0.2.1"]}}`); !apierrors.IsForbidden(err) {
			t.Errorf("one that is there: %v", err)
		}
		given := service("given", take)
		milan.Create(t, given) // an administrator may
		if err := patch(t, rome, given, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
			t.Errorf("another change of one that an administrator has given an address: %v", err)
		}
		if err := patch(t, rome, given, `{"spec":{"externalIPs":["192.0.2.1","192.0.2.2"]}}`); !apierrors.IsForbidden(err) {
			t.Errorf("one more: %v", err)
		}
	})
	t.Run("finalizers", func(t *testing.T) {
		for kind, o := range map[string]client.Object{
			"Secret":                &corev1.Secret{ObjectMeta: object("shop-rome", "kept")},
			"Service":               service("kept", nil),
			"PersistentVolumeClaim": claim("kept"),
			"Ingress":               &networkingv1.Ingress{ObjectMeta: object("shop-rome", "kept"), Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "a", Port: networkingv1.ServiceBackendPort{Number: 80}}}}},
			"ShadowEndpointSlice": &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: object("shop-rome", "kept"), Spec: offloadingv1beta1.ShadowEndpointSliceSpec{
				Template: offloadingv1beta1.EndpointSliceTemplate{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}},
			}},
		} {
			refused(t, "a new "+kind, "finalizers", func(ctx context.Context) error {
				held := o.DeepCopyObject().(client.Object)
				held.SetFinalizers([]string{"example.org/for-ever"})
				return rome.Create(ctx, held, client.DryRunAll)
			})
			if err := rome.Create(t.Context(), o); err != nil {
				t.Errorf("%s without: %v", kind, err)
				continue
			}
			if err := patch(t, rome, o, `{"metadata":{"finalizers":["example.org/for-ever"]}}`); !apierrors.IsForbidden(err) {
				t.Errorf("%s that is there: %v", kind, err)
			}
			if err := patch(t, rome, o, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
				t.Errorf("%s, another change: %v", kind, err)
			}
		}
		for _, o := range []client.Object{&corev1.ConfigMap{ObjectMeta: object("shop-rome", "first")}, &offloadingv1beta1.ShadowPod{ObjectMeta: object("shop-rome", "first")}} {
			if err := patch(t, rome, o, `{"metadata":{"finalizers":["example.org/for-ever"]}}`); !apierrors.IsForbidden(err) {
				t.Errorf("%T: %v", o, err)
			}
		}
		balanced := service("plain", nil)
		if err := patch(t, milan.Client, balanced, `{"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"]}}`); err != nil {
			t.Fatal(err)
		}
		if err := patch(t, rome, balanced, `{"metadata":{"finalizers":null}}`); !apierrors.IsForbidden(err) {
			t.Errorf("one of this cluster, taken away: %v", err)
		}
	})
	t.Run("the ResourceQuota", func(t *testing.T) {
		if err := patch(t, rome, q, `{"spec":{"hard":{"configmaps":"100"}}}`); !apierrors.IsForbidden(err) {
			t.Errorf("a consumer changes it: %v", err)
		}
		if err := rome.Delete(t.Context(), q); !apierrors.IsForbidden(err) {
			t.Errorf("a consumer deletes it: %v", err)
		}
		// An API server refuses every object of a kind whose number is not known.
		milan.count(q, countShadowPods)
		milan.quotaIs(q, slices.DeleteFunc(slices.Clone(all), func(r corev1.ResourceName) bool { return r == countShadowPods })...)
		milan.stop()
		milan.Delete(t, q)
		theirs := &corev1.ResourceQuota{ObjectMeta: object("shop-rome", tenant), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"secrets": resource.MustParse("1")}}}
		milan.Create(t, theirs)
		milan.run()
		milan.Event(t, tenant, "milan", "NamespaceNotMade", "ResourceQuota")
		milan.mapping(tenant, "milan", "shop", "shop-rome", "CreationLoopBackOff")
		now := new(corev1.ResourceQuota)
		if err := milan.Get(t.Context(), "shop-rome", tenant, now); err != nil || !equality.Semantic.DeepEqual(now.Spec, theirs.Spec) {
			t.Errorf("somebody's own is %+v, %v", now.Spec, err)
		}
		milan.Delete(t, theirs)
		milan.stop()
		milan.run()
		milan.quotaIs(q, all...)
		milan.mapping(tenant, "milan", "shop", "shop-rome", "Accepted")
		milan.Delete(t, q)
		controlplanetest.Eventually(t, "it comes back", func(ctx context.Context) error {
			again := new(corev1.ResourceQuota)
			if err := milan.Get(ctx, "shop-rome", tenant, again); err != nil {
				return err
			}
			if again.UID == q.UID {
				return errors.New("it is the same")
			}
			return nil
		})
	})
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: object("shop-rome", name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
	}}
}
