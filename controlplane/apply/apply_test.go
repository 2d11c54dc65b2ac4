package apply_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

func TestObject(t *testing.T) {
	c := controlplanetest.Start(t)
	ctx := context.Background()

	t.Run("a Deployment with defaults and quantities is written once", func(t *testing.T) {
		for i, want := range []bool{true, false, false} {
			wrote, err := apply.Object(ctx, c.Client, nil, deployment("1000m"))
			if err != nil || wrote != want {
				t.Errorf("apply %d: wrote %v, %v; want %v", i, wrote, err, want)
			}
		}
	})
	t.Run("what another took over comes back, what another added stays", func(t *testing.T) {
		if _, err := c.Kubectl("-n", "default", "set", "image", "deployment/d", "c=other"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Kubectl("-n", "default", "label", "deployment/d", "theirs=1"); err != nil {
			t.Fatal(err)
		}
		if wrote, err := apply.Object(ctx, c.Client, nil, deployment("1")); err != nil || !wrote {
			t.Fatalf("wrote %v, %v", wrote, err)
		}
		var got appsv1.Deployment
		c.Read(t, "default", "d", &got)
		if image := got.Spec.Template.Spec.Containers[0].Image; image != "ours" {
			t.Errorf("image %q", image)
		}
		if got.Labels["theirs"] != "1" {
			t.Errorf("labels %v", got.Labels)
		}
	})
	t.Run("what another wrote since stays, where a version is named", func(t *testing.T) {
		text := func(value, version string) *corev1.ConfigMap { // which nobody else writes
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "versions", Namespace: "default", ResourceVersion: version}, Data: map[string]string{"a": value}}
			m.Labels = map[string]string{"liqo.io/managed": "true"}
			return m
		}
		if _, err := apply.Object(ctx, c.Client, nil, text("ours", "")); err != nil {
			t.Fatal(err)
		}
		var got corev1.ConfigMap
		c.Read(t, "default", "versions", &got)
		before := got.ResourceVersion
		if _, err := c.Kubectl("-n", "default", "patch", "configmap", "versions", "-p", `{"data":{"a":"theirs"}}`); err != nil {
			t.Fatal(err)
		}
		if wrote, err := apply.Object(ctx, c.Client, nil, text("ours", before)); !apierrors.IsConflict(err) || wrote {
			t.Errorf("wrote %v, %v", wrote, err)
		}
		if c.Read(t, "default", "versions", &got); got.Data["a"] != "theirs" {
			t.Errorf("%v", got.Data)
		}
		if wrote, err := apply.Object(ctx, c.Client, nil, text("ours", got.ResourceVersion)); err != nil || !wrote {
			t.Errorf("of the newest version: wrote %v, %v", wrote, err)
		}
	})
	t.Run("what is wanted no more goes", func(t *testing.T) {
		d := deployment("1")
		d.Labels["ours"] = "1"
		if _, err := apply.Object(ctx, c.Client, nil, d); err != nil {
			t.Fatal(err)
		}
		if _, err := apply.Object(ctx, c.Client, nil, deployment("1")); err != nil {
			t.Fatal(err)
		}
		var got appsv1.Deployment
		c.Read(t, "default", "d", &got)
		if diff := cmp.Diff(map[string]string{"liqo.io/managed": "true", "theirs": "1"}, got.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	})
	t.Run("an object that is being deleted is left alone", func(t *testing.T) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", Finalizers: []string{"example.com/wait"}}}
		m.Labels = map[string]string{"liqo.io/managed": "true"}
		c.Create(t, m)
		if err := apply.Delete(ctx, c.Client, m); err != nil {
			t.Fatal(err)
		}
		wrote, err := apply.Object(ctx, c.Client, nil, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}, Data: map[string]string{"a": "b"}})
		if wrote || err != nil {
			t.Errorf("wrote %v, %v", wrote, err)
		}
	})
	t.Run("a status is written once, and not over somebody else's", func(t *testing.T) {
		n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "default"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.1.0.0/16"}}
		c.Create(t, n)
		stale := n.DeepCopy()
		grant := func(n *ipamv1alpha1.Network) func() {
			return func() {
				n.Status.CIDR = n.Spec.CIDR
				meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
					Type: string(ipamv1alpha1.ConditionAllocated), Status: metav1.ConditionTrue, Reason: string(ipamv1alpha1.ReasonAllocated), Message: "m", ObservedGeneration: n.Generation,
				})
			}
		}
		for i, want := range []bool{true, false} {
			if wrote, err := apply.Status(ctx, c.Client, n, grant(n)); err != nil || wrote != want {
				t.Errorf("status %d: wrote %v, %v; want %v", i, wrote, err, want)
			}
		}
		if _, err := apply.Status(ctx, c.Client, stale, grant(stale)); !apierrors.IsConflict(err) {
			t.Errorf("stale: %v, want a conflict", err)
		}
	})
}

func deployment(cpu string) *appsv1.Deployment {
	labels := map[string]string{"app": "d"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "default", Labels: map[string]string{"liqo.io/managed": "true"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "c", Image: "ours",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
				}}},
			},
		},
	}
}
