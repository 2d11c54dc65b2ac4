package plane

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
)

// Pool lends control planes. It starts one when none is free, so there are as many as
// were in use at once.
type Pool struct {
	dir      string
	starting chan struct{} // one element for each that is being started

	mu        sync.Mutex
	changed   *sync.Cond // idle or resetting
	planes    []*Plane   // all that were started
	idle      []*Plane
	resetting int
	wg        sync.WaitGroup // of resets
	open      context.Context
	close     context.CancelFunc // nobody is lent anything any more
}

// NewPool makes a pool with its files in dir.
func NewPool(dir string) *Pool {
	p := &Pool{dir: dir, starting: make(chan struct{}, runtime.NumCPU())} // more would only be ready later
	p.open, p.close = context.WithCancel(context.Background())
	p.changed = sync.NewCond(&p.mu)
	return p
}

// lease lends a control plane in the state of a baseline.
func (p *Pool) lease(b Baseline) (*Plane, error) {
	pl := p.take(b)
	if pl == nil {
		var err error
		if pl, err = p.start(); err != nil {
			return nil, err
		}
	}
	if pl.at != b {
		if err := pl.reset(p.open, b); err != nil {
			pl.Stop()
			return nil, err
		}
	}
	return pl, nil
}

// take returns a control plane that is free, nil if there is none. It prefers one that
// is as it is wanted.
func (p *Pool) take(b Baseline) *Plane {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) == 0 && p.resetting > 0 {
		p.changed.Wait()
	}
	for i, pl := range p.idle {
		if pl.at == b || i == len(p.idle)-1 {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return pl
		}
	}
	return nil
}

// start starts one more.
func (p *Pool) start() (*Plane, error) {
	p.starting <- struct{}{}
	defer func() { <-p.starting }()
	dir, err := os.MkdirTemp(p.dir, "")
	if err != nil {
		return nil, err
	}
	pl, err := Start(dir)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planes = append(p.planes, pl)
	return pl, nil
}

// giveBack takes back what was lent. It keeps its baseline, as changing that costs most.
func (p *Pool) giveBack(pl *Plane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open.Err() != nil {
		return
	}
	p.resetting++
	p.wg.Go(func() {
		err := pl.reset(p.open, pl.at)
		if err != nil {
			pl.Stop()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil && p.open.Err() == nil {
			fmt.Fprintf(os.Stderr, "control plane in %s is not used again: %v\n", pl.Dir, err)
		}
		p.resetting--
		if err == nil {
			p.idle = append(p.idle, pl)
		}
		p.changed.Broadcast()
	})
}
