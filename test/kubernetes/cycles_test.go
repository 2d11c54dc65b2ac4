package kubernetes

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/kubelab"
	"github.com/sluice-net/sluice/test/lab"
)

const (
	// cycles is how often testCycles connects and disconnects.
	cycles = 100
	// resetEvery is how many cycles lie between two in which the peers forget each
	// other, too.
	resetEvery = 5
)

// testCycles connects and disconnects again and again. Each time pods talk, and at
// the end nothing is left of it.
func testCycles(t *testing.T, w *world) {
	w.apart(t)
	sides := [2]*side{{w.a, w.clients(t, w.a, 2)}, {w.b, w.servers(t, w.b, 2)}}
	w.cycle(t, sides, true) // after this one, whatever is made once is there
	before := takeInventory(t, w)

	var connects, talks, disconnects series
	for i := range cycles {
		reset := (i+1)%resetEvery == 0
		connect, talk, end := w.cycle(t, sides, reset)
		connects, talks = append(connects, connect), append(talks, talk)
		if !reset {
			disconnects = append(disconnects, end)
		}
		if t.Failed() {
			return
		}
	}
	now := before.compare(t, w)
	addFigures(t, fmt.Sprintf("%d times connected and disconnected", cycles), fmt.Sprintf(`Every %dth time the peers forget each other, too. Connected means: both sides say so, and the command has ended.

| | p50 | p99 | worst |
|---|---|---|---|
| network connect | %v | %v | %v |
| then, until pods of all nodes reach each other | %v | %v | %v |
| network disconnect | %v | %v | %v |

What is there after the first time and after the last one:

%s`, resetEvery, round(connects.p50()), round(connects.p99()), round(connects.worst()), round(talks.p50()), round(talks.p99()), round(talks.worst()),
		round(disconnects.p50()), round(disconnects.p99()), round(disconnects.worst()), before.growth(now)))
}

// cycle connects, lets pods talk, and disconnects or resets. It returns how long
// each of them took.
func (w *world) cycle(t *testing.T, sides [2]*side, reset bool) (connect, talk, end time.Duration) {
	t.Helper()
	start := time.Now()
	w.liqoctl(t, w.connectArgs()...)
	connect = time.Since(start)
	start = time.Now()
	lab.Eventually(t, patience, "pods reach each other", func() error { return w.reach(t.Context(), t, sides[0], sides[1]) })
	talk = time.Since(start)
	start = time.Now()
	if reset {
		w.reset(t)
	} else {
		w.disconnect(t)
	}
	end = time.Since(start)
	for _, c := range []*kubelab.Cluster{w.a, w.b} {
		lab.Eventually(t, patience, "the end of the gateway of "+c.Name, func() error {
			pods, err := gateways(t.Context(), c)
			if err == nil && len(pods) > 0 {
				err = fmt.Errorf("pod %s is there", pods[0].Name)
			}
			return errors.Join(err, noLinks(c))
		})
	}
	return connect, talk, end
}
