package plpmtu

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// path is a way to a peer, in a time of its own.
type path struct {
	t         *testing.T
	search    Search
	facts     Facts
	now       time.Time
	roundTrip time.Duration
	// carries is the largest packet that gets through in one piece, pieces tells whether
	// what is cut gets through as well. lose is the share of lost packets.
	carries int
	pieces  bool
	lose    float64
	random  *rand.Rand

	step    Step
	answers []answer
	probes  int
	largest int // of all sizes that were in use
}

type answer struct {
	at   time.Time
	size int
}

var home, away = netip.MustParseAddrPort("192.0.2.1:51840"), netip.MustParseAddrPort("192.0.2.2:51840")

func newPath(t *testing.T, carries int) *path {
	p := &path{
		t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), carries: carries, pieces: true, roundTrip: 20 * time.Millisecond,
		facts: Facts{Alive: true, Endpoint: home, Own: 8900, Peer: 8900}, random: rand.New(rand.NewPCG(1, 2)),
	}
	p.ask()
	return p
}

// ask calls Step, and sends the probe that it asks for.
func (p *path) ask() {
	p.t.Helper()
	p.step = p.search.Step(p.now, p.facts)
	p.largest = max(p.largest, p.step.Size)
	if p.step.Size < min(MinSize, p.facts.Own) || p.step.Size > p.facts.Own {
		p.t.Fatalf("packets may have %d bytes, our links %d", p.step.Size, p.facts.Own)
	}
	if p.step.Probe == 0 {
		return
	}
	p.probes++
	if p.step.Probe > p.facts.Own {
		p.t.Fatalf("a probe of %d bytes, our links have %d", p.step.Probe, p.facts.Own)
	}
	if (p.step.Probe <= p.carries || p.pieces && !p.step.DontFragment) && p.random.Float64() >= p.lose {
		p.answers = append(p.answers, answer{p.now.Add(p.roundTrip), p.step.Probe})
	}
}

// pass lets time pass, by what happens in it.
func (p *path) pass(d time.Duration) {
	p.t.Helper()
	for end := p.now.Add(d); ; {
		next := p.step.Next
		if !next.After(p.now) && p.step.Probe == 0 {
			p.t.Fatalf("%v: it is to be asked again at once, without end", p.search.Phase())
		}
		answered := len(p.answers) > 0 && !p.answers[0].at.After(next)
		if answered {
			next = p.answers[0].at
		}
		if next.After(end) {
			p.now = end
			return
		}
		p.now = next
		if answered {
			p.search.Answered(p.now, p.answers[0].size, p.roundTrip)
			p.answers = p.answers[1:]
		}
		p.ask()
	}
}

func (p *path) want(what string, phase Phase, size int) {
	p.t.Helper()
	if p.search.Phase() != phase || p.step.Size != size {
		p.t.Errorf("%s: %v, packets of %d bytes; want %v, %d", what, p.search.Phase(), p.step.Size, phase, size)
	}
}

