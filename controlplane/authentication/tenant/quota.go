package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	offloadingv1beta1 "github.com/sluice-net/sluice/api/offloading/v1beta1"
	"github.com/sluice-net/sluice/controlplane/apply"
	"github.com/sluice-net/sluice/controlplane/authentication/issue"
)

// consumerQuota is the ResourceQuota of a tenant namespace.
const consumerQuota = "liqo-consumer"

// limits are how many objects of each kind the quota lets a consumer have there: what it writes is held in memory here. Of
// NamespaceMaps it needs one.
var limits = corev1.ResourceList{
	count(authv1beta1.GroupVersion.Group, "resourceslices"):      resource.MustParse("100"),
	count(authv1beta1.GroupVersion.Group, "renews"):              resource.MustParse("100"),
	count(offloadingv1beta1.GroupVersion.Group, "namespacemaps"): resource.MustParse("10"),
}

func count(group, resource string) corev1.ResourceName {
	return corev1.ResourceName("count/" + resource + "." + group)
}

// The kube-controller-manager learns of new kinds every half minute. A quota that is made before that, as it is when
// clusters are peered right after the installation, gets a status that limits such a kind but does not count it, and the
// API server refuses all objects of the kind. The quota is counted again when its spec changes, otherwise up to five
// minutes later (kubernetes/pkg/controller/resourcequota/resource_quota_controller.go: Sync, addQuota). So the spec is
// changed: by a limit on ResourceQuotas themselves, which only the provider can make. It comes and goes, and what the
// consumer may write stays as it is, also where the user has changed it.
var (
	recountLimit   = corev1.ResourceName("resourcequotas")
	recountMaximum = resource.MustParse("1000")
)

const (
	// unseenRecheck is the pause between looks at a new quota that the kube-controller-manager has not looked at.
	unseenRecheck = 300 * time.Millisecond
	// unseenFor is how long it may take: after that nobody is expected to count.
	unseenFor = time.Minute
	// recheckQuota is how often one is looked at that is well. It is not watched, and comes back when somebody deletes it.
	recheckQuota = 5 * time.Minute
	// recountEvery is how often a quota is counted again at first, lastRecount when it has waited for long.
	recountEvery, lastRecount = 2 * time.Second, time.Minute
)

// bound limits how much a consumer can write. It returns what the consumer has to wait for, if it is to begin now, and when
// to look again. The user may change the quota to allow more, or make it in advance.
func (r *Reconciler) bound(ctx context.Context, t *authv1beta1.Tenant, begins bool) (*issue.Problem, time.Duration, error) {
	q := new(corev1.ResourceQuota)
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: consumerQuota}, q)
	if apierrors.IsNotFound(err) {
		q = quota(t)
		err = client.IgnoreAlreadyExists(r.Create(ctx, q))
		q.CreationTimestamp = metav1.Time{} // whatever the clocks are
	}
	if err != nil {
		return nil, 0, quotaError("get or make", err)
	}
	switch owner := metav1.GetControllerOf(q); {
	case owner == nil || owner.Kind != "Tenant":
		return nil, recheckQuota, nil // the user's own
	case owner.UID != t.UID:
		return issue.EarlierRemains("ResourceQuota "+consumerQuota, "Tenant"), 0, nil
	}
	v := judgeQuota(q, time.Now())
	if v.recount {
		before := q.DeepCopy()
		toggleRecountLimit(q)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		err := r.Patch(ctx, q, patch, client.FieldOwner(apply.FieldOwner))
		switch {
		case apierrors.IsForbidden(err) && v.waits != "": // a policy: a Tenant that is ready goes on
			v.waits += "; it cannot be made to: " + err.Error()
		case err != nil && !apierrors.IsConflict(err) && !apierrors.IsForbidden(err): // after a conflict it is looked at again
			return nil, 0, quotaError("change", err)
		}
	}
	if v.waits != "" && begins {
		return &issue.Problem{Reason: authv1beta1.ReasonQuotaNotCounted, Message: v.waits, Retry: v.again}, 0, nil
	}
	return nil, wait.Jitter(v.again, 0.2), nil // not all at once
}

// quotaVerdict is what to do about a quota.
type quotaVerdict struct {
	// waits says what a consumer that is not ready yet has to wait for.
	waits string
	// recount: the spec is to be changed, so that the cluster counts.
	recount bool
	// again is when to look again; zero: never.
	again time.Duration
}

// judgeQuota decides about a quota.
func judgeQuota(q *corev1.ResourceQuota, now time.Time) quotaVerdict {
	var missing []string
	seen := false
	for name := range limits {
		_, limited := q.Status.Hard[name]
		if _, counted := q.Status.Used[name]; limited && !counted {
			missing = append(missing, strings.TrimPrefix(string(name), "count/"))
		}
		seen = seen || limited
	}
	slices.Sort(missing)
	limit, there := q.Spec.Hard[recountLimit]
	ours := there && limit.Cmp(recountMaximum) == 0
	age := now.Sub(q.CreationTimestamp.Time)
	pause := min(max(recountEvery, age/10), lastRecount)
	switch {
	case len(missing) > 0:
		return quotaVerdict{
			waits: fmt.Sprintf("the cluster does not count %s yet, and would refuse what the consumer writes; within half a minute of the installation this is normal",
				strings.Join(missing, ", ")),
			recount: ours || !there, again: pause,
		}
	case ours:
		return quotaVerdict{recount: true, again: pause}
	case !seen && (q.CreationTimestamp.IsZero() || age >= 0 && age < 2*time.Second):
		return quotaVerdict{waits: "the cluster has yet to look at ResourceQuota " + consumerQuota, again: unseenRecheck}
	case !seen && age < unseenFor:
		return quotaVerdict{again: recheck}
	}
	return quotaVerdict{again: recheckQuota}
}

// toggleRecountLimit changes the spec of a quota, but not what it allows the consumer.
func toggleRecountLimit(q *corev1.ResourceQuota) {
	if _, there := q.Spec.Hard[recountLimit]; there {
		delete(q.Spec.Hard, recountLimit)
		return
	}
	if q.Spec.Hard == nil {
		q.Spec.Hard = corev1.ResourceList{}
	}
	q.Spec.Hard[recountLimit] = recountMaximum
}

func quotaError(what string, err error) error {
	return fmt.Errorf("%s ResourceQuota %s, which limits what the consumer can write: %w", what, consumerQuota, err)
}

// quota limits what a consumer can write.
func quota(t *authv1beta1.Tenant) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Namespace, Name: consumerQuota,
			Labels: map[string]string{
				networkingv1beta1.LabelManaged: networkingv1beta1.LabelTrue, networkingv1beta1.LabelRemoteClusterID: string(t.Spec.ClusterID),
			},
			OwnerReferences: apply.Controller(t, authv1beta1.GroupVersion.WithKind("Tenant")),
		},
		Spec: corev1.ResourceQuotaSpec{Hard: limits.DeepCopy()},
	}
}

// sooner is the shorter of two pauses, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
