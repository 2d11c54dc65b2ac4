package control

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/dataplane/plpmtu"
)

// Path is the way to the peer, as it is to who asks how large packets may be.
type Path interface {
	// PingPeer sends the peer one packet of size bytes, and waits for its answer.
	PingPeer(ctx context.Context, size int) (time.Duration, error)
	// SetPathMTU says how large the packets that leave may be.
	SetPathMTU(size int) error
	// SetDontFragment says whether they may leave in pieces.
	SetDontFragment(on bool) error
	// Route is the largest packet that leaves this host for an endpoint in one piece, 0 if
	// that is not known.
	Route(endpoint netip.AddrPort) int
}

// PathState is what was found out about the path.
type PathState struct {
	// Phase is how far it is known.
	Phase plpmtu.Phase `json:"phase"`
	// MTU is the largest packet that leaves for the peer.
	MTU int `json:"mtu"`
}

// routeInterval is how often the routes of this host are looked at.
const routeInterval = time.Second

// pathFacts hands what is known of the peer to who follows the path.
type pathFacts struct {
	mu      sync.Mutex
	facts   plpmtu.Facts
	changed chan struct{} // one slot: they are not those of before
}

func (p *pathFacts) set(f plpmtu.Facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.facts == f {
		return
	}
	p.facts = f
	select {
	case p.changed <- struct{}{}:
	default: // it has not looked since the last time
	}
}

func (p *pathFacts) get() plpmtu.Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.facts
}

// follower keeps the size of packets equal to what the path carries. It belongs to the
// goroutine in run.
type follower struct {
	runner  *Runner
	path    Path
	search  plpmtu.Search
	state   PathState
	route   int       // of the endpoint
	at      time.Time // when it was looked up
	to      netip.AddrPort
	failed  string // the last error that was logged; empty: all is well
	answers chan pathAnswer
	probes  sync.WaitGroup
}

type pathAnswer struct {
	size      int
	roundTrip time.Duration
}

// run follows the path until ctx ends.
func (f *follower) run(ctx context.Context) {
	f.answers = make(chan pathAnswer)
	defer f.probes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-f.runner.path.changed:
		case a := <-f.answers:
			f.search.Answered(time.Now(), a.size, a.roundTrip)
		}
		now := time.Now()
		step := f.search.Step(now, f.facts(now))
		if f.apply(step) && step.Probe > 0 {
			f.probes.Go(func() { f.ping(ctx, step.Probe) })
		}
		timer.Reset(min(step.Next.Sub(now), routeInterval))
	}
}

// facts are what the ping knows of the peer, and what this host does of its routes.
func (f *follower) facts(now time.Time) plpmtu.Facts {
	facts := f.runner.path.get()
	if facts.Own == 0 { // nothing is in force yet
		facts = plpmtu.Facts{Own: plpmtu.Base}
	}
	if facts.Alive && (facts.Endpoint != f.to || now.Sub(f.at) >= routeInterval) {
		f.to, f.at, f.route = facts.Endpoint, now, f.path.Route(facts.Endpoint)
	}
	facts.Route = f.route
	return facts
}

// apply does what the search asks for, and tells whether probes make sense.
func (f *follower) apply(s plpmtu.Step) bool {
	// First, and again each time: the socket may be another one.
	err := f.path.SetDontFragment(s.DontFragment)
	if err != nil { // pieces would answer for what does not pass whole
		s.Size = min(s.Size, plpmtu.Base)
	}
	state := PathState{f.search.Phase(), s.Size}
	if state.MTU != f.state.MTU {
		if sizeErr := f.path.SetPathMTU(s.Size); sizeErr != nil {
			err, state.MTU = sizeErr, f.state.MTU
		} else {
			f.runner.log.Info("packets to the peer have another size", "bytes", s.Size, "before", f.state.MTU, "search", state.Phase)
		}
	}
	if state != f.state {
		f.state = state
		f.runner.mu.Lock()
		f.runner.state.Path = state
		f.runner.mu.Unlock()
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != f.failed && err != nil {
		f.runner.log.Warn("the size of packets is not that of the path", "error", err)
	}
	f.failed = text
	return err == nil
}

// ping sends one probe.
func (f *follower) ping(ctx context.Context, size int) {
	// Longer than the search waits: an answer that is late tells that the size passes.
	waiting, cancel := context.WithTimeout(ctx, plpmtu.MaxProbes*plpmtu.MaxTimeout)
	defer cancel()
	roundTrip, err := f.path.PingPeer(waiting, size)
	if err != nil {
		return // not answered
	}
	select {
	case f.answers <- pathAnswer{size, roundTrip}:
	case <-ctx.Done():
	}
}