func TestWhatIsFound(t *testing.T) {
	for _, tt := range []struct {
		name    string
		carries int
		change  func(*path)
		phase   Phase
		size    int
		largest int // that was ever in use; 0: size
	}{
		{"all of it", 9000, nil, Complete, 8900, 0},
		{"Ethernet", 1440, nil, Complete, 1440, 0},
		{"PPPoE", 1432, nil, Complete, 1424, 0},
		{"something in between", 4321, nil, Complete, 4320, 0},
		{"no more than the base", 1341, nil, Complete, 1340, 0},
		{"less than the base", 1339, nil, Failed, 1340, 0},
		{"a limit between the usual sizes", 1400, func(p *path) { p.facts.Own = 1400 }, Complete, 1400, 0},
		{"own links are smaller than the base", 9000, func(p *path) { p.facts.Own = 1300 }, Disabled, 1300, 0},
		{"own links are as small as links get", 9000, func(p *path) { p.facts.Own = 576 }, Disabled, 576, 0},
		{"own routes carry less", 9000, func(p *path) { p.facts.Route = 1441 }, Complete, 1440, 0},
		{"own routes carry less than the base", 9000, func(p *path) { p.facts.Route = 1300 }, Disabled, 1296, 1340},
		{"own routes carry nothing", 9000, func(p *path) { p.facts.Route = 1 }, Disabled, 1280, 1340},
		{"the peer's links are smaller", 9000, func(p *path) { p.facts.Peer = 2000 }, Complete, 2000, 0},
		{"the peer's links are larger", 65000, func(p *path) { p.facts.Peer = 65000 }, Complete, 8900, 0},
		{"the peer says that it takes nothing", 9000, func(p *path) { p.facts.Peer = 1 }, Disabled, 1280, 1340},
		{"a peer that does not tell, such as Liqo", 9000, func(p *path) { p.facts.Peer = 0 }, Disabled, 1340, 0},
		{"nobody answers", 9000, func(p *path) { p.facts.Alive = false }, Disabled, 1340, 0},
		{"nothing but small pings", 100, func(p *path) { p.pieces = false }, Failed, 1340, 0},
		{"a slow path", 8900, func(p *path) { p.roundTrip = 900 * time.Millisecond }, Complete, 8900, 0},
		{"a very slow path", 8900, func(p *path) { p.roundTrip = 2 * time.Second }, Complete, 8900, 0},
		{"slower than any", 8900, func(p *path) { p.roundTrip = time.Hour }, Failed, 1340, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPath(t, tt.carries)
			p.search, p.answers, p.largest = Search{}, nil, 0
			if tt.change != nil {
				tt.change(p)
			}
			p.ask()
			p.pass(time.Minute)
			p.want("after a minute", tt.phase, tt.size)
			if want := max(tt.size, tt.largest, min(Base, p.facts.Own)); p.largest > want {
				t.Errorf("packets had up to %d bytes, want no more than %d", p.largest, want)
			}
			if inPieces := p.phaseIn(Disabled, Failed); p.step.DontFragment == inPieces {
				t.Errorf("%v: Don't Fragment is %v", p.search.Phase(), p.step.DontFragment)
			}
			if p.probes > 120 {
				t.Errorf("%d probes in a minute", p.probes)
			}
		})
	}
}

func (p *path) phaseIn(phases ...Phase) bool {
	for _, phase := range phases {
		if p.search.Phase() == phase {
			return true
		}
	}
	return false
}

// A path that stops carrying large packets without a word is noticed within 5
// seconds, whenever that happens and whatever the Search is doing.
func TestBlackHole(t *testing.T) {
	for _, carried := range []int{8900, 4000, 1440} {
		for after := time.Duration(0); after < 45*time.Second; after += 130 * time.Millisecond {
			p := newPath(t, carried)
			p.pass(after)
			p.carries = 1340
			p.pass(5 * time.Second)
			if p.step.Size != 1340 {
				t.Fatalf("%d bytes, a hole after %v: 5 s later packets have %d", carried, after, p.step.Size)
			}
			p.carries = 1440 // what remains is found again
			p.pass(RaiseInterval + time.Minute)
			p.want("with what remains", Complete, 1440)
		}
	}
}

