package tunnel

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDecideEgress(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name  string
		facts egressFacts
		want  grant
	}{
		{"being configured", egressFacts{Held: true, Reachable: true, LastSent: now}, grant{Wait: egressPause}},
		{"no endpoint", egressFacts{}, grant{Reason: dropNoEndpoint}},
		{"no endpoint, but a message was just sent", egressFacts{LastSent: ago(time.Millisecond)}, grant{Credits: 1024, Reason: dropInFlight}},
		{"nothing sent yet", egressFacts{Reachable: true}, grant{Credits: 64, Reason: dropInFlight}},
		{"nothing sent yet, some inside", egressFacts{Reachable: true, InFlight: 40, Waited: time.Hour}, grant{Credits: 24, Reason: dropInFlight}},
		{"first burst, no answer yet", egressFacts{Reachable: true, InFlight: 64}, grant{Wait: egressPause}},
		{"first burst, nearly full", egressFacts{Reachable: true, InFlight: 57, Waited: egressTimeout - 1}, grant{Wait: egressPause}},
		{"first burst, the peer was heard", egressFacts{Reachable: true, InFlight: 64, LastReceived: ago(time.Millisecond)}, grant{Credits: 960, Reason: dropInFlight}},
		{"first burst without an answer", egressFacts{Reachable: true, InFlight: 64, Waited: egressTimeout}, grant{Own: ownBurst, Probe: 1, Reason: dropNoSession}},
		{"without an answer, after a probe", egressFacts{Reachable: true, InFlight: 65, Waited: egressTimeout, LastProbe: ago(4 * time.Second)}, grant{Own: ownBurst, Reason: dropNoSession}},
		{"without an answer, a probe is due", egressFacts{Reachable: true, InFlight: 65, Waited: egressTimeout, LastProbe: ago(5 * time.Second)}, grant{Own: ownBurst, Probe: 1, Reason: dropNoSession}},
		{"without an answer, nearly full", egressFacts{Reachable: true, InFlight: 60, Waited: egressTimeout, LastProbe: ago(time.Second)}, grant{Credits: 4, Own: ownBurst, Reason: dropNoSession}},
		{"in use", egressFacts{Reachable: true, InFlight: 500, LastSent: ago(time.Millisecond)}, grant{Credits: 524, Reason: dropInFlight}},
		{"in use, an eighth free", egressFacts{Reachable: true, InFlight: 896, LastSent: ago(time.Millisecond)}, grant{Credits: 128, Reason: dropInFlight}},
		{"in use, full", egressFacts{Reachable: true, InFlight: 897, LastSent: ago(400 * time.Millisecond)}, grant{Wait: egressPause}},
		{"in use, full, then the process was stopped", egressFacts{Reachable: true, InFlight: 1024, LastSent: ago(time.Hour), Waited: egressPause}, grant{Wait: egressPause}},
		{"socket busy, full", egressFacts{Reachable: true, InFlight: 1024, LastSent: ago(time.Hour), Waited: time.Hour, Sending: true}, grant{Wait: egressPause}},
		{"socket busy, not full", egressFacts{Reachable: true, InFlight: 100, Sending: true}, grant{Credits: 924, Reason: dropInFlight}},
		{"session died under load", egressFacts{Reachable: true, InFlight: 1024, LastSent: ago(time.Second), Waited: egressTimeout, LastProbe: ago(time.Second)}, grant{Own: ownBurst, Reason: dropInFlight}},
		{"session died long ago", egressFacts{Reachable: true, InFlight: 1024, LastSent: ago(180 * time.Second), Waited: egressTimeout, LastProbe: ago(time.Second)}, grant{Own: ownBurst, Reason: dropNoSession}},
		{"the peer is heard, but nothing leaves", egressFacts{Reachable: true, InFlight: 1024, LastSent: ago(time.Minute), LastReceived: ago(time.Millisecond), Waited: egressTimeout, LastProbe: now}, grant{Own: ownBurst, Reason: dropInFlight}},
		{"idle for an hour", egressFacts{Reachable: true, LastSent: ago(time.Hour)}, grant{Credits: 64, Reason: dropInFlight}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Now, tt.facts.Max = now, 1024
			if diff := cmp.Diff(tt.want, decideEgress(tt.facts)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Whatever the facts: no more credits than the bound allows, and never stuck.
func TestDecideEgressInvariants(t *testing.T) {
	now := time.Unix(1000, 0)
	past := rapid.Custom(func(t *rapid.T) time.Time {
		return now.Add(-time.Duration(rapid.Int64Range(0, int64(400*time.Second)).Draw(t, "ago")))
	})
	rapid.Check(t, func(t *rapid.T) {
		f := egressFacts{
			Now: now, LastSent: past.Draw(t, "sent"), LastReceived: past.Draw(t, "heard"), LastProbe: past.Draw(t, "probe"),
			Waited:   time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "waited")),
			InFlight: rapid.IntRange(0, 1200).Draw(t, "in flight"), Max: rapid.IntRange(256, 1024).Draw(t, "max"),
			Sending: rapid.Bool().Draw(t, "sending"), Reachable: rapid.Bool().Draw(t, "reachable"),
		}
		g := decideEgress(f)
		if g.Credits > 0 && f.InFlight+g.Credits > f.Max {
			t.Fatalf("%+v: %d credits", f, g.Credits)
		}
		if g.Wait < 0 || g.Wait > egressPause || g.Wait > 0 && g.Credits+g.Own+g.Probe > 0 {
			t.Fatalf("%+v: %+v", f, g)
		}
		if g.Own > ownBurst || g.Probe > 1 {
			t.Fatalf("%+v: %+v", f, g)
		}
	})
}

func TestDecideIngress(t *testing.T) {
	for _, tt := range []struct {
		name   string
		facts  ingressFacts
		wait   time.Duration
		forget bool
	}{
		{"room", ingressFacts{InFlight: 896, Waited: time.Hour}, 0, false},
		{"no room, just now", ingressFacts{InFlight: 897}, ingressPause, false},
		{"no room for a while", ingressFacts{InFlight: 1024, Waited: ingressTimeout - 1}, ingressPause, false},
		{"no room for too long", ingressFacts{InFlight: 1024, Waited: ingressTimeout}, 0, true},
		{"no room, the data plane is busy", ingressFacts{InFlight: 1024, Waited: time.Hour, Writing: true}, ingressPause, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Max, tt.facts.Want = 1024, 128
			wait, forget := decideIngress(tt.facts)
			if wait != tt.wait || forget != tt.forget {
				t.Errorf("wait %v, forget %v, want %v, %v", wait, forget, tt.wait, tt.forget)
			}
		})
	}
}

