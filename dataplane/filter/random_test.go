package filter_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/dataplane/filter"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

var packets = flag.Int("filter.packets", packettest.Rounds(200_000), "how many random packets are compared with the slow evaluator")

// A small world, so that random rules and random packets meet.

// addr returns one of few addresses. Those of IPv6 differ in both halves.
func addr(r *rand.Rand, v6 bool) netip.Addr {
	n := byte(r.IntN(12))
	if !v6 {
		return netip.AddrFrom4([4]byte{10, 0, n / 4, n % 4})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 7: n / 4, 15: n % 4})
}

func port(r *rand.Rand) uint16 {
	return [...]uint16{0, 1, 2, 3, 80, 443, 65535}[r.IntN(7)]
}

func node(r *rand.Rand) string { return [...]string{"a", "b", "c"}[r.IntN(3)] }

func randomConfig(r *rand.Rand) (c filter.Config) {
	for i := range 1 + r.IntN(6) {
		ch := filter.Chain{
			Table: "t", Name: fmt.Sprint("c", i), Hook: filter.Hook(r.IntN(3)), Family: filter.Family(r.IntN(3)),
			Priority: [...]int32{-300, -101, -100, -99, 0, 0, 99, 100, 300}[r.IntN(9)],
		}
		if r.IntN(4) == 0 {
			ch.Policy = filter.Drop
		}
		for j := range r.IntN(8) {
			ch.Rules = append(ch.Rules, randomRule(r, &ch, j))
		}
		c.Chains = append(c.Chains, ch)
	}
	return c
}

func randomRule(r *rand.Rand, ch *filter.Chain, j int) filter.Rule {
	rule := filter.Rule{Name: fmt.Sprint("r", j), Counter: r.IntN(3) > 0}
	rule.Action = [...]filter.Action{filter.Accept, filter.Drop, filter.Reject, filter.ClampMSS, filter.ClampMSS}[r.IntN(5)]
	if rule.Action == filter.Reject && ch.Hook == filter.Postrouting {
		rule.Action = filter.Drop
	}
	if rule.Action == filter.ClampMSS && r.IntN(4) > 0 {
		rule.MSS = 48 + r.IntN(1400)
	}
	for range r.IntN(4) {
		rule.Matches = append(rule.Matches, randomMatch(r, ch))
	}
	return rule
}

func randomMatch(r *rand.Rand, ch *filter.Chain) (m filter.Match) {
	m.Not = r.IntN(3) == 0
	if r.IntN(3) == 0 {
		m.Proto = [...]uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMP}[r.IntN(3)]
	}
	addrs := func() filter.Addrs {
		v6 := ch.Family == filter.IPv6 || ch.Family == filter.Both && r.IntN(2) == 0
		a, b := addr(r, v6), addr(r, v6)
		if b.Less(a) {
			a, b = b, a
		}
		if r.IntN(2) == 0 {
			b = a
		}
		return filter.Addrs{First: a, Last: b}
	}
	ports := func() filter.Ports {
		a, b := port(r), port(r)
		return filter.Ports{First: min(a, b), Last: max(a, b)}
	}
	link := func() (l filter.Link) {
		if l.Side = filter.Side(r.IntN(4)); l.Side == filter.NodeSide && r.IntN(2) == 0 {
			l.Node = node(r)
		}
		return l
	}
	switch r.IntN(6) {
	case 0:
		m.Src = addrs()
	case 1:
		m.Dst = addrs()
	case 2:
		m.SrcPort = ports()
	case 3:
		m.DstPort = ports()
	case 4:
		m.In = link()
	case 5:
		if ch.Hook != filter.Prerouting {
			m.Out = link()
		}
	}
	if r.IntN(4) == 0 {
		m.Dst, m.DstPort = addrs(), ports()
	}
	return m
}