func TestChanges(t *testing.T) {
	const soon, whileSearching = 200 * time.Millisecond, 40 * time.Second
	t.Run("another endpoint", func(t *testing.T) {
		p := newPath(t, 8900)
		p.pass(whileSearching)
		p.facts.Endpoint = away
		p.ask()
		p.want("at once", Confirming, 1340)
		p.pass(soon)
		p.want("soon", Complete, 8900)
	})
	t.Run("a router tells that it carries less", func(t *testing.T) {
		p := newPath(t, 8900)
		p.pass(whileSearching)
		p.facts.Route, p.carries = 1441, 1441
		p.ask()
		p.want("at once", Complete, 1440)
		p.facts.Route, p.carries = 0, 8900
		p.ask()
		p.pass(soon)
		p.want("when that is over", Complete, 8900)
	})
	t.Run("the path carries more", func(t *testing.T) {
		p := newPath(t, 1440)
		p.pass(whileSearching)
		p.carries = 8900
		p.pass(RaiseInterval)
		p.want("later", Complete, 8900)
	})
	t.Run("nothing passes for a moment", func(t *testing.T) {
		p := newPath(t, 8900)
		p.pass(whileSearching)
		p.carries, p.pieces = 0, false
		p.pass(9 * time.Second) // health does not see it
		p.want("meanwhile", Failed, 1340)
		p.carries, p.pieces = 8900, true
		p.pass(3 * time.Second)
		p.want("afterwards", Complete, 8900)
	})
	t.Run("nothing passes for any time", func(t *testing.T) {
		for outage := time.Second; outage < 10*time.Second; outage += 50 * time.Millisecond {
			p := newPath(t, 8900)
			p.pass(whileSearching)
			p.carries, p.pieces = 0, false
			p.pass(outage)
			p.carries, p.pieces = 8900, true
			p.pass(4 * time.Second)
			p.want(fmt.Sprintf("after %v", outage), Complete, 8900)
		}
	})
	t.Run("the peer is away", func(t *testing.T) {
		p := newPath(t, 8900)
		p.pass(whileSearching)
		p.facts.Alive = false
		p.ask()
		p.want("at once", Disabled, 1340)
		sent := p.probes
		p.pass(whileSearching)
		if p.probes != sent {
			t.Errorf("%d probes to a peer that is away", p.probes-sent)
		}
		p.facts.Alive = true
		p.ask()
		p.pass(soon)
		p.want("back", Complete, 8900)
	})
	t.Run("the administrator asks for less", func(t *testing.T) {
		p := newPath(t, 8900)
		p.pass(whileSearching)
		p.facts.Own = 1300
		p.ask()
		p.want("at once", Disabled, 1300)
		p.facts.Own = 2000
		p.ask()
		p.pass(soon)
		p.want("more", Complete, 2000)
	})
	t.Run("a path of small packets that gets better", func(t *testing.T) {
		p := newPath(t, 1300)
		p.pass(whileSearching)
		p.want("at first", Failed, 1340)
		p.carries = 8900
		p.pass(RaiseInterval)
		p.want("later", Complete, 8900)
	})
}

// Packets that get lost by chance do not end the search, and what is found passes.
func TestLossByChance(t *testing.T) {
	for seed := range uint64(50) {
		p := newPath(t, 1340+int(seed)*150)
		p.random, p.lose = rand.New(rand.NewPCG(seed, 1)), 0.1
		p.pass(5 * time.Minute)
		p.lose = 0
		p.pass(2 * RaiseInterval)
		if p.search.Phase() != Complete || p.step.Size > p.carries && p.carries > Base || p.step.Size < min(p.carries, 8900)-granularity {
			t.Errorf("%v with %d of %d bytes", p.search.Phase(), p.step.Size, p.carries)
		}
	}
}

func TestPhaseNames(t *testing.T) {
	for p := Disabled; p <= Failed; p++ {
		var got Phase
		if b, err := p.MarshalText(); err != nil || got.UnmarshalText(b) != nil || got != p {
			t.Errorf("%v is read as %v", p, got)
		}
	}
	if new(Phase).UnmarshalText([]byte("done")) == nil {
		t.Error("no error for another word")
	}
}

// Whatever happens, sizes are in bounds, and it never spins: ask and pass see to that.
func TestAnythingHappens(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		p := newPath(t, 8900)
		for range 100 {
			switch r.IntN(8) {
			case 0:
				p.facts.Alive = r.IntN(3) > 0
			case 1:
				p.facts.Peer = r.IntN(70000) - 1000
			case 2:
				p.facts.Route = r.IntN(10000)
			case 3:
				p.facts.Own = 576 + r.IntN(9000)
			case 4:
				p.facts.Endpoint = []netip.AddrPort{home, away}[r.IntN(2)]
			case 5:
				p.carries = r.IntN(10000)
			case 6:
				p.roundTrip = time.Duration(r.Int64N(int64(2 * time.Second)))
			case 7: // an answer to what nobody asked
				p.search.Answered(p.now, r.IntN(70000), time.Duration(r.Int64N(int64(time.Second))))
			}
			p.ask()
			p.pass(time.Duration(r.Int64N(int64(10 * time.Second))))
		}
	}
}
