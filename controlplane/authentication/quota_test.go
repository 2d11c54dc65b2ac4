package authentication_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/test/controlplanetest"
)

// quotaController counts what the ResourceQuota of a consumer limits, as the one of Kubernetes does, which the test's control
// plane has not: when the spec has changed, and of custom kinds only those that it knows.
type quotaController struct {
	knows atomic.Bool // all kinds
	// counted is how often it has counted, changed how often with the limit by which it is made to, maximum the largest limit
	// on ResourceSlices that it has seen.
	counted, changed, maximum atomic.Int64
}

const slicesLimit = "count/resourceslices.authentication.liqo.io"

func (q *quotaController) run(t *testing.T, s *site) {
	step := func(ctx context.Context) error {
		o := new(corev1.ResourceQuota)
		if err := s.Get(ctx, s.tenant, "liqo-consumer", o); err != nil {
			return client.IgnoreNotFound(err)
		}
		most := o.Spec.Hard[slicesLimit]
		q.maximum.Store(max(q.maximum.Load(), most.Value()))
		if equality.Semantic.DeepEqual(o.Spec.Hard, o.Status.Hard) {
			return nil
		}
		o.Status.Hard = o.Spec.Hard
		for name := range o.Spec.Hard {
			if custom := strings.HasPrefix(string(name), "count/"); !custom || q.knows.Load() {
				if o.Status.Used == nil {
					o.Status.Used = corev1.ResourceList{}
				}
				o.Status.Used[name] = resource.MustParse("0")
			}
		}
		err := s.Client.Status().Update(ctx, o)
		if err == nil {
			q.counted.Add(1)
			if _, ours := o.Spec.Hard["resourcequotas"]; ours {
				q.changed.Add(1)
			}
		}
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			if err := step(ctx); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		done <- nil
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPeeredRightAfterInstallation: the cluster does not count the kinds of the peering yet, and its API server refuses them.
// A consumer waits until it does, may never write more than is allowed, and finds at once what it may write.
func TestPeeredRightAfterInstallation(t *testing.T) {
	milan := newSite(t, "milan", "rome", "liqo-tenant-rome")
	var counter quotaController
	counter.run(t, milan)
	rome := consumer(t, milan, authv1beta1.ReasonQuotaNotCounted)
	controlplanetest.Eventually(t, "the Tenant says what it waits for", func(ctx context.Context) error {
		o := milan.tenantBecomes("rome", authv1beta1.ReasonQuotaNotCounted)
		c := meta.FindStatusCondition(o.Status.Conditions, authv1beta1.ConditionReady)
		if !strings.Contains(c.Message, "resourceslices.authentication.liqo.io") || c.Status != metav1.ConditionFalse {
			return fmt.Errorf("it is %+v", c)
		}
		if err := rome.Create(ctx, copied(milan, "early"), client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status unknown for quota") {
			return fmt.Errorf("the consumer gets %v", err)
		}
		return nil
	})
	controlplanetest.Eventually(t, "the cluster has counted again, several times", func(context.Context) error {
		if n := counter.counted.Load(); n < 3 {
			return fmt.Errorf("it has counted %d times", n)
		}
		return nil
	})
	// The user allows more meanwhile, which stays.
	allowed := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "liqo-consumer"}}
	more := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hard":{"count/renews.authentication.liqo.io":"500"}}}`))
	if err := milan.Client.Patch(t.Context(), allowed, more); err != nil {
		t.Fatal(err)
	}
	counter.knows.Store(true)
	milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady)
	// The API server hears of a ResourceQuota a moment later.
	controlplanetest.Eventually(t, "the consumer may write", func(ctx context.Context) error { return rome.Create(ctx, copied(milan, "first")) })
	controlplanetest.Eventually(t, "the ResourceQuota is as the user wants it", func(ctx context.Context) error {
		o := new(corev1.ResourceQuota)
		milan.Read(t, milan.tenant, "liqo-consumer", o)
		want := corev1.ResourceList{
			slicesLimit: resource.MustParse("100"), "count/renews.authentication.liqo.io": resource.MustParse("500"),
			"count/namespacemaps.offloading.liqo.io": resource.MustParse("10"),
		}
		if !equality.Semantic.DeepEqual(o.Spec.Hard, want) || !equality.Semantic.DeepEqual(o.Status.Hard, want) {
			return fmt.Errorf("it limits %v, and %v as it was counted", o.Spec.Hard, o.Status.Hard)
		}
		return nil
	})
	if most := counter.maximum.Load(); most != 100 {
		t.Errorf("the consumer could have %d ResourceSlices", most)
	}

	// A Tenant that is ready stays so when a limit comes anew, and the cluster is made to count.
	counter.knows.Store(false)
	before := counter.changed.Load()
	if err := milan.Client.Status().Patch(t.Context(), allowed, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"used":null}}`))); err != nil {
		t.Fatal(err)
	}
	milan.relabel(&authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: milan.tenant, Name: "rome"}})
	controlplanetest.Eventually(t, "it is counted again", func(context.Context) error {
		c := meta.FindStatusCondition(milan.tenantBecomes("rome", authv1beta1.ReasonTenantReady).Status.Conditions, authv1beta1.ConditionReady)
		switch {
		case c.Status != metav1.ConditionTrue:
			return fmt.Errorf("the Tenant is %+v", c)
		case counter.changed.Load() == before:
			return errors.New("not yet")
		}
		return nil
	})
}