func randomPacket(r *rand.Rand) (packettest.Spec, filter.Way) {
	v6 := r.IntN(2) == 0
	s := packettest.Random(r, addr(r, v6), addr(r, v6))
	switch s.Proto {
	case packettest.TCP, packettest.UDP, packettest.UDPLite, packettest.SCTP, packettest.DCCP:
		binary.BigEndian.PutUint16(s.Transport, port(r))
		binary.BigEndian.PutUint16(s.Transport[2:], port(r))
	}
	return s, filter.Way{Egress: r.IntN(2) == 0, Node: node(r), Dst: addr(r, v6), Src: addr(r, v6)}
}

// TestCheckRandom compares actions, clamps and counters with the slow evaluator.
// Now and then a chain is added: the counters of the others go on.
func TestCheckRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	var f *filter.Filter
	var c filter.Config
	var counts tally
	results := make(map[filter.Action]int)
	clamped := 0
	for i := range *packets {
		if i%500 == 0 {
			if i > 0 {
				if err := checkStatus(f, c, counts); err != nil {
					t.Fatalf("%v\nconfig %+v", err, c)
				}
			}
			if i%2000 == 0 {
				c, f, counts = randomConfig(r), nil, make(tally)
			} else {
				extra := randomConfig(r).Chains[:1]
				extra[0].Name = fmt.Sprint("extra", i)
				c.Chains = append(c.Chains[:len(c.Chains):len(c.Chains)], extra...)
			}
			var err error
			if f, err = filter.Compile(c, f); err != nil {
				t.Fatalf("config %+v: %v", c, err)
			}
		}
		s, w := randomPacket(r)
		p, ok := packet.Parse(s.Bytes())
		if !ok {
			t.Fatalf("refused: %+v", s)
		}
		x := describeSpec(s, w)
		wantAction, wantMSS := slowCheck(c, x, counts)
		if !f.NeedsSrc(w.Egress) {
			w.Src = netip.Addr{} // as a caller does
		}
		action, mss := f.Check(&p, &w)
		if action != wantAction || mss != wantMSS {
			t.Fatalf("config %+v\npacket %+v\nway %+v\ngot %s %d, want %s %d", c, s, w, action, mss, wantAction, wantMSS)
		}
		if i%50 == 0 {
			explained, steps, err := f.Explain(&p, &w)
			if err != nil || explained != action || action != filter.Accept && steps[len(steps)-1].Action != action.String() {
				t.Fatalf("config %+v\npacket %+v\nway %+v\nexplained as %s, %+v, %v, want %s", c, s, w, explained, steps, err, action)
			}
		}
		results[action]++
		if mss > 0 {
			clamped++
		}
	}
	for _, a := range []filter.Action{filter.Accept, filter.Drop, filter.Reject} {
		if results[a] < *packets/20 {
			t.Errorf("only %d of %d packets end with %s: the test tests too little", results[a], *packets, a)
		}
	}
	if clamped < *packets/1000 {
		t.Errorf("only %d of %d packets are clamped", clamped, *packets)
	}
}

// FuzzCheck: whatever packet.Parse accepts has an answer, that of the slow
// evaluator.
func FuzzCheck(f *testing.F) {
	r := rand.New(rand.NewPCG(25, 26))
	for i := range 40 {
		s, _ := randomPacket(r)
		f.Add(s.Bytes(), uint64(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		p, ok := packet.Parse(b)
		if !ok {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		c := randomConfig(r)
		compiled, err := filter.Compile(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, egress := range []bool{false, true} {
			w := filter.Way{Egress: egress, Node: node(r), Dst: addr(r, p.Version == 6), Src: addr(r, p.Version == 6)}
			wantAction, wantMSS := slowCheck(c, describePacket(&p, w), make(tally))
			if action, mss := compiled.Check(&p, &w); action != wantAction || mss != wantMSS {
				t.Fatalf("config %+v\npacket %x\nway %+v\ngot %s %d, want %s %d", c, b, w, action, mss, wantAction, wantMSS)
			}
			_, _ = compiled.Check(&p, &filter.Way{Egress: egress}) // translated to nothing
		}
	})
}
