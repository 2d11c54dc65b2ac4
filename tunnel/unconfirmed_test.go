package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestDecideUnconfirmed(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const silence = 3 * time.Second
	for _, tt := range []struct {
		name  string
		facts leadFacts
		want  permit
	}{
		{"it leads", leadFacts{}, permitAll},
		{"it leads, and the peer is silent", leadFacts{Quiet: time.Hour, Session: ago(time.Minute)}, permitAll},
		{"unknown, the peer is heard", leadFacts{Silence: silence, Quiet: silence - 1, Session: ago(time.Minute)}, permitAll},
		{"unknown, the peer has made a session", leadFacts{Silence: silence, Quiet: time.Hour, Session: ago(silence - 1)}, permitAll},
		{"unknown, the peer is heard by no session", leadFacts{Silence: silence, Quiet: time.Second}, permitAll},
		{"unknown, and the peer is silent", leadFacts{Silence: silence, Quiet: silence, Session: ago(time.Minute)}, permitPings},
		{"unknown, and the session ends", leadFacts{Silence: silence, Quiet: time.Minute, Session: ago(sessionLife - 1)}, permitPings},
		{"unknown, and the session has ended", leadFacts{Silence: silence, Quiet: time.Minute, Session: ago(sessionLife)}, permitAsk},
		{"unknown, and there was none", leadFacts{Silence: silence, Quiet: time.Hour}, permitAsk},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Now = now
			if got := decideUnconfirmed(tt.facts); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// doubts has a gateway be told as often as Unconfirmed wants it that its lead is unknown,
// until it is called.
func doubts(g *gateway, silence time.Duration) (certain func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	g.Unconfirmed(silence)
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.Unconfirmed(silence)
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
		g.Unconfirmed(0)
	}
}

// answering has a gateway answer what comes to it with a packet of the same number, and
// counts both.
func answering(g *gateway) (stop func() int) {
	ended, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case p := <-g.overlay.in:
				n++
				dst, _ := netip.AddrFromSlice(p[12:16])
				g.overlay.own <- ipPacket(g.inner, dst.String(), packetID(p), 100)
			case <-ended:
				return
			}
		}
	}()
	return func() int {
		close(ended)
		return <-done
	}
}

// A leader that has a successor without knowing it sends its peer only pings in the session
// that is over, which do not lead the peer away, and no handshake, until that session and
// more is over.
func TestUnconfirmedLeavesTheSessionToItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b := newPair(t, n)
		cross(t, a, b, 1)
		cross(t, b, a, 2)
		successor := newGateway(t, "192.0.2.3", a.inner, Options{Listen: n.listen("192.0.2.3")})
		successor.key, successor.config = a.key, a.config
		successor.apply(t, nil)
		successor.run(t)
		successor.Handshake()
		cross(t, successor, b, 3)
		cross(t, b, successor, 4)
		keepPeers(a, b, successor)

		certain := doubts(a, 3*time.Second)
		time.Sleep(4 * time.Second)
		if !a.Stats().Unconfirmed {
			t.Error("the former leader does not say that it is not known to lead")
		}
		before := a.Stats()
		for id := uint32(10); id < 110; id++ { // until the successor renews the session, and b forgets the former one
			a.overlay.out <- ipPacket(a.inner, b.inner, 1000+id, 100)
			a.overlay.own <- ipPacket(a.inner, b.inner, id, 100)
			expect(t, b, id)
			cross(t, b, successor, id)
			time.Sleep(time.Second)
		}
		after := a.Stats()
		if got := after.TxInitiations - before.TxInitiations; got > 0 {
			t.Errorf("%d handshakes were begun", got)
		}
		if got := after.DropUnconfirmed - before.DropUnconfirmed; got != 100 {
			t.Errorf("%d packets were withheld", got)
		}
		if s := b.Stats(); time.Since(s.LastReplaced) > 2*time.Second {
			t.Errorf("the peer has seen it last at %v", s.LastReplaced)
		}
		certain()
	})
}

// A leader that nobody confirms goes on as soon as the peer answers, if that has the
// session still.
func TestUnconfirmedGoesOnWhenThePeerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b := newPair(t, n)
		cross(t, a, b, 1)
		keepPeers(a, b)
		defer doubts(a, 3*time.Second)()
		n.setDrop(func(netip.AddrPort, netip.AddrPort, []byte) bool { return true })
		time.Sleep(time.Minute)
		n.setDrop(nil)
		a.overlay.out <- ipPacket(a.inner, b.inner, 2, 100)
		synctest.Wait()
		if got := a.Stats(); got.DropUnconfirmed != 1 || !got.Unconfirmed {
			t.Errorf("while the peer is not heard: %+v", got)
		}
		a.overlay.own <- ipPacket(a.inner, b.inner, 3, 100)
		expect(t, b, 3)
		cross(t, b, a, 4)
		if a.Stats().Unconfirmed {
			t.Error("the peer is heard, and it is unconfirmed still")
		}
		cross(t, a, b, 5)
	})
}

