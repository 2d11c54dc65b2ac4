package page

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/doctor"
	"github.com/sluice-net/sluice/admin/survey"
)

// counted reads a cluster as told, counting.
type counted struct {
	mu          sync.Mutex
	reads, now  int // altogether, and under way
	most, whole int
	err         error
	cut         bool
	examined    int
	hang        time.Duration // how much longer a reading takes
}

func (c *counted) read(_ context.Context, _ *access.Cluster, earlier *survey.Cluster, _ bool) (*survey.Cluster, error) {
	c.mu.Lock()
	c.reads++
	c.now++
	c.most = max(c.most, c.now)
	if earlier == nil {
		c.whole++
	}
	tick, err, cut, hang := c.reads, c.err, c.cut, c.hang
	c.mu.Unlock()
	time.Sleep(time.Second + hang) // the time of a bubble
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s := clusterWith("rome", 2, tick, "milan")
	if cut {
		cutTunnel(&s.Peers[0])
	}
	return s, nil
}

// seen is what was counted so far.
func (c *counted) seen() (reads, most, whole, examined int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads, c.most, c.whole, c.examined
}

func (c *counted) diagnose(context.Context, Peering) *Diagnosis {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.examined++
	return &Diagnosis{Time: time.Now(), Findings: []doctor.Finding{{Message: "UDP is blocked"}}}
}

// watching runs a watcher of one cluster within a bubble.
func watching(t *testing.T, do func(*counted, *watcher)) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		w := newWatcher([]*access.Cluster{{}}, 5*time.Second, c.diagnose)
		w.read = c.read
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.run(ctx); close(done) }()
		do(c, w)
		cancel()
		<-done
	})
}

// TestReadsWhileSomebodyLooks: nothing is read before a page asks, one survey at a time
// however many pages ask, and nothing once they are gone.
func TestReadsWhileSomebodyLooks(t *testing.T) {
	watching(t, func(c *counted, w *watcher) {
		time.Sleep(time.Hour)
		if reads, _, _, _ := c.seen(); reads != 0 {
			t.Fatalf("%d surveys before anybody looks", reads)
		}
		for range 60 { // a minute, ten pages
			for range 10 {
				w.current()
			}
			time.Sleep(time.Second)
		}
		if reads, most, whole, _ := c.seen(); reads < 11 || reads > 13 || most != 1 || whole > 3 {
			t.Errorf("%d surveys in a minute, %d at once, %d of everything", reads, most, whole)
		}
		time.Sleep(watchedFor + time.Minute)
		before, _, _, _ := c.seen()
		time.Sleep(time.Hour)
		if reads, _, _, _ := c.seen(); reads != before {
			t.Errorf("%d surveys while nobody looks", reads-before)
		}
		w.current()
		time.Sleep(10 * time.Second)
		if reads, _, _, _ := c.seen(); reads == before {
			t.Error("no survey once somebody looks again")
		}
	})
}

// TestTrouble: a cluster that does not answer keeps what was known of it, and says why.
func TestTrouble(t *testing.T) {
	watching(t, func(c *counted, w *watcher) {
		w.current()
		time.Sleep(10 * time.Second)
		c.mu.Lock()
		c.err = errors.New("connection refused")
		c.mu.Unlock()
		time.Sleep(10 * time.Second)
		s := w.current()
		if s.Clusters[0].Problem != "connection refused" || s.Clusters[0].ID != "rome" || len(s.Peerings) != 1 {
			t.Errorf("%+v", s)
		}
		c.mu.Lock()
		c.err = nil
		c.mu.Unlock()
		time.Sleep(10 * time.Second)
		if s := w.current(); s.Clusters[0].Problem != "" {
			t.Errorf("well again: %+v", s.Clusters[0])
		}
	})
}

// TestHanging: what is shown of a cluster that takes long to answer is marked as old, long before it is given up.
func TestHanging(t *testing.T) {
	watching(t, func(c *counted, w *watcher) {
		w.current()
		time.Sleep(10 * time.Second)
		hang := func(d time.Duration) {
			c.mu.Lock()
			c.hang = d
			c.mu.Unlock()
		}
		hang(30 * time.Second)
		for range 5 {
			time.Sleep(5 * time.Second)
			w.current()
		}
		s := w.current()
		if p := s.Peerings[0]; s.Clusters[0].Problem != errLate.Error() || !p.Ends[0].Stale || p.Tone != Unknown {
			t.Errorf("while it hangs: %q, %+v", s.Clusters[0].Problem, p)
		}
		hang(0)
		time.Sleep(40 * time.Second)
		if s := w.current(); s.Clusters[0].Problem != "" || s.Peerings[0].Tone != Up {
			t.Errorf("well again: %+v", s)
		}
	})
}

