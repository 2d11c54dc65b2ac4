package shadowpod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/sluice-net/sluice/controlplane/requests"
)

// ledger knows what the living pods of each Quota take. A pod counts from before it is made until it has ended or is gone,
// so that two that are made at the same time do not take the same.
type ledger struct {
	mu sync.Mutex
	// pods are those that count.
	pods map[types.NamespacedName]entry
	// used is their sum, by account.
	used map[account]corev1.ResourceList
}

// account is what a pod counts against: the Quota of a user of a consumer. user is in the form of [label].
type account struct{ consumer, user string }

// entry is one pod. Until it is made it has no UID.
type entry struct {
	uid types.UID
	of  account
	// version is the one in which it was seen with amount.
	version string
	amount  corev1.ResourceList
	// asked is what a resize asks for that may not be done; nil: none. The larger of the two counts.
	asked corev1.ResourceList
}

// counts is what a pod counts.
func (e entry) counts() corev1.ResourceList {
	if e.asked == nil {
		return e.amount
	}
	sum := corev1.ResourceList{}
	requests.Raise(sum, e.amount)
	requests.Raise(sum, e.asked)
	return sum
}

// update takes over what a version of a pod takes, unless a later one was seen: caches are late.
func (e *entry) update(version string, amount corev1.ResourceList) {
	if order, err := resourceversion.CompareResourceVersion(version, e.version); err == nil && order < 0 {
		return
	}
	e.version, e.amount = version, amount
}

func newLedger() *ledger {
	return &ledger{pods: map[types.NamespacedName]entry{}, used: map[account]corev1.ResourceList{}}
}

// take counts a pod that is to be made, if hard has room for it. Else it says what is short of. A pod of the name that
// still counts is in the way: known is true, and its UID, if it was made.
//
// live are the users of the consumer that have a Quota. Pods of its other users count against each of these: pods outlive
// their ResourceSlice, and a consumer that renames it would have the sum twice.
func (l *ledger) take(name types.NamespacedName, of account, live map[string]bool, amount, hard corev1.ResourceList) (short string, old types.UID, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.pods[name]; ok {
		return "", e.uid, true
	}
	if short := l.lacks(of, live, nil, amount, hard); short != "" {
		return short, "", false
	}
	l.set(name, entry{of: of, amount: amount})
	return "", "", false
}

// resize counts what a living pod asks for, as well, if hard has room for what is more of it than it has. Else it says what is
// short of. [ledger.answered] ends that. known is false of a pod that does not count. live are the users of its consumer, as in
// take.
func (l *ledger) resize(name types.NamespacedName, uid types.UID, live map[string]bool, amount, hard corev1.ResourceList) (short string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.pods[name]
	if !ok || e.uid != uid {
		return "", false
	}
	if short := l.lacks(e.of, live, e.counts(), amount, hard); short != "" {
		return short, true
	}
	e.asked = amount
	l.set(name, e)
	return "", true
}

// answered counts a pod as it is, and no more what a resize asked for: it was done, or will not be done. It tells whether the
// pod counts less than before.
func (l *ledger) answered(name types.NamespacedName, uid types.UID, version string, amount corev1.ResourceList) (less bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.pods[name]
	if !ok || e.uid != uid {
		return false // it is gone
	}
	e.asked = nil
	e.update(version, amount)
	return l.set(name, e)
}

// lacks says what of an amount hard has no room for, beside what other pods have. has is what the pod itself counts of it:
// what does not grow beyond that needs no room, also where less is granted than before.
func (l *ledger) lacks(of account, live map[string]bool, has, amount, hard corev1.ResourceList) string {
	used, orphaned := maps.Clone(l.used[of]), corev1.ResourceList{}
	for other, amount := range l.used {
		if other.consumer == of.consumer && other != of && !live[other.user] {
			requests.Add(orphaned, amount)
		}
	}
	if used == nil {
		used = corev1.ResourceList{}
	}
	requests.Add(used, orphaned)
	var lacks []string
	for _, resource := range slices.Sorted(maps.Keys(amount)) {
		want, own := amount[resource], has[resource]
		limit, granted := hard[resource]
		if want.Cmp(own) <= 0 {
			continue
		}
		if !granted {
			lacks = append(lacks, fmt.Sprintf("%s of %s are asked for, of which nothing is granted", want.String(), resource))
			continue
		}
		have, old := used[resource], orphaned[resource]
		have = have.DeepCopy()
		have.Sub(own)
		sum := have.DeepCopy()
		if sum.Add(want); sum.Cmp(limit) <= 0 {
			continue
		}
		lack := fmt.Sprintf("%s of %s are asked for; of %s, which are granted, other pods have %s", want.String(), resource, limit.String(), have.String())
		if !old.IsZero() {
			lack += fmt.Sprintf(", %s of it those of ResourceSlices that are gone or not granted any more: delete these pods", old.String())
		}
		lacks = append(lacks, lack)
	}
	return strings.Join(lacks, "; ")
}

// observe counts a pod as it is. It tells whether it counts less than before.
func (l *ledger) observe(name types.NamespacedName, uid types.UID, version string, of account, amount corev1.ResourceList) (less bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.pods[name]
	if e.uid != uid {
		e = entry{uid: uid}
	}
	e.of = of
	e.update(version, amount)
	return l.set(name, e)
}

// forget stops counting a pod; without a UID, one that was not made after all. It tells whether it counted.
func (l *ledger) forget(name types.NamespacedName, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.pods[name]
	if !ok || e.uid != uid {
		return false
	}
	l.drop(name)
	return true
}

// set counts a pod, and tells whether it counts less than before.
func (l *ledger) set(name types.NamespacedName, e entry) (less bool) {
	now := e.counts()
	for resource, q := range l.pods[name].counts() {
		left := now[resource]
		less = less || left.Cmp(q) < 0
	}
	l.drop(name)
	l.pods[name] = e
	if l.used[e.of] == nil {
		l.used[e.of] = corev1.ResourceList{}
	}
	requests.Add(l.used[e.of], now)
	return less
}

func (l *ledger) drop(name types.NamespacedName) {
	e, ok := l.pods[name]
	if !ok {
		return
	}
	delete(l.pods, name)
	used := l.used[e.of]
	for resource, q := range e.counts() {
		left := used[resource]
		left.Sub(q)
		if used[resource] = left; left.IsZero() {
			delete(used, resource)
		}
	}
	if len(used) == 0 {
		delete(l.used, e.of)
	}
}
