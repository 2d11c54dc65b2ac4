package controlplanetest_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

func TestCluster(t *testing.T) {
	c := controlplanetest.Start(t)
	ctx := context.Background()
	out, err := c.Kubectl("get", "--raw", "/version")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
	t.Run("collects garbage", func(t *testing.T) {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "default"}}
		if err := c.Client.Create(ctx, owner); err != nil {
			t.Fatal(err)
		}
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", Namespace: "default",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}}}
		if err := c.Client.Create(ctx, child); err != nil {
			t.Fatal(err)
		}
		if err := c.Client.Delete(ctx, owner); err != nil {
			t.Fatal(err)
		}
		controlplanetest.Eventually(t, "the child goes with its owner", func(ctx context.Context) error {
			err := c.Get(ctx, "default", "child", new(corev1.ConfigMap))
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("still there (%v)", err)
		})
	})
	t.Run("starts again with its data", func(t *testing.T) {
		c.StopAPIServer()
		if err := c.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(ctx, "", "liqo", new(corev1.Namespace)); err != nil {
			t.Error(err)
		}
	})
}
