package tunnel

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/device"
)

// flow is traffic from one gateway to another that never pauses. It remembers
// for how long nothing arrived.
type flow struct {
	mu   sync.Mutex
	last time.Time
	gap  time.Duration
}

// flowPause is the time between two packets.
const flowPause = 20 * time.Millisecond

// startFlow ends with the test.
func startFlow(t *testing.T, from, to *gateway) *flow {
	f := &flow{last: time.Now()}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(flowPause)
		defer tick.Stop()
		for id := uint32(0); ; id++ {
			select {
			case <-tick.C:
				from.overlay.out <- ipPacket(from.inner, to.inner, id, 100)
			case <-stop:
				return
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-to.overlay.in:
				f.mu.Lock()
				f.gap, f.last = max(f.gap, time.Since(f.last)), time.Now()
				f.mu.Unlock()
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
	return f
}

// longest is the longest silence since the last call.
func (f *flow) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	gap := max(f.gap, time.Since(f.last))
	f.gap = 0
	return gap
}

// applyKeys is apply in fake time, for changes of keys.
func (g *gateway) applyKeys(t *testing.T, change func(*Config)) {
	t.Helper()
	synctest.Wait() // a device that starts has its first peer then
	keepPeers(g)
	g.apply(t, change)
	synctest.Wait()
	keepPeers(g)
}

// rotationSteps is what is done to replace the keys of both gateways, in any order.
var rotationSteps = []string{"a's private key", "a's public key at b", "b's private key", "b's public key at a"}

func TestKeysAreReplacedWithoutSilence(t *testing.T) {
	for _, tt := range []struct{ pause, oneWay time.Duration }{
		{0, 0}, {100 * time.Millisecond, 0}, {50 * time.Second, 0},
		{0, 150 * time.Millisecond}, {400 * time.Millisecond, 200 * time.Millisecond},
	} {
		for _, order := range permutations(rotationSteps) {
			if tt.pause > time.Second && deafness(order) > 0 {
				continue // one more minute of silence
			}
			t.Run(fmt.Sprint(tt.pause, ", ", tt.oneWay, ", ", strings.Join(order, ", ")), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testRotation(t, order, tt.pause, tt.oneWay) })
			})
		}
	}
}

func testRotation(t *testing.T, order []string, pause, oneWay time.Duration) {
	n := newMemNet()
	a, b := newPair(t, n)
	cross(t, a, b, 0)
	keepPeers(a, b)
	n.setDelay(oneWay)
	ab, ba := startFlow(t, a, b), startFlow(t, b, a)
	newA, newB := GeneratePrivateKey(), GeneratePrivateKey()
	for _, step := range order {
		switch step {
		case "a's private key":
			a.applyKeys(t, func(c *Config) { c.PrivateKey = newA })
		case "a's public key at b":
			b.applyKeys(t, func(c *Config) { c.PeerKey = newA.Public() })
		case "b's private key":
			b.applyKeys(t, func(c *Config) { c.PrivateKey = newB })
		case "b's public key at a":
			a.applyKeys(t, func(c *Config) { c.PeerKey = newB.Public() })
		}
		time.Sleep(pause)
	}
	time.Sleep(10 * time.Second)
	// Who cannot be known by the key that he has can neither begin a session nor
	// send in the one he had. Then, and where both begin at once, an attempt is in vain.
	most := 3*flowPause + 2*time.Duration(deafness(order))*pause + 8*oneWay
	if deafness(order) > 0 || oneWay > 0 {
		most += 3 * greetAgain
	}
	if gap := max(ab.longest(), ba.longest()); gap > most {
		t.Errorf("silence of %v, want at most %v", gap, most)
	}
	for _, g := range []*gateway{a, b} {
		s := g.Stats()
		if !s.FormerPeer.IsZero() || s.LastHandshake.IsZero() || s.Self != g.config.PrivateKey.Public() || s.Peer != g.config.PeerKey {
			t.Errorf("%s: %+v", g.inner, s)
		}
	}
}

