package fabric

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/node/hostnet"
	"github.com/sluice-net/sluice/node/tunlink"
)

// sampleAge is how old a sample may be that State shows: with thousands of links
// a sample costs a tenth of a second.
const sampleAge = 2 * time.Second

// sample is what the kernel and the agent's own ends said at one time. It is
// never changed, only replaced.
type sample struct {
	at     time.Time
	actual hostnet.Actual
	ends   map[string]tunlink.TunnelStatus // by device
	seen   map[string]seen                 // by link
}

// seen is when a link received something last.
type seen struct {
	packets uint64
	at      time.Time // zero: not since we look
}

// sampler reads counters, for whoever asks, not more often than is worth it.
type sampler struct {
	host Host
	ends Ends

	mu   sync.Mutex
	last sample
	old  bool // last is not to be shown any more
}

// outdated says that something has changed since the last sample.
func (s *sampler) outdated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old = true
}

// take returns a sample that is no older than age, or the last one if the kernel
// does not answer.
func (s *sampler) take(age time.Duration) sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.old && !s.last.at.IsZero() && time.Since(s.last.at) < age {
		return s.last
	}
	actual, err := s.host.Read()
	if err != nil {
		return s.last
	}
	now := sample{at: time.Now(), actual: actual, ends: make(map[string]tunlink.TunnelStatus), seen: make(map[string]seen, len(actual.Links))}
	for i := range actual.Links {
		l := &actual.Links[i]
		before, known := s.last.seen[l.Name]
		this := seen{packets: l.Counters.RxPackets, at: before.at}
		if known && this.packets != before.packets {
			this.at = now.at
		}
		now.seen[l.Name] = this
	}
	if s.ends != nil {
		for _, t := range s.ends.Status().Tunnels {
			now.ends[t.Device] = t
		}
	}
	s.last, s.old = now, false
	return now
}

// sample looks at the kernel without being asked for, and returns when to do so
// again.
func (r *Runner) sample() (next time.Time) {
	began := time.Now()
	s := r.sampler.take(0)
	r.actual = s.actual
	return time.Now().Add(max(sampleInterval, 100*time.Since(began)))
}

// drifted tells whether what was sampled is not what is desired, although no
// event has said so.
func (r *Runner) drifted() bool {
	if !r.planned {
		return len(r.idle()) > 0
	}
	return !r.fresh && len(r.failures) == 0 && (len(r.idle()) > 0 || !r.diff(r.plan.Desired, r.actual).Empty())
}
