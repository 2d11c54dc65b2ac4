package page

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/survey"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
)

const (
	// watchedFor is how long clusters are read after the last request of a page. A page in
	// the background asks once a minute.
	watchedFor = 2 * time.Minute
	// surveyTimeout bounds one survey.
	surveyTimeout = 45 * time.Second
	// wholeEvery is how often nodes and the installation are read: in a large cluster they
	// are most of what there is to read.
	wholeEvery = 30 * time.Second
	// diagnosedFor is how long a diagnosis stands. A peering that gets worse may be examined
	// again sooner, worseAfter the last time.
	diagnosedFor = time.Minute
	worseAfter   = 10 * time.Second
	// soon is when a cluster is read again if one of its gateways starts to lose pings.
	soon = time.Second
	// lateAfter is how long a survey may take before the page says that the cluster does not answer.
	lateAfter = 15 * time.Second
)

// errLate is the problem of a cluster that is being read for too long.
var errLate = fmt.Errorf("the API server has not answered completely for %v; the console goes on trying", lateAfter)

// watcher reads clusters, each on its own and one survey at a time, as long as a page is
// open. All pages share what it reads.
type watcher struct {
	clusters []*access.Cluster
	interval time.Duration
	began    time.Time // turns are counted from here
	// read reads a cluster; earlier is what it returned the last time it read everything,
	// nil if that is to be done now. Tests have their own.
	read func(ctx context.Context, c *access.Cluster, earlier *survey.Cluster, denied bool) (*survey.Cluster, error)
	// diagnose finds out what is wrong with a peering.
	diagnose func(context.Context, Peering) *Diagnosis

	mu        sync.Mutex
	asked     time.Time
	readings  []reading
	state     *State
	histories map[string]history
	diagnoses map[string]*Diagnosis
	waiting   []chan struct{} // closed by the next page that asks
}

func newWatcher(clusters []*access.Cluster, interval time.Duration, diagnose func(context.Context, Peering) *Diagnosis) *watcher {
	w := &watcher{
		clusters: clusters, interval: interval, began: time.Now(), read: readCluster, diagnose: diagnose,
		readings: make([]reading, len(clusters)), histories: make(map[string]history), diagnoses: make(map[string]*Diagnosis),
	}
	for i, c := range clusters {
		w.readings[i] = reading{origin: c.Origin, before: make(map[string]*survey.GatewayReport)}
		if c.Config != nil {
			w.readings[i].host = c.Config.Host
		}
	}
	w.state = build(w.readings, nil)
	return w
}

// run reads until ctx ends.
func (w *watcher) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range w.clusters {
		wg.Go(func() { w.follow(ctx, i) })
	}
	wg.Go(func() { w.diagnoseAll(ctx) })
	wg.Wait()
}

// current is the last state. Asking for it keeps the watcher reading.
func (w *watcher) current() *State {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = time.Now()
	for _, c := range w.waiting {
		close(c)
	}
	w.waiting = nil
	return w.state
}

// watched waits until a page is open. It is false when ctx has ended.
func (w *watcher) watched(ctx context.Context) bool {
	w.mu.Lock()
	if time.Since(w.asked) < watchedFor {
		w.mu.Unlock()
		return ctx.Err() == nil
	}
	c := make(chan struct{})
	w.waiting = append(w.waiting, c)
	w.mu.Unlock()
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow reads one cluster again and again.
func (w *watcher) follow(ctx context.Context, i int) {
	var whole *survey.Cluster
	denied := false
	for w.watched(ctx) {
		earlier := whole
		if earlier != nil && time.Since(earlier.ReadAt) >= wholeEvery {
			earlier, denied = nil, false // rights may have changed as well
		}
		one, cancel := context.WithTimeout(ctx, surveyTimeout)
		late := w.expect(i)
		s, err := w.read(one, w.clusters[i], earlier, denied)
		late.Stop()
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil && earlier == nil {
			whole = s
		}
		if err == nil {
			_, denied = s.MayNotAsk()
		}
		w.publish(i, s, err)
		wait := w.untilTurn(i, time.Now())
		if err == nil && losesPings(s) {
			wait = min(wait, soon)
		}
		if !access.Pause(ctx, wait) {
			return
		}
	}
}

// expect has the page say so if a cluster that was read before takes long to be read again: what is shown of it is old.
func (w *watcher) expect(i int) *time.Timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.readings[i].survey
	return time.AfterFunc(lateAfter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if before != nil && w.readings[i].survey == before { // else it has just been read
			w.fail(i, errLate)
		}
	})
}

// untilTurn is the time until a cluster is read again. Clusters take turns: what happens to a
// peering shows at both ends, so it is noticed in less than an interval.
func (w *watcher) untilTurn(i int, now time.Time) time.Duration {
	offset := w.interval * time.Duration(i) / time.Duration(len(w.clusters))
	return w.interval - (now.Sub(w.began)+w.interval-offset)%w.interval
}