// slowLedger is a ledger the obvious way.
type slowLedger struct {
	ids []uintptr
	max int
}

func (l *slowLedger) enter(id uintptr) {
	if len(l.ids) >= l.max {
		l.ids = l.ids[1:]
		l.trim()
	}
	l.ids = append(l.ids, id)
}

func (l *slowLedger) settle(id uintptr) int {
	for i := len(l.ids) - 1; i >= 0; i-- {
		if l.ids[i] == id {
			n := len(slices.DeleteFunc(slices.Clone(l.ids[:i+1]), func(id uintptr) bool { return id == 0 }))
			l.ids = l.ids[i+1:]
			l.trim()
			return n
		}
	}
	return 0
}

func (l *slowLedger) strike(id uintptr) {
	for i := len(l.ids) - 1; i >= 0; i-- {
		if l.ids[i] == id {
			l.ids[i] = 0
			break
		}
	}
	l.trim()
}

func (l *slowLedger) trim() {
	for len(l.ids) > 0 && l.ids[len(l.ids)-1] == 0 {
		l.ids = l.ids[:len(l.ids)-1]
	}
	for len(l.ids) > 0 && l.ids[0] == 0 {
		l.ids = l.ids[1:]
	}
}

func TestLedgerEqualsTheSlowOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "max")
		fast, slow := newLedger(size), &slowLedger{max: size}
		next := uintptr(1)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			// Identities are unique here; reuse is another test.
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				fast.enter(next)
				slow.enter(next)
				next++
			case 3, 4:
				id := uintptr(rapid.IntRange(1, int(next)).Draw(t, "settled"))
				batch := rapid.IntRange(0, 50).Draw(t, "batch")
				if f, s := fast.settle(id, batch), slow.settle(id); f != s {
					t.Fatalf("settle(%d) = %d, want %d", id, f, s)
				}
			case 5:
				id := uintptr(rapid.IntRange(1, int(next)).Draw(t, "struck"))
				fast.strike(id)
				slow.strike(id)
			}
			if fast.len() != len(slow.ids) {
				t.Fatalf("length %d, want %d", fast.len(), len(slow.ids))
			}
		}
		slow.ids = slices.DeleteFunc(slow.ids, func(id uintptr) bool { return id == 0 })
		if got := fast.reset(); got != len(slow.ids) || fast.len() != 0 {
			t.Fatalf("reset() = %d, want %d", got, len(slow.ids))
		}
	})
}

// Buffers that wireguard-go lost come back from its pool under new packets. What
// was lost must not stay in the ledger because of it.
func TestLedgerForgetsLostBuffers(t *testing.T) {
	l := newLedger(1024)
	for id := range uintptr(64) {
		l.enter(id + 1) // lost
	}
	l.enter(20) // the same buffer again, admitted as a probe
	if got := l.settle(20, 1); got != 65 || l.len() != 0 {
		t.Errorf("settle = %d, %d left, want 65 and 0", got, l.len())
	}
	if got := l.settle(20, 1); got != 0 {
		t.Errorf("settling twice = %d, want 0", got)
	}
}

func TestLedgerAllocatesNothing(t *testing.T) {
	l := newLedger(1024)
	if n := testing.AllocsPerRun(100, func() {
		for id := range uintptr(100) {
			l.enter(id + 1)
		}
		l.strike(100)
		l.settle(90, 90)
		l.reset()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLedger(b *testing.B) {
	for _, bm := range []struct {
		name          string
		batch, inside int
	}{{"batch128", 128, 0}, {"batch1", 1, 0}, {"batch1/inside896", 1, 896}} {
		b.Run(bm.name, func(b *testing.B) {
			l := newLedger(1024)
			next := uintptr(1)
			for range bm.inside {
				l.enter(next)
				next++
			}
			b.ReportAllocs()
			for b.Loop() {
				for range bm.batch {
					l.enter(next)
					next++
				}
				l.settle(next-1-uintptr(bm.inside), bm.batch)
			}
		})
	}
}
