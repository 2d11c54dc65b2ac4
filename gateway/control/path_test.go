package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/dataplane/plpmtu"
)

// fakePath is a path that carries packets up to a size.
type fakePath struct {
	mu           sync.Mutex
	carries      int
	route        int
	refuse       error // of SetDontFragment
	size         int
	dontFragment bool
}

func (p *fakePath) PingPeer(ctx context.Context, size int) (time.Duration, error) {
	p.mu.Lock()
	passes := size <= p.carries || !p.dontFragment
	p.mu.Unlock()
	if !passes {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	time.Sleep(10 * time.Millisecond) // the way, in the time of the test
	return 10 * time.Millisecond, nil
}

func (p *fakePath) SetPathMTU(size int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = size
	return nil
}

func (p *fakePath) SetDontFragment(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dontFragment = on && p.refuse == nil
	return p.refuse
}

func (p *fakePath) Route(netip.AddrPort) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.route
}

func TestPathIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakePath{carries: 4000}
		var log bytes.Buffer
		r := New(Options{Dir: t.TempDir(), Path: p, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		f := follower{runner: r, path: p}
		wg.Go(func() { f.run(ctx) })
		want := func(what string, size int, dontFragment bool, phase plpmtu.Phase) {
			t.Helper()
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			state := r.State().Path
			if p.size != size || p.dontFragment != dontFragment || state != (PathState{phase, size}) {
				t.Errorf("%s: packets of %d bytes, Don't Fragment %v, state %+v; want %d, %v, %v", what, p.size, p.dontFragment, state, size, dontFragment, phase)
			}
		}
		change := func(change func()) {
			p.mu.Lock()
			defer p.mu.Unlock()
			change()
		}
		facts := plpmtu.Facts{Own: 8900, Peer: 8900, Endpoint: netip.MustParseAddrPort("192.0.2.1:51840")}
		want("nothing is known", plpmtu.Base, false, plpmtu.Disabled)
		r.path.set(facts)
		want("the peer is away", plpmtu.Base, false, plpmtu.Disabled)
		facts.Alive = true
		r.path.set(facts)
		time.Sleep(time.Minute)
		want("it is there", 4000, true, plpmtu.Complete)
		change(func() { p.route = 2000 })
		time.Sleep(2 * time.Second)
		want("the routes have changed", 2000, true, plpmtu.Complete)
		change(func() { p.route, p.carries = 0, 1440 })
		time.Sleep(time.Minute)
		want("less gets through", 1440, true, plpmtu.Complete)
		facts.Alive = false
		r.path.set(facts)
		want("the peer is away again", plpmtu.Base, false, plpmtu.Disabled)
		change(func() { p.refuse, p.carries = errors.New("not possible here"), 8900 })
		facts.Alive = true
		r.path.set(facts)
		time.Sleep(time.Minute)
		synctest.Wait()
		change(func() {
			if p.size != plpmtu.Base {
				t.Errorf("without Don't Fragment: packets of %d bytes", p.size)
			}
		})
		cancel()
		wg.Wait()
		if n := strings.Count(log.String(), "not possible here"); n != 1 {
			t.Errorf("the error is logged %d times:\n%s", n, log.String())
		}
	})
}
