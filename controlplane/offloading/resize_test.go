package offloading_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// requesting is the spec of a pod that requests cpu and 16Mi of memory.
func requesting(cpu string) map[string]any {
	spec := withCPU(cpu)
	spec["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"requests": map[string]any{"cpu": cpu, "memory": "16Mi"}}
	return spec
}

// kubeletHas plays the kubelet of a pod: its container runs, with so much cpu.
func (s *site) kubeletHas(name, cpu string) {
	s.t.Helper()
	p := s.podIs(name, nil)
	controlplanetest.EditStatus(s.t, s.Cluster, p, func(p *corev1.Pod) {
		has := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("16Mi")}
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "a", State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)}, AllocatedResources: has, Resources: &corev1.ResourceRequirements{Requests: has},
		}}
	})
}

// podHas waits until the pod of a ShadowPod requests so much cpu.
func (s *site) podHas(name, cpu string) *corev1.Pod {
	s.t.Helper()
	p := new(corev1.Pod)
	controlplanetest.Eventually(s.t, fmt.Sprintf("pod %s requests %s", name, cpu), func(ctx context.Context) error {
		if err := s.Get(ctx, "shop-rome", name, p); err != nil {
			return err
		}
		if got := p.Spec.Containers[0].Resources.Requests.Cpu(); got.String() != cpu {
			return fmt.Errorf("it requests %s", got)
		}
		return nil
	})
	return p
}