// losesPings tells whether the peer of a gateway does not answer, but the gateway does not
// report it yet.
func losesPings(s *survey.Cluster) bool {
	return slices.ContainsFunc(s.Peers, func(p survey.Peer) bool {
		return p.Gateway != nil && p.Gateway.Report != nil && p.Gateway.Report.Sync.Peer.Lost > 0 &&
			p.Gateway.Report.Sync.Peer.Value == networkingv1beta1.Connected
	})
}

// readCluster reads everything, or only what changes often.
func readCluster(ctx context.Context, c *access.Cluster, earlier *survey.Cluster, denied bool) (*survey.Cluster, error) {
	o := survey.Options{PeeringsOnly: earlier != nil, Modules: true, Components: true, Nodes: earlier}
	if c.NamespaceGiven {
		o.Namespace = c.Namespace
	}
	s, err := survey.Read(ctx, c, o)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		s.Installation, s.Networks = earlier.Installation, earlier.Networks
	}
	if denied {
		gap, _ := earlier.MayNotAsk()
		s.Gaps = append(s.Gaps, gap)
		return s, nil
	}
	survey.AskGateways(ctx, c, s)
	return s, nil
}

// publish takes over what was read of a cluster.
func (w *watcher) publish(i int, s *survey.Cluster, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.readings[i]
	if err != nil {
		w.fail(i, err)
		return
	}
	r.before = reports(strconv.Itoa(i), r.survey)
	r.survey, r.problem = s, ""
	for key, after := range reports(strconv.Itoa(i), s) {
		h, known := w.histories[key]
		if known || len(w.histories) < maxEnds {
			w.histories[key] = h.add(sampleOf(s.ReadAt, r.before[key], after))
		}
	}
	w.rebuild()
}

// fail takes over why a cluster cannot be read.
func (w *watcher) fail(i int, err error) {
	r := &w.readings[i]
	r.problem = err.Error()
	for key := range reports(strconv.Itoa(i), r.survey) { // a gap in the plots
		if h, known := w.histories[key]; known {
			w.histories[key] = h.add(sampleOf(time.Now(), nil, nil))
		}
	}
	w.rebuild()
}

// reports are those of a cluster's gateways by the keys of the ends; that of a gateway that
// did not answer is nil.
func reports(cluster string, s *survey.Cluster) map[string]*survey.GatewayReport {
	out := make(map[string]*survey.GatewayReport)
	if s == nil {
		return out
	}
	for i := range s.Peers {
		if g := s.Peers[i].Gateway; g != nil {
			out[cluster+"/"+s.Peers[i].ID] = g.Report
		}
	}
	return out
}

// rebuild makes a new state from what is known now.
func (w *watcher) rebuild() {
	next := build(w.readings, w.diagnoses)
	next.Sequence, next.Time = w.state.Sequence+1, time.Now().UTC()
	w.state = next
	gone := func(key string, h history) bool { return len(h) == 0 || time.Since(h[len(h)-1].at) > keptFor }
	maps.DeleteFunc(w.histories, gone)
}

// series is the history of an end after a time.
func (w *watcher) series(end string, since time.Time) Series {
	w.mu.Lock()
	h := slices.Clone(w.histories[end])
	w.mu.Unlock()
	return h.since(since)
}

// surveyOf is what was last read of a cluster, nil before the first time.
func (w *watcher) surveyOf(i int) *survey.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.readings[i].survey
}

// diagnoseAll asks the doctor about unhealthy peerings, one at a time.
func (w *watcher) diagnoseAll(ctx context.Context) {
	for w.watched(ctx) {
		p, ok := w.undiagnosed()
		if !ok {
			if !access.Pause(ctx, w.interval/10) {
				return
			}
			continue
		}
		d := w.diagnose(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if d.urgency = p.urgency(); p.Tone != Down && !d.cut {
			d.urgency = 1 // should the peering go down after all, it is examined again
		}
		w.mu.Lock()
		w.diagnoses[p.Key] = d
		w.rebuild()
		w.mu.Unlock()
	}
}

// undiagnosed is the peering that is examined next: those that are down before those that
// are degraded, then the one examined longest ago. The diagnosis of a peering that has
// recovered is forgotten.
func (w *watcher) undiagnosed() (next Peering, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unwell := make(map[string]bool)
	var best time.Time
	for _, p := range w.state.Peerings {
		urgency := p.urgency()
		if urgency == 0 {
			continue
		}
		unwell[p.Key] = true
		var at time.Time
		if d := w.diagnoses[p.Key]; d != nil {
			if urgency < d.urgency { // should it get worse again, that is a new problem
				better := *d
				better.urgency, better.cut = urgency, false
				w.diagnoses[p.Key] = &better
			}
			at = d.Time
			if since := time.Since(at); since < worseAfter || since < diagnosedFor && urgency <= d.urgency {
				continue
			}
		}
		if ok && (urgency < next.urgency() || urgency == next.urgency() && !at.Before(best)) {
			continue
		}
		next, best, ok = p, at, true
	}
	maps.DeleteFunc(w.diagnoses, func(key string, _ *Diagnosis) bool { return !unwell[key] })
	return next, ok
}