// TestDiagnosis: a peering that is down is examined, not more than once a minute; what
// came of it is forgotten when it is well.
func TestDiagnosis(t *testing.T) {
	watching(t, func(c *counted, w *watcher) {
		w.current()
		time.Sleep(8 * time.Second)
		if _, _, _, examined := c.seen(); examined != 0 {
			t.Error("a peering that is well was examined")
		}
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
		time.Sleep(10 * time.Second) // the promise is ten seconds
		s := w.current()
		if p := s.Peerings[0]; p.Tone != Down || p.Diagnosis == nil || p.Diagnosis.Findings[0].Message != "UDP is blocked" {
			t.Errorf("after ten seconds: %+v", p)
		}
		time.Sleep(45 * time.Second)
		if _, _, _, examined := c.seen(); examined != 1 {
			t.Errorf("examined %d times within a minute", examined)
		}
		c.mu.Lock()
		c.cut = false
		c.mu.Unlock()
		time.Sleep(15 * time.Second)
		if s := w.current(); s.Peerings[0].Tone != Up || s.Peerings[0].Diagnosis != nil {
			t.Errorf("well again: %+v", s.Peerings[0])
		}
	})
}

// tunnel is one between rome and milan, as their gateways tell of it.
type tunnel struct {
	mu       sync.Mutex
	cut      time.Time // zero: it is not
	examined int
	innocent bool // the doctor finds nothing
}

// set cuts the tunnel, or mends it.
func (u *tunnel) set(at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cut = at
}

// seen is how often it was examined so far.
func (u *tunnel) seen() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.examined
}

// read takes a while, and a gateway pings every two seconds.
func (u *tunnel) read(_ context.Context, c *access.Cluster, _ *survey.Cluster, _ bool) (*survey.Cluster, error) {
	time.Sleep(300 * time.Millisecond)
	u.mu.Lock()
	defer u.mu.Unlock()
	self, peer := "rome", "milan"
	if c.Origin == peer {
		self, peer = peer, self
	}
	s := clusterWith(self, 2, 1, peer)
	if u.cut.IsZero() {
		return s, nil
	}
	silence := time.Since(u.cut)
	if silence > 10*time.Second {
		cutTunnel(&s.Peers[0])
	}
	s.Peers[0].Gateway.Report.Sync.Peer.Lost = int(max(0, silence-500*time.Millisecond) / (2 * time.Second))
	return s, nil
}

func (u *tunnel) diagnose(context.Context, Peering) *Diagnosis {
	time.Sleep(3 * time.Second)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.examined++
	if u.innocent {
		return &Diagnosis{Time: time.Now()}
	}
	return &Diagnosis{Time: time.Now(), cut: true, Findings: []doctor.Finding{{Status: doctor.Failed, Check: "reachability", Message: "UDP is blocked"}}}
}

// TestCutWithinTenSeconds: wherever between two readings a peering is cut, it is down ten
// seconds later, with what the doctor says; it is well ten seconds after it was mended.
func TestCutWithinTenSeconds(t *testing.T) {
	for after := time.Duration(0); after < 5*time.Second; after += 250 * time.Millisecond {
		u := &tunnel{}
		u.watched(t, func(w *watcher) {
			time.Sleep(20*time.Second + after)
			u.set(time.Now())
			time.Sleep(10 * time.Second)
			if p := w.current().Peerings[0]; p.Tone != Down || p.Diagnosis == nil || p.Why != "UDP is blocked" {
				t.Errorf("cut %v after a reading: %+v", after, p)
			}
			time.Sleep(10 * time.Second)
			u.set(time.Time{})
			time.Sleep(10 * time.Second)
			if p := w.current().Peerings[0]; p.Tone != Up || p.Diagnosis != nil {
				t.Errorf("mended, cut %v after a reading: %+v", after, p)
			}
			if n := u.seen(); n != 1 {
				t.Errorf("examined %d times", n)
			}
		})
	}
}

// TestPingsLostByAccident: a peering is not down because some pings got lost.
func TestPingsLostByAccident(t *testing.T) {
	u := &tunnel{innocent: true}
	u.watched(t, func(w *watcher) {
		time.Sleep(20 * time.Second)
		u.set(time.Now())
		for range 9 {
			time.Sleep(time.Second)
			if p := w.current().Peerings[0]; p.Tone != Up {
				t.Errorf("%+v", p)
			}
		}
		u.set(time.Time{})
		time.Sleep(10 * time.Second)
		if n := u.seen(); n != 1 {
			t.Errorf("examined %d times", n)
		}
	})
}

// watched runs a watcher of both ends within a bubble, with a page that asks.
func (u *tunnel) watched(t *testing.T, do func(*watcher)) {
	synctest.Test(t, func(t *testing.T) {
		clusters := []*access.Cluster{{Options: access.Options{Origin: "rome"}}, {Options: access.Options{Origin: "milan"}}}
		w := newWatcher(clusters, DefaultInterval, u.diagnose)
		w.read = u.read
		w.current()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.run(ctx); close(done) }()
		do(w)
		cancel()
		<-done
	})
}

// TestDoctorWasTooEarly: a peering of which the doctor found nothing while pings got lost is
// examined again when it is down.
func TestDoctorWasTooEarly(t *testing.T) {
	u := &tunnel{innocent: true}
	u.watched(t, func(w *watcher) {
		time.Sleep(20 * time.Second)
		u.set(time.Now())
		time.Sleep(30 * time.Second)
		if n := u.seen(); n != 2 {
			t.Errorf("examined %d times", n)
		}
	})
}