// resizeTo requests so much cpu for a container.
func resizeTo(container, cpu string) client.Patch {
	return client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"resources":{"requests":{"cpu":%q}}}]}}`, container, cpu))
}

// TestResize resizes the pods of ShadowPods in place, with room, without, and as Kubernetes does not allow it.
func TestResize(t *testing.T) {
	milan := newSite(t, "milan")
	tenant := milan.authorize("rome")
	rome := milan.as("milan-0123456789ab", "rome")
	milan.Create(t, namespaceMap(tenant, "milan", "rome", "shop", "shop-rome"))
	milan.mapping(tenant, "milan", "shop", "shop-rome", "Accepted")
	milan.Create(t, sliceOf(t, tenant, "rome", "milan", corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "ephemeral-storage": resource.MustParse("1Gi")}))
	create := func(name, cpu string) {
		t.Helper()
		if err := rome.Create(t.Context(), shadow(name, requesting(cpu))); err != nil {
			t.Fatal(err)
		}
	}
	// ask changes what is asked for of a resource of the only container.
	ask := func(name, resources string) {
		t.Helper()
		if err := patch(t, rome, shadow(name, nil), `{"spec":{"pod":{"containers":[{"name":"a","image":"b","resources":`+resources+`}]}}}`); err != nil {
			t.Fatal(err)
		}
	}
	label := func(tier string) {
		t.Helper()
		if err := patch(t, rome, shadow("web", nil), fmt.Sprintf(`{"metadata":{"labels":{"tier":%q}}}`, tier)); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "the pod has the label "+tier, func(ctx context.Context) error {
			p := new(corev1.Pod)
			if err := milan.Get(ctx, "shop-rome", "web", p); err != nil {
				return err
			}
			if p.Labels["tier"] != tier {
				return fmt.Errorf("it has %v", p.Labels)
			}
			return nil
		})
	}
	cpu := func(cpu string) string { return fmt.Sprintf(`{"requests":{"cpu":%q,"memory":"16Mi"}}`, cpu) }
	create("web", "500m")
	create("db", "1")
	first := milan.podHas("web", "500m")
	milan.podHas("db", "1")
	milan.kubeletHas("web", "500m")
	milan.kubeletHas("db", "1")

	t.Run("with room", func(t *testing.T) {
		ask("web", cpu("800m"))
		now := milan.podHas("web", "800m")
		want := first.DeepCopy()
		want.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("800m")
		if diff := cmp.Diff(want.Spec, now.Spec); diff != "" || now.UID != first.UID {
			t.Errorf("%s, which was %s (-want +got):\n%s", now.UID, first.UID, diff)
		}
	})
	t.Run("it waits for room, and other changes do not", func(t *testing.T) {
		ask("web", cpu("1200m"))
		milan.Event(t, "shop-rome", "web", "QuotaExceeded", "the pod keeps its resources for now: 1200m of cpu are asked for; of 2, which are granted, other pods have 1")
		label("front")
		milan.podHas("web", "800m")
	})
	t.Run("what a kubelet has yet to take back is no room, also after a restart", func(t *testing.T) {
		milan.stop()
		milan.run()
		ask("db", cpu("700m"))
		milan.podHas("db", "700m")
		create("third", "300m")
		milan.Event(t, "shop-rome", "third", "QuotaExceeded", "300m of cpu are asked for; of 2, which are granted, other pods have 1800m")
		if err := rome.Delete(t.Context(), shadow("third", nil)); err != nil {
			t.Fatal(err)
		}
		milan.podHas("web", "800m")
		milan.kubeletHas("db", "700m")
		if now := milan.podHas("web", "1200m"); now.UID != first.UID {
			t.Errorf("it is %s, which was %s", now.UID, first.UID)
		}
		milan.kubeletHas("web", "1200m")
	})
	t.Run("a pod that ends gives room", func(t *testing.T) {
		ask("web", cpu("2"))
		milan.Event(t, "shop-rome", "web", "QuotaExceeded", "2 of cpu are asked for; of 2, which are granted, other pods have 700m")
		if err := rome.Delete(t.Context(), shadow("db", nil)); err != nil {
			t.Fatal(err)
		}
		milan.podHas("web", "2")
		milan.kubeletHas("web", "2")
	})
	t.Run("cordoned", func(t *testing.T) {
		condition := func(c authv1beta1.TenantCondition) {
			t.Helper()
			if err := patch(t, milan.Client, &authv1beta1.Tenant{ObjectMeta: object(tenant, "rome")}, fmt.Sprintf(`{"spec":{"tenantCondition":%q}}`, c)); err != nil {
				t.Fatal(err)
			}
		}
		ask("web", cpu("1"))
		milan.podHas("web", "1")
		milan.kubeletHas("web", "1")
		condition("Cordoned")
		controlplanetest.Eventually(t, "the Quota is cordoned", func(ctx context.Context) error {
			var quotas offloadingv1beta1.QuotaList
			if err := milan.Client.List(ctx, &quotas, client.InNamespace(tenant)); err != nil {
				return err
			}
			if len(quotas.Items) != 1 || !*quotas.Items[0].Spec.Cordoned {
				return fmt.Errorf("%+v", quotas.Items)
			}
			return nil
		})
		milan.stop()
		milan.run() // which knows of it
		ask("web", cpu("1500m"))
		milan.Event(t, "shop-rome", "web", "Cordoned", "it gets no more pods or resources")
		ask("web", cpu("900m"))
		milan.podHas("web", "900m")
		milan.kubeletHas("web", "900m")
		ask("web", cpu("1500m"))
		condition("Active")
		milan.podHas("web", "1500m")
		milan.kubeletHas("web", "1500m")
	})
	t.Run("what Kubernetes does not allow", func(t *testing.T) {
		ask("web", `{"requests":{"cpu":"1","memory":"16Mi"},"limits":{"cpu":"1","memory":"16Mi"}}`)
		milan.Event(t, "shop-rome", "web", "PodNotResized", "Pod QOS Class may not change as a result of resizing")
		ask("web", `{"requests":{"cpu":"1","memory":"16Mi","ephemeral-storage":"1Mi"}}`)
		milan.Event(t, "shop-rome", "web", "PodNotResized", "only cpu and memory resources are mutable")
		milan.podHas("web", "1500m")
		ask("web", cpu("1100m"))
		milan.podHas("web", "1100m")
	})
	t.Run("what this cluster has made of it stays", func(t *testing.T) {
		own := milan.podIs("web", nil)
		if err := milan.Client.SubResource("resize").Patch(t.Context(), own, resizeTo("a", "1050m")); err != nil {
			t.Fatal(err)
		}
		label("back")
		milan.podHas("web", "1050m")
	})
	t.Run("who may", func(t *testing.T) {
		if err := rome.SubResource("resize").Patch(t.Context(), milan.podIs("web", nil), resizeTo("a", "1")); !apierrors.IsForbidden(err) {
			t.Errorf("a consumer, past its ShadowPod: %v", err)
		}
		thief, err := client.New(milan.ServiceAccount(controlplanetest.LiqoNamespace, controlplanetest.Controller), client.Options{Scheme: milan.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		web := milan.podIs("web", nil)
		was := web.DeepCopy()
		err = thief.SubResource("resize").Patch(t.Context(), web, client.RawPatch(types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/managed-by":"nobody"}},
"spec":{"activeDeadlineSeconds":1,"containers":[{"name":"a","image":"evil","resources":{"requests":{"cpu":"1"}}}]}}`)), client.DryRunAll)
		was.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
		if diff := cmp.Diff(was.Spec, web.Spec) + cmp.Diff(was.Labels, web.Labels); err != nil || diff != "" {
			t.Errorf("a resize changes more than resources: %v (-want +got):\n%s", err, diff)
		}
		milan.Create(t, &corev1.Namespace{ObjectMeta: object("", "production")})
		milan.Create(t, offloadingOf("production", nil))
		marked(t, milan.Cluster, "production", true)
		theirs := &corev1.Pod{ObjectMeta: object("production", "web"), Spec: was.Spec}
		milan.Create(t, theirs)
		for name, p := range map[string]client.Patch{
			"containers": resizeTo("a", "1"), "the pod": client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"resources":{"requests":{"cpu":"3"}}}}`)),
		} {
			controlplanetest.Eventually(t, "who has the controller's token does not resize "+name+" of somebody else", func(ctx context.Context) error {
				err := thief.SubResource("resize").Patch(ctx, theirs.DeepCopy(), p, client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), "does nothing else to pods") {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
		}
	})
}
