package fairqueue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-net/sluice/controlplane/fairqueue"
)

func request(namespace string, i int) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[ctrl.Request] {
	q := fairqueue.ByNamespace("", workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// TestAnothersFlood: a party that changes all of its objects whenever one was looked at delays another one by one object.
func TestAnothersFlood(t *testing.T) {
	const objects, rounds = 100, 1000
	q := newQueue(t)
	for i := range objects {
		q.Add(request("flood", i))
	}
	for i := range rounds {
		mine := request("mine", i)
		q.Add(mine)
		for before := 0; ; before++ {
			r, _ := q.Get()
			q.Done(r)
			if r == mine {
				break
			}
			q.Add(r)
			if before > 0 {
				t.Fatalf("round %d: %v is looked at before it, too", i, r)
			}
		}
	}
	if q.Len() != objects {
		t.Errorf("%d of %d objects are left", q.Len(), objects)
	}
}

// TestTurns has parties come and go by chance. Nobody is given a second turn while another one waits, each party's objects
// keep their order, and nothing is lost.
func TestTurns(t *testing.T) {
	const parties, steps = 5, 20000
	chance := rand.New(rand.NewPCG(1, 2))
	q := newQueue(t)
	waiting := map[string][]ctrl.Request{}
	since := map[string]int{} // how many turns of others each one waits
	added, got, most := 0, 0, 0
	for step := range steps {
		filling := step < steps/2
		if filling && chance.IntN(2) == 0 {
			r := request(fmt.Sprint(chance.IntN(parties)), step)
			q.Add(r)
			waiting[r.Namespace] = append(waiting[r.Namespace], r)
			added++
		}
		if q.Len() == 0 || filling && chance.IntN(2) == 0 {
			continue
		}
		most = max(most, len(waiting))
		r, _ := q.Get()
		q.Done(r)
		got++
		if first := waiting[r.Namespace][0]; first != r {
			t.Fatalf("step %d: %v before %v", step, r, first)
		}
		if waiting[r.Namespace] = waiting[r.Namespace][1:]; len(waiting[r.Namespace]) == 0 {
			delete(waiting, r.Namespace)
		}
		delete(since, r.Namespace)
		for who := range waiting {
			if who == r.Namespace {
				continue
			}
			if since[who]++; since[who] >= parties {
				t.Fatalf("step %d: %s waits for %d turns of %d others", step, who, since[who], parties-1)
			}
		}
	}
	if added != got || most != parties {
		t.Errorf("%d of %d, and at most %d parties waited at a time", got, added, most)
	}
}

// TestOnce: what is added while it waits is looked at once, and what is added while it is looked at once more.
func TestOnce(t *testing.T) {
	q := newQueue(t)
	a := request("a", 0)
	q.Add(a)
	q.Add(a)
	if q.Len() != 1 {
		t.Errorf("%d wait", q.Len())
	}
	r, _ := q.Get()
	q.Add(a)
	if q.Len() != 0 {
		t.Errorf("%v is given out twice", a)
	}
	q.Done(r)
	if r, _ := q.Get(); r != a {
		t.Errorf("%v", r)
	}
	q.Done(a)
	if q.Len() != 0 {
		t.Errorf("%d are left", q.Len())
	}
}

// TestKnownLate: what is added before it is known whose it is stands in the line of whom it belongs to when turns are given.
func TestKnownLate(t *testing.T) {
	known := false
	q := fairqueue.By(func(r ctrl.Request) string {
		if !known {
			return r.Namespace
		}
		return r.Namespace[:1]
	})("", workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	for _, namespace := range []string{"a1", "a2", "a3", "b1"} {
		q.Add(request(namespace, 0))
	}
	known = true
	var got []string
	for range 4 {
		r, _ := q.Get()
		got = append(got, r.Namespace)
	}
	if want := []string{"a1", "b1", "a2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