// TestGreeting: so often, and at these times, are those greeted who do not answer.
func TestGreeting(t *testing.T) {
	start := time.Unix(1000, 0)
	small, middle, large := PublicKey{1}, PublicKey{2}, PublicKey{3}
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for _, tt := range []struct {
		name     string
		own      PublicKey
		peers    []PublicKey
		trip     float64
		answered time.Time
		want     map[PublicKey][]float64
	}{
		{"the larger key", large, []PublicKey{small}, 0, time.Time{}, map[PublicKey][]float64{small: {0.5, 1.5, 3.5, 7.5}}},
		{"the smaller key", small, []PublicKey{large}, 0, time.Time{}, map[PublicKey][]float64{large: {2, 6, 14, 30}}},
		{"larger than one key of the peer, and smaller than the other", middle, []PublicKey{small, large}, 0.3, time.Time{},
			map[PublicKey][]float64{small: {0.5, 1.5, 3.5, 7.5}, large: {2, 6, 14, 30}}},
		{"a long path", middle, []PublicKey{small, large}, 1, time.Time{}, map[PublicKey][]float64{small: {1.5, 4.5, 10.5, 22.5}, large: {6, 18, 42, 90}}},
		{"answered before", large, []PublicKey{small}, 0, at(-1), map[PublicKey][]float64{small: {0.5, 1.5, 3.5, 7.5}}},
		{"answered", large, []PublicKey{small}, 0, at(1), map[PublicKey][]float64{small: {0.5}}},
		{"one of two has answered", middle, []PublicKey{small, large}, 0, at(2.25), map[PublicKey][]float64{small: {0.5, 1.5}, large: {2}}},
	} {
		g := newGreeting(tt.own, tt.peers, time.Duration(tt.trip*float64(time.Second)), start)
		got := make(map[PublicKey][]float64)
		due := at(0.5)
		for s := 0.0; s < 200 && len(g.to) > 0; s += 0.25 {
			answered := tt.answered
			if answered.After(at(s)) {
				answered = time.Time{}
			}
			var greet []PublicKey
			was := due
			if greet, g, due = g.next(answered, at(s)); len(greet) > 0 && was.After(at(s)) {
				t.Errorf("%s: greeted at %v, when nothing was due before %v", tt.name, at(s), was)
			}
			for _, key := range greet {
				got[key] = append(got[key], s)
			}
		}
		if diff := cmp.Diff(tt.want, got); len(g.to) > 0 || diff != "" {
			t.Errorf("%s: (-want +got)\n%s%+v", tt.name, diff, g)
		}
	}
}

// deafness is after how many of the steps one side has a key that the other does
// not know.
func deafness(order []string) (n int) {
	for i := range order {
		done := func(step string) bool { return slices.Contains(order[:i+1], step) }
		if done("a's private key") && !done("a's public key at b") || done("b's private key") && !done("b's public key at a") {
			n++
		}
	}
	return n
}

func permutations(s []string) (all [][]string) {
	if len(s) == 0 {
		return [][]string{nil}
	}
	for i := range s {
		rest := slices.Delete(slices.Clone(s), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append([]string{s[i]}, p...))
		}
	}
	return all
}

func TestFormerKeyIsHonouredForThreeMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 0)
		keepPeers(a, b)
		ab, ba := startFlow(t, a, b), startFlow(t, b, a)
		former, next := a.key.Public(), GeneratePrivateKey()
		b.applyKeys(t, func(c *Config) { c.PeerKey = next.Public() })
		time.Sleep(formerLife - time.Second)
		if s := b.Stats(); s.FormerPeer != former || s.Peer != next.Public() || !s.LastHandshake.IsZero() {
			t.Errorf("before: %+v", s)
		}
		if gap := max(ab.longest(), ba.longest()); gap > 2*flowPause {
			t.Errorf("silence of %v while it is honoured", gap)
		}
		time.Sleep(time.Minute)
		if s := b.Stats(); !s.FormerPeer.IsZero() {
			t.Errorf("after: %+v", s)
		}
		if gap := min(ab.longest(), ba.longest()); gap < 55*time.Second {
			t.Errorf("silence of %v after it was no longer honoured", gap)
		}
		a.applyKeys(t, func(c *Config) { c.PrivateKey = next })
		time.Sleep(10 * time.Second)
		ab.longest()
		ba.longest()
		time.Sleep(time.Second)
		if gap := max(ab.longest(), ba.longest()); gap > 2*flowPause {
			t.Errorf("silence of %v when the peer has its key", gap)
		}
	})
}

func TestBackToTheFormerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 0)
		keepPeers(a, b)
		ab, ba := startFlow(t, a, b), startFlow(t, b, a)
		handshake := b.Stats().LastHandshake
		for range 3 { // each key anew
			b.applyKeys(t, func(c *Config) { c.PeerKey = GeneratePrivateKey().Public() })
			time.Sleep(time.Second)
		}
		b.applyKeys(t, func(c *Config) { c.PeerKey = a.key.Public() })
		time.Sleep(time.Second)
		if s := b.Stats(); !s.FormerPeer.IsZero() || !s.LastHandshake.Equal(handshake) {
			t.Errorf("not the session of before: %+v", s)
		}
		// While the former key rests, it is taken into use again.
		next := GeneratePrivateKey()
		b.applyKeys(t, func(c *Config) { c.PeerKey = next.Public() })
		a.applyKeys(t, func(c *Config) { c.PrivateKey = next })
		time.Sleep(formerRest / 2)
		b.applyKeys(t, func(c *Config) { c.PeerKey = a.key.Public() })
		time.Sleep(formerRest)
		a.applyKeys(t, func(c *Config) { c.PrivateKey = a.key })
		time.Sleep(10 * time.Second)
		if gap := max(ab.longest(), ba.longest()); gap > 3*flowPause {
			t.Errorf("silence of %v", gap)
		}
		if s := b.Stats(); !s.FormerPeer.IsZero() || s.LastHandshake.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

func TestPeersWithoutSessionAreReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		b.applyKeys(t, func(c *Config) { c.PeerKey = GeneratePrivateKey().Public() }) // a mistake
		b.applyKeys(t, func(c *Config) { c.PeerKey = a.key.Public() })
		if s := b.Stats(); !s.FormerPeer.IsZero() {
			t.Errorf("a key that was never used is honoured: %+v", s)
		}
		cross(t, a, b, 1)
		keepPeers(a, b)
		b.apply(t, func(c *Config) { c.PeerKey = PublicKey{} }) // a live one, taken away
		synctest.Wait()
		b.apply(t, func(c *Config) { c.PeerKey = GeneratePrivateKey().Public() })
		if s := b.Stats(); !s.FormerPeer.IsZero() || b.dev.Load().LookupPeer(device.NoisePublicKey(a.key.Public())) != nil {
			t.Errorf("a key that was taken away is honoured: %+v", s)
		}
		keepPeers(b)
	})
}

func TestSuccession(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	key := PublicKey(testKey(1))
	waiting := succession{former: key, since: start, rx: 10}
	resting := succession{former: key, since: start, rx: 10, moved: at(time.Minute)}
	type result struct {
		Next succession
		Wait time.Duration
	}
	for _, tt := range []struct {
		name string
		s    succession
		rx   uint64
		at   time.Duration
		want result
	}{
		{"none", succession{}, 7, 0, result{succession{}, idleCheck}},
		{"nothing new heard", waiting, 10, time.Minute, result{waiting, keyCheck}},
		{"heard", waiting, 11, time.Minute, result{resting, formerRest}},
		{"time is up", waiting, 10, formerLife, result{succession{former: key, since: start, rx: 10, moved: at(formerLife)}, formerRest}},
		{"at rest", resting, 11, time.Minute + formerRest/4, result{resting, formerRest - formerRest/4}},
		{"rested", resting, 11, time.Minute + formerRest, result{succession{}, idleCheck}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next, wait := tt.s.next(tt.rx, at(tt.at))
			if diff := cmp.Diff(tt.want, result{next, wait}, cmp.AllowUnexported(succession{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
