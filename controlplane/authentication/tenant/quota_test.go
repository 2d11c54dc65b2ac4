package tenant

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
)

func TestJudgeQuota(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	more := func(q *corev1.ResourceQuota, amount string) { q.Spec.Hard[recountLimit] = resource.MustParse(amount) }
	counts := func(q *corev1.ResourceQuota, kinds ...string) {
		q.Status.Hard, q.Status.Used = q.Spec.Hard.DeepCopy(), corev1.ResourceList{}
		for name := range q.Spec.Hard {
			for _, k := range kinds {
				if strings.HasPrefix(string(name), "count/"+k+".") {
					q.Status.Used[name] = resource.MustParse("0")
				}
			}
		}
	}
	for name, c := range map[string]struct {
		age     time.Duration
		made    func(*corev1.ResourceQuota)
		waits   string
		recount bool
		again   time.Duration
	}{
		"nobody has looked at it yet":          {0, nil, "has yet to look", false, unseenRecheck},
		"the clock of the API server is ahead": {-time.Hour, nil, "", false, recheck},
		"nobody looks at it":                   {2 * time.Second, nil, "", false, recheck},
		"nobody will":                          {unseenFor, nil, "", false, recheckQuota},
		"all is counted":                       {0, func(q *corev1.ResourceQuota) { counts(q, "resourceslices", "renews", "namespacemaps") }, "", false, recheckQuota},
		"no kind is known":                     {0, func(q *corev1.ResourceQuota) { counts(q) }, "namespacemaps.offloading.liqo.io, renews.authentication.liqo.io, resourceslices.", true, recountEvery},
		"one kind is not known":                {0, func(q *corev1.ResourceQuota) { counts(q, "resourceslices", "renews") }, "namespacemaps.offloading.liqo.io yet", true, recountEvery},
		"for a while":                          {100 * time.Second, func(q *corev1.ResourceQuota) { counts(q, "renews", "namespacemaps") }, "resourceslices", true, 10 * time.Second},
		"for long":                             {time.Hour, func(q *corev1.ResourceQuota) { counts(q, "renews", "namespacemaps") }, "resourceslices", true, lastRecount},
		"the user took a limit away": {0, func(q *corev1.ResourceQuota) {
			delete(q.Spec.Hard, count("authentication.liqo.io", "renews"))
			counts(q, "resourceslices", "namespacemaps")
		}, "", false, recheckQuota},
		"our change is left":                          {time.Hour, func(q *corev1.ResourceQuota) { more(q, "1k"); counts(q, "resourceslices", "renews", "namespacemaps") }, "", true, lastRecount},
		"the same limit of the user's stays":          {time.Hour, func(q *corev1.ResourceQuota) { more(q, "3"); counts(q, "resourceslices", "renews", "namespacemaps") }, "", false, recheckQuota},
		"the same limit of the user's is not changed": {0, func(q *corev1.ResourceQuota) { more(q, "3"); counts(q) }, "resourceslices", false, recountEvery},
	} {
		q := quota(new(authv1beta1.Tenant))
		q.CreationTimestamp = metav1.NewTime(now.Add(-c.age))
		if c.made != nil {
			c.made(q)
		}
		got := judgeQuota(q, now)
		if (got.waits == "") != (c.waits == "") || !strings.Contains(got.waits, c.waits) || got.recount != c.recount || got.again != c.again {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestQuotaIsChanged: each change is one that has the cluster count, and two of them are none.
func TestQuotaIsChanged(t *testing.T) {
	for name, hard := range map[string]corev1.ResourceList{"as it was made": limits, "without any limit": nil} {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: hard.DeepCopy()}}
		toggleRecountLimit(q)
		for kind := range hard {
			if !q.Spec.Hard[kind].Equal(hard[kind]) {
				t.Errorf("%s: %s is %v", name, kind, q.Spec.Hard[kind])
			}
		}
		if len(q.Spec.Hard) != len(hard)+1 {
			t.Errorf("%s: it was not changed: %v", name, q.Spec.Hard)
		}
		if toggleRecountLimit(q); len(q.Spec.Hard) != len(hard) {
			t.Errorf("%s: it is not as before:\n%s", name, cmp.Diff(hard, q.Spec.Hard))
		}
	}
}
