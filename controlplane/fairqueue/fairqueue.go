// Package fairqueue is the queue of a controller whose objects several parties write. With one line for all, who changes all
// of its objects again and again has every other one wait behind them. Here each party has a line of its own, and whoever has
// something in it gets one turn in each round: what is first in a line waits for one object of each other party, however many
// these have. Unlike controller-runtime's own queue it knows no priorities: what is listed at the start is in line as well.
package fairqueue

import (
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Queue is the queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// ByNamespace has a queue with a line for each namespace: in that of a peering only one other cluster writes.
func ByNamespace(name string, failures workqueue.TypedRateLimiter[ctrl.Request]) Queue {
	return By(func(r ctrl.Request) string { return r.Namespace })(name, failures)
}

// New makes the queue of a controller of that name, where failures says when to try again: it is what
// controller.Options.NewQueue takes.
type New = func(name string, failures workqueue.TypedRateLimiter[ctrl.Request]) Queue

// By has queues with a line for each party that whose names. whose is called while the queue is locked: it must not wait.
func By(whose func(ctrl.Request) string) New {
	return func(name string, failures workqueue.TypedRateLimiter[ctrl.Request]) Queue {
		return workqueue.NewTypedRateLimitingQueueWithConfig(failures, workqueue.TypedRateLimitingQueueConfig[ctrl.Request]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[ctrl.Request]{
				Name: name,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[ctrl.Request]{
					Name: name, Queue: &lines{whose: whose, of: map[string][]ctrl.Request{}},
				}),
			}),
		})
	}
}

// lines are the storage of a queue, which locks them.
type lines struct {
	whose func(ctrl.Request) string
	of    map[string][]ctrl.Request
	// turns are those who have something in their lines, next first.
	turns []string
	n     int
}

// Touch implements [workqueue.Queue]: who is in a line keeps the place.
func (*lines) Touch(ctrl.Request) {}

// Push implements [workqueue.Queue].
func (l *lines) Push(r ctrl.Request) {
	who := l.whose(r)
	if len(l.of[who]) == 0 {
		l.turns = append(l.turns, who)
	}
	l.of[who] = append(l.of[who], r)
	l.n++
}

// Len implements [workqueue.Queue].
func (l *lines) Len() int { return l.n }

// Pop implements [workqueue.Queue].
func (l *lines) Pop() ctrl.Request {
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
