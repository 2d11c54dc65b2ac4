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
	// used is their sum, by quota.
	used map[string]corev1.ResourceList
}

// entry is one pod. Until it is made it has no UID.
type entry struct {
	uid    types.UID
	quota  string
	amount corev1.ResourceList
}

func newLedger() *ledger {
	return &ledger{pods: map[types.NamespacedName]entry{}, used: map[string]corev1.ResourceList{}}
}

// take counts a pod that is to be made, if hard has room for it. Else it says what is short of. A pod of the name that
// still counts is in the way: known is true, and its UID, if it was made.
func (l *ledger) take(name types.NamespacedName, quota string, amount, hard corev1.ResourceList) (short string, old types.UID, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.pods[name]; ok {
		return "", e.uid, true
	}
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
		used := l.used[quota][resource]
		sum := used.DeepCopy()
		if sum.Add(want); sum.Cmp(limit) > 0 {
			lacks = append(lacks, fmt.Sprintf("%s of %s are asked for; of %s, which are granted, other pods have %s", want.String(), resource, limit.String(), used.String()))
		}
	}
	if len(lacks) > 0 {
		return strings.Join(lacks, "; "), "", false
	}
	l.set(name, entry{quota: quota, amount: amount})
	return "", "", false
}

// observe counts a pod as it is.
func (l *ledger) observe(name types.NamespacedName, uid types.UID, quota string, amount corev1.ResourceList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(name, entry{uid, quota, amount})
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
	if l.used[e.quota] == nil {
		l.used[e.quota] = corev1.ResourceList{}
	}
	requests.Add(l.used[e.quota], e.amount)
}

func (l *ledger) drop(name types.NamespacedName) {
	e, ok := l.pods[name]
	if !ok {
		return
	}
	delete(l.pods, name)
	used := l.used[e.quota]
	for resource, q := range e.amount {
		left := used[resource]
		left.Sub(q)
		if used[resource] = left; left.IsZero() {
			delete(used, resource)
		}
	}
	if len(used) == 0 {
		delete(l.used, e.quota)
	}
}
