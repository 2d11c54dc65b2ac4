package clusters

import (
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/test/controlplanetest"
)

// interruptions is how often a connect is interrupted before it may come to its
// end, and rounds how often all of that is done.
const (
	interruptions = 3
	rounds        = 3
)

// testInterruptions interrupts network connect at any moment, politely and by
// force. Whatever came before, the next run ends in the state of one that nobody
// interrupted.
func testInterruptions(t *testing.T, p *pair) {
	pe := p.known()
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	start := time.Now()
	p.liqoctl.ok(t, p.connectCommand()...)
	full := time.Since(start)
	want := pe.state(t)
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for round := range rounds {
		p.separate(t, "reset")
		var when []time.Duration
		for i := range interruptions {
			signal := []os.Signal{syscall.SIGKILL, syscall.SIGINT}[i%2]
			wait := time.Duration(random.Int64N(int64(full)))
			when = append(when, wait)
			lines, err := p.liqoctl.listen(t.Context(), signalAfter(wait, signal), p.connectCommand()...)
			if err == nil { // it was faster
				continue
			}
			if signal == syscall.SIGINT && !strings.Contains(text(lines), "interrupted") {
				t.Errorf("Ctrl-C after %v: %v\n%s", wait, err, text(lines))
			}
		}
		lines, err := p.liqoctl.listen(t.Context(), nil, p.connectCommand()...)
		if diff := cmp.Diff(connectSays, done(lines)); err != nil || diff != "" {
			t.Errorf("round %d, interrupted after %v: %v (-want +got)\n%s", round+1, when, err, diff)
		}
		if diff := cmp.Diff(want, pe.state(t)); diff != "" {
			t.Errorf("round %d, interrupted after %v: another state (-want +got)\n%s", round+1, when, diff)
		}
		controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
		t.Logf("round %d: interrupted after %v", round+1, when)
	}
	t.Run("reset", func(t *testing.T) {
		_, _ = p.liqoctl.listen(t.Context(), signalAfter(300*time.Millisecond, syscall.SIGKILL), p.both("network", "reset", "--wait", "--skip-confirm")...)
		p.separate(t, "reset")
		for _, e := range pe.ends() {
			names, err := e.names("get", "configurations,publickeies,gatewayservers,gatewayclients,deployments,services,connections", "-n", e.namespace)
			if err != nil || len(names) > 0 {
				t.Errorf("left in %s: %v (%v)", e.id, names, err)
			}
		}
	})
}

// testAPIServerAway takes the API server of a cluster away half-way: it is waited
// for.
func testAPIServerAway(t *testing.T, p *pair) {
	pe := p.known()
	t.Cleanup(func() { pe.remove(t) })
	pe.explainIfFailed(t)
	p.liqoctl.ok(t, p.connectCommand()...)
	want := pe.state(t)
	for _, s := range p.sides() {
		for name, stay := range map[string]time.Duration{"short": 0, "long": 25 * time.Second} {
			t.Run(s.id+" "+name, func(t *testing.T) {
				p.separate(t, "reset")
				back := make(chan error, 1)
				lines, err := p.liqoctl.listen(t.Context(), func(line string, _ *os.Process) {
					if !strings.Contains(line, "(remote) Configuration applied successfully") {
						return
					}
					s.StopAPIServer()
					go func() {
						time.Sleep(stay)
						back <- s.StartAPIServer()
					}()
				}, p.connectCommand()...)
				if err2 := <-back; err2 != nil {
					t.Fatal(err2)
				}
				t.Logf("%v\n%s", err, text(lines))
				if err != nil {
					t.Errorf("an API server that comes back: %v", err)
				}
				if diff := cmp.Diff(want, pe.state(t)); diff != "" {
					t.Errorf("another state (-want +got)\n%s", diff)
				}
				controlplanetest.Eventually(t, "pods reach each other", pe.traffic)
			})
		}
	}
}
