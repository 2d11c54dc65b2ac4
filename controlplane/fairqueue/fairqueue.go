// Package fairqueue is a queue in which several parties are served in turn. With one line for all, who changes all of its
// objects again and again has every other one wait behind them. Here each party has a line of its own, and whoever has
// something in it gets one turn in each round: what is first in a line waits for one object of each other party, however many
// these have. Unlike controller-runtime's own queue it knows no priorities: what is listed at the start is in line as well.
package fairqueue

import (
	"strings"

	"k8s.io/client-go/util/workqueue"
)

// New makes a queue of that name, where failures says when to try again. With requests for T it is what
// controller.Options.NewQueue of controller-runtime takes.
type New[T comparable] = func(name string, failures workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T]

// By has queues with a line for each party that whose names. It is called once for each object that begins to wait, before
// the next turn is given: a controller gives none until its caches have everything. The queue is locked: it must not wait.
func By[T comparable](whose func(T) string) New[T] {
	return func(name string, failures workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(failures, workqueue.TypedRateLimitingQueueConfig[T]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
				Name: name,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
					Name: name, Queue: &lines[T]{whose: whose, of: map[string][]T{}},
				}),
			}),
		})
	}
}

// request is a ctrl.Request, whose package has far more than this one needs.
type request interface {
	comparable
	String() string // "namespace/name"
}

// ByNamespace is the queue of a controller with a line for each namespace: in that of a peering only one other cluster writes.
func ByNamespace[T request](name string, failures workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return By(func(r T) string {
		namespace, _, _ := strings.Cut(r.String(), "/")
		return namespace
	})(name, failures)
}

// lines are the storage of a queue, which locks them.
type lines[T comparable] struct {
	whose func(T) string
	// added are those that are in no line yet.
	added []T
	of    map[string][]T
	// turns are those who have something in their lines, next first.
	turns []string
	n     int
}

// Touch implements [workqueue.Queue]: who is in a line keeps the place.
func (*lines[T]) Touch(T) {}

// Push implements [workqueue.Queue].
func (l *lines[T]) Push(r T) {
	l.added = append(l.added, r)
	l.n++
}

// line puts what was added in line.
func (l *lines[T]) line() {
	for _, r := range l.added {
		who := l.whose(r)
		if len(l.of[who]) == 0 {
			l.turns = append(l.turns, who)
		}
		l.of[who] = append(l.of[who], r)
	}
	clear(l.added)
	l.added = l.added[:0]
}

// Len implements [workqueue.Queue].
func (l *lines[T]) Len() int { return l.n }

// Pop implements [workqueue.Queue].
func (l *lines[T]) Pop() T {
	l.line()
	who := l.turns[0]
	l.turns = l.turns[1:]
	line := l.of[who]
	if len(line) == 1 {
		delete(l.of, who)
	} else {
		l.of[who] = line[1:]
		l.turns = append(l.turns, who)
	}
	l.n--
	return line[0]
}
