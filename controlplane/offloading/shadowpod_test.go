package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// shadow is a ShadowPod with any spec.
func shadow(name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"pod": spec}}}
	o.SetGroupVersionKind(offloadingv1beta1.GroupVersion.WithKind("ShadowPod"))
	o.SetNamespace("shop-rome")
	o.SetName(name)
	return o
}

func withCPU(cpu string) map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "a", "image": "b", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}}}
}

// podIs waits for the Pod of a ShadowPod, which is not the one of the UID before.
func (s *site) podIs(name string, before *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	p := new(corev1.Pod)
	controlplanetest.Eventually(s.t, "there is a pod "+name, func(ctx context.Context) error {
		if err := s.Get(ctx, "shop-rome", name, p); err != nil {
			return err
		}
		if before != nil && p.UID == before.UID {
			return errors.New("it is the one of before")
		}
		return nil
	})
	return p
}

// waitsFor waits until a ShadowPod says why it has no pod; no reason: that it does not, any more.
func (s *site) waitsFor(name, reason, message string) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("ShadowPod %s has the reason %q", name, reason), func(ctx context.Context) error {
		o := new(offloadingv1beta1.ShadowPod)
		if err := s.Get(ctx, "shop-rome", name, o); err != nil {
			return err
		}
		if got := o.Status; got.Reason != reason || !strings.Contains(got.Message, message) || reason == "" && got.Message != "" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

func (s *site) phaseIs(name string, want corev1.PodPhase) {
	s.t.Helper()
	controlplanetest.Eventually(s.t, fmt.Sprintf("ShadowPod %s is %s", name, want), func(ctx context.Context) error {
		o := shadow(name, nil)
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != string(want) {
			return fmt.Errorf("it is %q", phase)
		}
		return nil
	})
}

// TestShadowPods makes pods as the user of a slice, with room, without, and with specs that mean no good.
func TestShadowPods(t *testing.T) {
	milan := newSite(t, "milan")
	tenant := milan.authorize("rome")
	rome := milan.as("milan-0123456789ab", "rome")
	create := func(o client.Object) {
		t.Helper()
		if err := rome.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	milan.Create(t, namespaceMap(tenant, "milan", "rome", "shop", "shop-rome"))
	milan.mapping(tenant, "milan", "shop", "shop-rome", "Accepted")
	create(shadow("first", withCPU("1500m")))
	milan.Event(t, "shop-rome", "first", "QuotaMissing", "ResourceSlice")
	milan.Create(t, sliceOf(t, tenant, "rome", "milan", corev1.ResourceList{"cpu": resource.MustParse("2")}))
	first := milan.podIs("first", nil)
	milan.phaseIs("first", corev1.PodPending)

	t.Run("a spec that cannot be read hides no others", func(t *testing.T) {
		create(shadow("hostile", map[string]any{"containers": "a"}))
		create(shadow("unknown", map[string]any{"containers": []any{}, "ofTheYear2030": true}))
		milan.Event(t, "shop-rome", "hostile", "PodRefused", "cannot be read")
		milan.Event(t, "shop-rome", "unknown", "PodRefused", "ofTheYear2030")
		milan.phaseIs("hostile", corev1.PodPending)
	})
	t.Run("what is too large is not held", func(t *testing.T) {
		large := shadow("large", withCPU("1m"))
		large.SetAnnotations(map[string]string{"a": strings.Repeat("x", 100<<10)})
		create(large)
		milan.Event(t, "shop-rome", "large", "PodRefused", "labels and annotations are larger than 64 KiB")
		spec := withCPU("1m")
		spec["containers"].([]any)[0].(map[string]any)["args"] = []any{strings.Repeat("x", 130<<10)}
		create(shadow("long", spec))
		milan.Event(t, "shop-rome", "long", "PodRefused", "larger than 128 KiB")
	})
	t.Run("what the provider decides", func(t *testing.T) {
		node := withCPU("1m")
		node["nodeName"] = "master"
		create(shadow("node", node))
		milan.Event(t, "shop-rome", "node", "PodRefused", "spec.pod.nodeName")
		host := withCPU("1m")
		host["hostNetwork"] = true
		create(shadow("host", host))
		milan.Event(t, "shop-rome", "host", "PodRefused", "PodSecurity")
		milan.phaseIs("host", corev1.PodPending)
		milan.waitsFor("host", "PodRefused", "PodSecurity")
	})
	t.Run("an image policy of the provider", func(t *testing.T) {
		text, err := os.ReadFile("../../docs/examples/image-policy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var policy []client.Object
		for _, part := range strings.Split(string(text), "\n---\n") {
			o := new(unstructured.Unstructured)
			if err := yaml.Unmarshal([]byte(part), o); err != nil {
				t.Fatal(err)
			}
			policy = append(policy, o)
			milan.Create(t, o)
		}
		probe := func(image string) error {
			return milan.Client.Create(t.Context(), &corev1.Pod{ObjectMeta: object("shop-rome", "probe", "app", "shop"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}, client.DryRunAll)
		}
		controlplanetest.Eventually(t, "the API server has the policy", func(context.Context) error {
			if err := probe("b"); err == nil || !strings.Contains(err.Error(), "images of consumers") {
				return fmt.Errorf("a pod is created: %v", err)
			}
			return nil
		})
		withImage := func(image string) map[string]any {
			spec := withCPU("1m")
			spec["containers"].([]any)[0].(map[string]any)["image"] = image
			return spec
		}
		create(shadow("unwanted", withImage("registry.example.org.evil.example/shop")))
		milan.Event(t, "shop-rome", "unwanted", "PodRefused", "images of consumers must come from registry.example.org")
		milan.phaseIs("unwanted", corev1.PodPending)
		create(shadow("wanted", withImage("registry.example.org/shop")))
		p := milan.podIs("wanted", nil)
		if err := patch(t, rome, shadow("wanted", nil), `{"spec":{"pod":{"containers":[{"name":"a","image":"b","resources":{"requests":{"cpu":"1m"}}}]}}}`); err != nil {
			t.Fatal(err)
		}
		milan.Event(t, "shop-rome", "wanted", "PodRefused", "stays as it is")
		if now := milan.podIs("wanted", nil); now.UID != p.UID || now.Spec.Containers[0].Image != "registry.example.org/shop" {
			t.Errorf("the pod has the image %s", now.Spec.Containers[0].Image)
		}
		for _, o := range []client.Object{policy[1], policy[0], shadow("unwanted", nil), shadow("wanted", nil)} {
			milan.Delete(t, o)
		}
		controlplanetest.Eventually(t, "the API server has no policy", func(context.Context) error { return probe("b") })
	})
	t.Run("a pod of somebody else", func(t *testing.T) {
		theirs := &corev1.Pod{ObjectMeta: object("shop-rome", "taken", "app", "shop"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "shop"}}}}
		milan.Create(t, theirs)
		create(shadow("taken", withCPU("1m")))
		milan.Event(t, "shop-rome", "taken", "PodInTheWay", "left as it is")
		milan.waitsFor("taken", "PodInTheWay", "left as it is")
		milan.Delete(t, shadow("taken", nil))
		milan.Gone(t, shadow("taken", nil))
		now := new(corev1.Pod)
		milan.Read(t, "shop-rome", "taken", now)
		if diff := cmp.Diff(theirs.ObjectMeta, now.ObjectMeta); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		milan.Delete(t, now, client.GracePeriodSeconds(0))
	})
	t.Run("over quota", func(t *testing.T) {
		create(shadow("second", withCPU("600m")))
		// 1500m, or a little more while the API server judges a pod that it will refuse.
		milan.Event(t, "shop-rome", "second", "QuotaExceeded", "600m of cpu are asked for; of 2, which are granted, other pods have 150")
		milan.phaseIs("second", corev1.PodPending)
		milan.waitsFor("second", "QuotaExceeded", "600m of cpu are asked for")
		limited := withCPU("1m")
		limited["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"limits": map[string]any{"cpu": "5"}}
		create(shadow("limited", limited))
		milan.Event(t, "shop-rome", "limited", "QuotaExceeded", "5 of cpu are asked for")
		// One that has ended gives back what it took, and is not made again.
		first.Status.Phase = corev1.PodSucceeded
		if err := milan.Client.Status().Update(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		milan.phaseIs("first", corev1.PodSucceeded)
		second := milan.podIs("second", nil)
		second.Status.Phase = corev1.PodRunning
		if err := milan.Client.Status().Update(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		milan.phaseIs("second", corev1.PodRunning)
		milan.waitsFor("second", "", "")
		milan.Delete(t, first, client.GracePeriodSeconds(0))
		milan.Gone(t, first)
	})
	t.Run("a pod that vanishes comes back, also while the controller restarts", func(t *testing.T) {
		before := milan.podIs("second", nil)
		milan.stop()
		milan.Delete(t, before, client.GracePeriodSeconds(0))
		milan.run()
		again := milan.podIs("second", before)
		if again.Spec.AutomountServiceAccountToken == nil || *again.Spec.AutomountServiceAccountToken || again.Labels["liqo.io/managed-by"] != "shadowpod" {
			t.Errorf("%+v", again.ObjectMeta)
		}
		err := milan.Get(t.Context(), "shop-rome", "first", new(corev1.Pod))
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("a pod that has ended is there again: %v", err)
		}
	})
	t.Run("a change reaches the living pod", func(t *testing.T) {
		before := milan.podIs("second", nil)
		change := func(text string) {
			t.Helper()
			if err := patch(t, rome, shadow("second", nil), text); err != nil {
				t.Fatal(err)
			}
		}
		is := func(image string, deadline int64) {
			t.Helper()
			controlplanetest.Eventually(t, "the pod has changed", func(ctx context.Context) error {
				p := new(corev1.Pod)
				if err := milan.Get(ctx, "shop-rome", "second", p); err != nil {
					return err
				}
				if p.UID != before.UID || p.Spec.Containers[0].Image != image || p.Spec.ActiveDeadlineSeconds == nil || *p.Spec.ActiveDeadlineSeconds != deadline {
					return fmt.Errorf("%s %+v", p.UID, p.Spec)
				}
				return nil
			})
		}
		change(`{"spec":{"pod":{"activeDeadlineSeconds":1000,"containers":[{"name":"a","image":"c","resources":{"requests":{"cpu":"600m"}}}]}}}`)
		is("c", 1000)
		// One that Kubernetes refuses leaves the pod as it is, and the next one goes on from there.
		change(`{"spec":{"pod":{"activeDeadlineSeconds":2000}}}`)
		milan.Event(t, "shop-rome", "second", "PodRefused", "stays as it is")
		change(`{"spec":{"pod":{"activeDeadlineSeconds":500,"containers":[{"name":"a","image":"d"}]}}}`)
		is("d", 500)
	})
	t.Run("labels and annotations reach the living pod", func(t *testing.T) {
		before := milan.podIs("second", nil)
		is := func(what, label, note string) {
			t.Helper()
			controlplanetest.Eventually(t, what, func(ctx context.Context) error {
				p := new(corev1.Pod)
				if err := milan.Get(ctx, "shop-rome", "second", p); err != nil {
					return err
				}
				if p.UID != before.UID || p.Labels["tier"] != label || p.Annotations["note"] != note || p.Labels["liqo.io/managed-by"] != "shadowpod" || p.Annotations["plugin"] != "own" {
					return fmt.Errorf("%s %v %v", p.UID, p.Labels, p.Annotations)
				}
				return nil
			})
		}
		if err := patch(t, milan.Client, before, `{"metadata":{"annotations":{"plugin":"own"}}}`); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ name, text, label, note string }{
			{"they come", `{"metadata":{"labels":{"tier":"front","liqo.io/managed-by":"nobody"},"annotations":{"note":"a","plugin":"theirs"}}}`, "front", "a"},
			{"they change", `{"metadata":{"labels":{"tier":"back"},"annotations":{"note":"b"}}}`, "back", "b"},
			{"they go", `{"metadata":{"labels":{"tier":null},"annotations":{"note":null}}}`, "", ""},
		} {
			if err := patch(t, rome, shadow("second", nil), step.text); err != nil {
				t.Fatal(err)
			}
			is(step.name, step.label, step.note)
		}
	})
	t.Run("a slice that is renamed grants nothing twice", func(t *testing.T) {
		old := sliceOf(t, tenant, "rome", "milan", corev1.ResourceList{"cpu": resource.MustParse("2")})
		milan.Delete(t, old)
		milan.Gone(t, &authv1beta1.ResourceSlice{ObjectMeta: object(tenant, "milan")})
		again := sliceOf(t, tenant, "rome", "milan-again", old.Spec.Resources)
		again.Spec.ProviderClusterID = old.Spec.ProviderClusterID
		milan.Create(t, again)
		controlplanetest.Eventually(t, "the new slice has its Quota", func(ctx context.Context) error {
			var quotas offloadingv1beta1.QuotaList
			if err := milan.Client.List(ctx, &quotas, client.InNamespace(tenant)); err != nil {
				return err
			}
			if !slices.ContainsFunc(quotas.Items, func(q offloadingv1beta1.Quota) bool { return metav1.IsControlledBy(&q, again) }) {
				return errors.New("it has none")
			}
			return nil
		})
		create(shadow("third", withCPU("1500m")))
		milan.Event(t, "shop-rome", "third", "QuotaExceeded", "600m of it those of ResourceSlices that are gone or not granted any more")
		create(shadow("fourth", withCPU("1400m")))
		milan.podIs("fourth", nil)
	})
	t.Run("the end", func(t *testing.T) {
		if err := rome.Delete(t.Context(), shadow("second", nil)); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "the pod goes", func(ctx context.Context) error {
			p := new(corev1.Pod)
			if err := milan.Get(ctx, "shop-rome", "second", p); err != nil {
				return client.IgnoreNotFound(err)
			}
			if p.DeletionTimestamp.IsZero() {
				return errors.New("it is there")
			}
			return nil
		})
	})
}