// Where the session has ended meanwhile, on both sides, there is another one when both have
// asked in vain who leads, and not before.
func TestUnconfirmedDares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a, b := newPair(t, n)
		cross(t, a, b, 1)
		keepPeers(a, b)
		defer doubts(a, 3*time.Second)()
		defer doubts(b, 3*time.Second)()
		n.setDrop(func(netip.AddrPort, netip.AddrPort, []byte) bool { return true })
		time.Sleep(10 * time.Minute)
		n.setDrop(nil)
		handshakes := a.Stats().TxInitiations
		ping := func() { a.overlay.own <- ipPacket(a.inner, b.inner, 2, 100) }
		for range 10 {
			ping()
			a.Handshake()
			time.Sleep(2 * time.Second)
		}
		if got := a.Stats().TxInitiations; got != handshakes {
			t.Errorf("%d handshakes were begun", got-handshakes)
		}
		began := time.Now()
		stop := answering(b)
		for a.Stats().Unconfirmed {
			if time.Since(began) > time.Minute {
				t.Fatal("no session within a minute")
			}
			ping()
			time.Sleep(500 * time.Millisecond)
			a.ReleaseHandshake(time.Now())
		}
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("there was a session after %v", took)
		}
		stop()
	})
}

// A gateway that was stopped for a while, as the machine was busy, has not listened: the
// peer does not count as silent.
func TestUnconfirmedAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, newMemNet())
		cross(t, a, b, 1)
		cross(t, b, a, 2)
		keepPeers(a, b)
		time.Sleep(10 * time.Second)
		a.Unconfirmed(3 * time.Second)
		time.Sleep(10 * time.Second) // nobody has looked
		cross(t, a, b, 3)
		a.Unconfirmed(3 * time.Second)
		cross(t, a, b, 4)
		for range 5 {
			time.Sleep(500 * time.Millisecond)
			a.Unconfirmed(3 * time.Second)
		}
		if !a.Stats().Unconfirmed {
			t.Error("after 3.5 s of silence it is not unconfirmed")
		}
	})
}

// What was kept back is of no use when the peer has made a session by itself, or when
// another one leads, and of use at once when this one does.
func TestKeptInitiation(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(*gateway)
		want bool
	}{
		{"it leads", func(a *gateway) { a.Unconfirmed(0) }, true},
		{"it leads, which was told late", func(a *gateway) { time.Sleep(keptLife); a.Unconfirmed(0) }, false},
		{"asked in vain", func(a *gateway) { a.ReleaseHandshake(time.Now()) }, true},
		{"asked in vain before", func(a *gateway) { a.ReleaseHandshake(time.Now().Add(-time.Second)) }, false},
		{"stands by", func(a *gateway) {
			a.config.PeerKey = PublicKey{}
			_ = a.Apply(a.config)
			a.Unconfirmed(0)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMemNet()
				a := newGateway(t, "192.0.2.1", "10.1.0.1", Options{Listen: n.listen("192.0.2.1")})
				b := newGateway(t, "192.0.2.2", "10.2.0.1", Options{Listen: n.listen("192.0.2.2")})
				connect(t, a, b)
				a.run(t)
				synctest.Wait()
				keepPeers(a)
				a.Unconfirmed(3 * time.Second)
				a.Handshake()
				if got := a.Stats().TxInitiations; got != 0 {
					t.Fatalf("%d handshakes were begun", got)
				}
				tt.then(a)
				if got := a.Stats().TxInitiations == 1; got != tt.want {
					t.Errorf("a handshake was begun: %v", got)
				}
			})
		})
	}
}

// A former leader that is cut off from where the election is, and whose session has ended,
// asks for another one, but does not get it from a peer that has its successor. Where there
// is none it gets one.
func TestUnconfirmedWithAnExpiredSession(t *testing.T) {
	for _, tt := range []struct {
		name      string
		successor bool
	}{{"a successor", true}, {"no successor", false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMemNet()
				a, b := newPair(t, n)
				cross(t, a, b, 1)
				cross(t, b, a, 2)
				certain := doubts(a, 3*time.Second)
				defer certain()
				time.Sleep(10 * time.Second)
				successor := newGateway(t, "192.0.2.3", a.inner, Options{Listen: n.listen("192.0.2.3")})
				if tt.successor {
					successor.key, successor.config = a.key, a.config
					successor.apply(t, nil)
					successor.run(t)
					cross(t, successor, b, 3)
					keepPeers(a, b, successor)
				} else {
					keepPeers(a, b)
				}
				before := a.Stats()
				for second := range uint32(1200) {
					select {
					case a.overlay.own <- ipPacket(a.inner, b.inner, 4, 100):
					default:
					}
					time.Sleep(time.Second)
					a.ReleaseHandshake(time.Now())
					if tt.successor {
						for { // what a sends in its session comes in until that ends
							successor.overlay.out <- ipPacket(a.inner, b.inner, 10+second, 100)
							if packetID(receive(t, b.overlay.in, "a packet")) == 10+second {
								break
							}
						}
						cross(t, b, successor, second)
					}
				}
				after := a.Stats()
				if after.TxInitiations == before.TxInitiations {
					t.Error("it has not asked")
				}
				if got := after.LastHandshake.After(before.LastHandshake); got == tt.successor {
					t.Errorf("it has got a session: %v", got)
				}
			})
		})
	}
}
