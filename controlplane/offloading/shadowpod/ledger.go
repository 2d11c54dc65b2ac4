package shadowpod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	uid    types.UID
	of     account
	amount corev1.ResourceList
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
		want := amount[resource]
		limit, granted := hard[resource]
		if want.IsZero() {
			continue
		}
		if !granted {
			lacks = append(lacks, fmt.Sprintf("%s of %s are asked for, of which nothing is granted", want.String(), resource))
			continue
		}
		have, old := used[resource], orphaned[resource]
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
	if len(lacks) > 0 {
		return strings.Join(lacks, "; "), "", false
	}
	l.set(name, entry{of: of, amount: amount})
	return "", "", false
}

// observe counts a pod as it is.
func (l *ledger) observe(name types.NamespacedName, uid types.UID, of account, amount corev1.ResourceList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(name, entry{uid, of, amount})
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

func (l *ledger) set(name types.NamespacedName, e entry) {
	l.drop(name)
	l.pods[name] = e
	if l.used[e.of] == nil {
		l.used[e.of] = corev1.ResourceList{}
	}
	requests.Add(l.used[e.of], e.amount)
}

func (l *ledger) drop(name types.NamespacedName) {
	e, ok := l.pods[name]
	if !ok {
		return
	}
	delete(l.pods, name)
	used := l.used[e.of]
	for resource, q := range e.amount {
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
