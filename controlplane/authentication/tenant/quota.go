package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func count(group, kind string) corev1.ResourceName {
	return corev1.ResourceName("count/" + kind + "." + group)
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
	// firstCount is how soon a new quota is looked at that the kube-controller-manager has not looked at.
	firstCount = 300 * time.Millisecond
	// unseenFor is for how long it is looked at again.
	unseenFor = time.Minute
	// recountEvery is how often a quota is counted again at first, lastRecount when it has waited for long.
	recountEvery, lastRecount = 2 * time.Second, time.Minute
)

// bound limits how much a consumer can write. It returns what the consumer has to wait for before it may write, and when to
// look again. The quota is made once: the user may change it to allow more, or make it in advance.
func (r *Reconciler) bound(ctx context.Context, t *authv1beta1.Tenant) (*issue.Problem, time.Duration, error) {
	q := new(corev1.ResourceQuota)
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: consumerQuota}, q)
	if apierrors.IsNotFound(err) {
		q = quota(t)
		err = client.IgnoreAlreadyExists(r.Create(ctx, q))
	}
	if err != nil {
		return nil, 0, wrapQuota("get or make", err)
	}
	owner := metav1.GetControllerOf(q)
	switch {
	case owner != nil && owner.Name == t.Name && owner.UID != t.UID:
		return issue.EarlierRemains("ResourceQuota "+consumerQuota, "Tenant"), 0, nil
	case owner == nil || owner.UID != t.UID:
		return nil, 0, nil // the user's own
	}
	v := judgeQuota(q, time.Now())
	if v.recount {
		before := q.DeepCopy()
		change(q)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		// A conflict is a change by somebody else, after which it is counted anyway.
		if err := r.Patch(ctx, q, patch, client.FieldOwner(apply.FieldOwner)); err != nil && !apierrors.IsConflict(err) {
			return nil, 0, wrapQuota("change", err)
		}
	}
	if v.waits != "" && !meta.IsStatusConditionTrue(t.Status.Conditions, authv1beta1.ConditionReady) {
		return &issue.Problem{Reason: authv1beta1.ReasonQuotaNotCounted, Message: v.waits, Retry: v.again}, 0, nil
	}
	return nil, v.again, nil
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
	switch {
	case len(missing) > 0:
		return quotaVerdict{
			waits: fmt.Sprintf("the cluster does not count %s yet, and would refuse what the consumer writes; within half a minute of the installation this is normal",
				strings.Join(missing, ", ")),
			recount: ours || !there, again: min(max(recountEvery, age/10), lastRecount),
		}
	case ours:
		return quotaVerdict{recount: true}
	case !seen && q.CreationTimestamp.IsZero(), !seen && age < time.Second:
		return quotaVerdict{waits: "the cluster has yet to look at ResourceQuota " + consumerQuota, again: firstCount}
	case !seen && age < unseenFor:
		return quotaVerdict{again: recheck}
	}
	return quotaVerdict{}
}

// change changes the spec of a quota, but not what it allows the consumer.
func change(q *corev1.ResourceQuota) {
	if _, there := q.Spec.Hard[recountLimit]; there {
		delete(q.Spec.Hard, recountLimit)
		return
	}
	if q.Spec.Hard == nil {
		q.Spec.Hard = corev1.ResourceList{}
	}
	q.Spec.Hard[recountLimit] = recountMaximum
}

func wrapQuota(what string, err error) error {
	if err == nil {
		return nil
	}
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
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t, authv1beta1.GroupVersion.WithKind("Tenant"))},
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