// TestUrgency: what gets worse is examined again at once, what stays as it is once a minute.
func TestUrgency(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for _, tt := range []struct {
		name    string
		peering Peering
		before  *Diagnosis
		want    bool
	}{
		{"well", Peering{Tone: Up}, nil, false},
		{"degraded", Peering{Tone: Degraded}, nil, true},
		{"degraded, examined", Peering{Tone: Degraded}, &Diagnosis{Time: ago(20 * time.Second), urgency: 1}, false},
		{"degraded, examined long ago", Peering{Tone: Degraded}, &Diagnosis{Time: ago(70 * time.Second), urgency: 1}, true},
		{"down, examined while degraded", Peering{Tone: Down}, &Diagnosis{Time: ago(20 * time.Second), urgency: 1}, true},
		{"down, examined just now", Peering{Tone: Down}, &Diagnosis{Time: ago(time.Second), urgency: 1}, false},
		{"down, examined while silent", Peering{Tone: Down}, &Diagnosis{Time: ago(20 * time.Second), urgency: 2}, false},
		{"silent while degraded", Peering{Tone: Degraded, silent: true}, &Diagnosis{Time: ago(20 * time.Second), urgency: 1}, true},
	} {
		w := &watcher{state: &State{Peerings: []Peering{tt.peering}}, diagnoses: map[string]*Diagnosis{}}
		if tt.before != nil {
			w.diagnoses[""] = tt.before
		}
		if _, got := w.undiagnosed(); got != tt.want {
			t.Errorf("%s: examined %v, want %v", tt.name, got, tt.want)
		}
	}
	// Better, and as bad as before.
	w := &watcher{state: &State{Peerings: []Peering{{Tone: Degraded}}}, diagnoses: map[string]*Diagnosis{"": {Time: ago(20 * time.Second), urgency: 2, cut: true}}}
	if _, again := w.undiagnosed(); again || w.diagnoses[""].cut {
		t.Errorf("better: examined %v, %+v", again, w.diagnoses[""])
	}
	w.state.Peerings[0].Tone = Down
	if _, again := w.undiagnosed(); !again {
		t.Error("down again: not examined")
	}
}

// TestHistory: rates between two surveys, for an hour.
func TestHistory(t *testing.T) {
	watching(t, func(c *counted, w *watcher) {
		for range 2 * 60 * 2 { // two hours
			w.current()
			time.Sleep(30 * time.Second)
		}
		s := w.series("0/milan", time.Time{})
		if n := len(s.Times); n < 700 || n > 722 {
			t.Fatalf("%d samples", n)
		}
		last := len(s.Times) - 1
		if span := time.UnixMilli(s.Times[last]).Sub(time.UnixMilli(s.Times[0])); span > keptFor || span < keptFor-time.Minute {
			t.Errorf("over %v", span)
		}
		for name, want := range map[string]float64{"egressBytes": 1_300_000 / 5, "ingressBytes": 400_000 / 5, "egressPackets": 200, "ingressPackets": 140} {
			if got := s.Numbers[name][last]; got == nil || *got < want*0.99 || *got > want*1.01 {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		for _, got := range s.Numbers["handshakes"][last-50:] { // one in 50 seconds, smoothed
			if got == nil || *got < 0.9 || *got > 1.5 {
				t.Fatalf("handshakes: %v in a minute", got)
			}
		}
		if got := s.Drops["DropNoMapping"][last]; got < 0.59 || got > 0.61 {
			t.Errorf("drops: %v", s.Drops)
		}
		if again := w.series("0/milan", time.UnixMilli(s.Times[last-2])); len(again.Times) != 2 || len(again.Numbers["memory"]) != 2 {
			t.Errorf("what is new: %+v", again)
		}
	})
}

// TestSamples: what two reports do not tell is no number, and reasons that do not exist
// count together.
func TestSamples(t *testing.T) {
	at := time.Unix(1000, 0)
	report := func(tick int) *survey.GatewayReport {
		p := peerOf("rome", "milan", 0, at.Add(time.Duration(tick)*time.Second), tick)
		return p.Gateway.Report
	}
	if s := sampleOf(at, nil, nil); s.numbers != [len(plotted)]*float64{} {
		t.Errorf("no report: %+v", s)
	}
	if s := sampleOf(at, nil, report(1)); s.numbers[0] != nil || s.numbers[4] == nil || s.numbers[6] == nil {
		t.Errorf("the first report: %+v", s)
	}
	restarted := report(2)
	restarted.Started = at
	if s := sampleOf(at, report(1), restarted); s.numbers[0] != nil || s.drops != nil {
		t.Errorf("another process: %+v", s)
	}
	made := report(2)
	for i := range 10_000 {
		made.DataPlane.Ingress.Verdicts[fmt.Sprintf("Drop%d", i)] = 1
	}
	s := sampleOf(at, report(1), made)
	if len(s.drops) != 2 || s.drops[otherReasons] != 10_000 {
		t.Errorf("invented reasons: %d, %v", len(s.drops), s.drops[otherReasons])
	}
}
