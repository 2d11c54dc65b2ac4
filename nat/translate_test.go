package nat_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/nat"
	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/packettest"
)

var packets = flag.Int("nat.packets", packettest.Rounds(100_000), "how many random packets the differential test translates")

// slowTranslate maps an address from one side to the other, bit by bit.
func slowTranslate(mappings []nat.Mapping, a netip.Addr, toOutside bool) (netip.Addr, bool) {
	for _, m := range mappings {
		from, to := m.Outside, m.Inside
		if toOutside {
			from, to = m.Inside, m.Outside
		}
		if !from.Contains(a) {
			continue
		}
		b, network := a.AsSlice(), to.Addr().AsSlice()
		for bit := range from.Bits() {
			mask := byte(0x80) >> (bit % 8)
			b[bit/8] = b[bit/8]&^mask | network[bit/8]&mask
		}
		a, _ = netip.AddrFromSlice(b)
		return a, true
	}
	return a, false
}

// slowEgress and slowIngress translate a description: the oracle.
func slowEgress(c nat.Config, s packettest.Spec) (packettest.Spec, bool) {
	var ok bool
	s.Dst, ok = slowTranslate(c.Remote, s.Dst, true)
	s.Src, _ = slowTranslate(c.Local, s.Src, true)
	if s.Quote != nil {
		q := *s.Quote
		q.Src, _ = slowTranslate(c.Remote, q.Src, true)
		q.Dst, _ = slowTranslate(c.Local, q.Dst, true)
		s.Quote = &q
	}
	return s, ok
}

func slowIngress(c nat.Config, s packettest.Spec) (packettest.Spec, bool) {
	var ok bool
	s.Src, ok = slowTranslate(c.Remote, s.Src, false)
	s.Dst, _ = slowTranslate(c.Local, s.Dst, false)
	if s.Quote != nil {
		q := *s.Quote
		q.Dst, _ = slowTranslate(c.Remote, q.Dst, false)
		q.Src, _ = slowTranslate(c.Local, q.Src, false)
		s.Quote = &q
	}
	return s, ok
}

// reply is the packet with source and destination exchanged, which
// changes no checksum.
func reply(s packettest.Spec) packettest.Spec {
	s.Src, s.Dst = s.Dst, s.Src
	if s.Quote != nil {
		q := reply(*s.Quote)
		s.Quote = &q
	}
	return s
}

// world is a random configuration and the addresses that matter in it.
type world struct {
	config nat.Config
	table  *nat.Table
}

// randomPrefix returns a prefix of either family; IPv4 has 6 to 32 bits.
func randomPrefix(r *rand.Rand, is4 bool, bits int) netip.Prefix {
	return netip.PrefixFrom(randomAddr(r, is4), bits).Masked()
}

func randomAddr(r *rand.Rand, is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], r.Uint64())
	binary.BigEndian.PutUint64(b[8:], r.Uint64())
	switch r.IntN(16) {
	case 0:
		b = [16]byte{}
	case 1:
		b = [16]byte(bytes.Repeat([]byte{0xff}, 16))
	}
	if is4 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	b[0] |= 0x20 // never IPv4 written as IPv6
	return netip.AddrFrom16(b)
}

// randomWorld adds random mappings as long as the table accepts them.
func randomWorld(t *testing.T, r *rand.Rand) world {
	var c nat.Config
	n := 1 + r.IntN(5)
	if r.IntN(3) == 0 {
		n = 9 + r.IntN(30) // beyond the linear scan
	}
	for range n {
		is4 := r.IntN(2) == 0
		bits := 6 + r.IntN(27)
		if !is4 {
			bits = 6 + r.IntN(123)
		}
		m := nat.Mapping{Inside: randomPrefix(r, is4, bits), Outside: randomPrefix(r, is4, bits)}
		if r.IntN(4) == 0 {
			m.Outside = m.Inside
		}
		try := nat.Config{Remote: append(c.Remote[:len(c.Remote):len(c.Remote)], m)}
		if _, err := nat.NewTable(try); err == nil {
			c = try
		}
	}
	for range r.IntN(6) {
		is4 := r.IntN(2) == 0
		bits := randomAddr(r, is4).BitLen()
		m := nat.Mapping{Inside: randomPrefix(r, is4, bits), Outside: randomPrefix(r, is4, bits)}
		try := nat.Config{Remote: c.Remote, Local: append(c.Local[:len(c.Local):len(c.Local)], m)}
		if _, err := nat.NewTable(try); err == nil {
			c = try
		}
	}
	return world{c, mustTable(t, c)}
}

// address returns an address of a family that is likely to be in a mapping.
func (w world) address(r *rand.Rand, is4, local, outside bool) netip.Addr {
	a := randomAddr(r, is4)
	mappings := w.config.Remote
	if local {
		mappings = w.config.Local
	}
	if r.IntN(4) == 0 || len(mappings) == 0 {
		return a
	}
	m := mappings[r.IntN(len(mappings))]
	p := m.Inside
	if outside {
		p = m.Outside
	}
	if p.Addr().Is4() != is4 {
		return a
	}
	b, _ := slowTranslate([]nat.Mapping{{Inside: netip.PrefixFrom(a, p.Bits()).Masked(), Outside: p}}, a, true)
	return b
}

// packet returns a random packet between a host of this cluster and one of the
// peer, in the direction of Egress or Ingress.
func (w world) packet(r *rand.Rand, egress bool) packettest.Spec {
	is4 := r.IntN(2) == 0
	local := func() netip.Addr { return w.address(r, is4, true, !egress) }
	remote := func() netip.Addr { return w.address(r, is4, false, !egress) }
	src, dst := local, remote
	if !egress {
		src, dst = remote, local
	}
	if r.IntN(3) == 0 {
		return packettest.RandomError(r, src(), dst(), packettest.Random(r, dst(), src()))
	}
	return packettest.Random(r, src(), dst())
}

// invertible reports whether translating back must give the original:
// an address that was not translated must not be one that others translate to.
func (w world) invertible(s packettest.Spec) bool {
	apart := func(mappings []nat.Mapping, a netip.Addr) bool {
		_, in := slowTranslate(mappings, a, true)
		_, out := slowTranslate(mappings, a, false)
		return in || !out
	}
	ok := apart(w.config.Remote, s.Dst) && apart(w.config.Local, s.Src)
	if s.Quote != nil {
		ok = ok && apart(w.config.Remote, s.Quote.Src) && apart(w.config.Local, s.Quote.Dst)
	}
	return ok
}

// TestTranslateRandom compares the translation of random packets in random
// configurations with the packets that are made with the translated addresses
// from the start, and translates the replies back.
func TestTranslateRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	var w world
	translated, inverted := 0, 0
	for i := range *packets {
		if i%1000 == 0 {
			w = randomWorld(t, r)
		}
		s := w.packet(r, true)
		want, inside := slowEgress(w.config, s)
		got := translate(t, s.Bytes(), w.table.Egress, inside)
		if !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("config %+v\negress %+v\ngot  %x\nwant %x", w.config, s, got, want.Bytes())
		}
		if inside {
			translated++
		}
		if w.invertible(s) {
			inverted++
			_, inside := slowIngress(w.config, reply(want))
			back := translate(t, reply(want).Bytes(), w.table.Ingress, inside)
			if !bytes.Equal(back, reply(s).Bytes()) {
				t.Fatalf("config %+v\nthere %+v\nand back %x\nwant     %x", w.config, s, back, reply(s).Bytes())
			}
		}
		s = w.packet(r, false)
		want, inside = slowIngress(w.config, s)
		got = translate(t, s.Bytes(), w.table.Ingress, inside)
		if !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("config %+v\ningress %+v\ngot  %x\nwant %x", w.config, s, got, want.Bytes())
		}
	}
	if translated < *packets/4 || inverted < *packets/4 {
		t.Errorf("of %d packets %d were translated and %d translated back: the test tests too little", *packets, translated, inverted)
	}
}

// translate runs Egress or Ingress over a packet and returns its bytes.
func translate(t *testing.T, b []byte, f func(*packet.Packet) bool, want bool) []byte {
	t.Helper()
	p, ok := packet.Parse(b)
	if !ok {
		t.Fatalf("refused: %x", b)
	}
	if got := f(&p); got != want {
		t.Fatalf("%s -> %s: got %t, want %t", p.Src(), p.Dst(), got, want)
	}
	return b
}

// TestTranslate walks one conversation, by name: pods of two clusters that both
// use 10.243.0.0/16, and a host behind this cluster.
func TestTranslate(t *testing.T) {
	config := nat.Config{
		Remote: []nat.Mapping{
			mapping("10.71.0.0/16", "10.243.0.0/16"),
			mapping("10.70.0.0/16", "10.70.0.0/16"),
			mapping("fd00:71::/48", "fd00:243::/48"),
		},
		Local: []nat.Mapping{mapping("192.0.2.1/32", "10.70.0.1/32")},
	}
	table := mustTable(t, config)
	const none = ""
	tests := []struct {
		name                      string
		inside, outside           string // "source destination" of the packet
		quoteInside, quoteOutside string // and of the one it quotes
		ingress                   bool
		want                      bool
	}{
		{"pod to pod", "10.243.0.5 10.71.0.9", "10.243.0.5 10.243.0.9", none, none, false, true},
		{"pod from pod", "10.71.0.9 10.243.0.5", "10.243.0.9 10.243.0.5", none, none, true, true},
		{"pod to pod, IPv6", "fd00:243::5 fd00:71::9", "fd00:243::5 fd00:243::9", none, none, false, true},
		{"a range that is not remapped", "10.243.0.5 10.70.0.9", "10.243.0.5 10.70.0.9", none, none, false, true},
		{"host behind the cluster to a pod", "192.0.2.1 10.71.0.9", "10.70.0.1 10.243.0.9", none, none, false, true},
		{"host behind the cluster from a pod", "10.71.0.9 192.0.2.1", "10.243.0.9 10.70.0.1", none, none, true, true},
		{"to nowhere", "10.243.0.5 10.99.0.9", "10.243.0.5 10.99.0.9", none, none, false, false},
		{"to the outside range, which nobody here uses", "10.243.0.5 10.243.0.9", "10.243.0.5 10.243.0.9", none, none, false, false},
		{"to the peer's gateway", "192.0.2.1 169.254.18.1", "10.70.0.1 169.254.18.1", none, none, false, false},
		{"error about a packet from the peer", "10.243.0.5 10.71.0.9", "10.243.0.5 10.243.0.9", "10.71.0.9 10.243.0.5", "10.243.0.9 10.243.0.5", false, true},
		{"error about a packet to the peer", "10.71.0.9 10.243.0.5", "10.243.0.9 10.243.0.5", "10.243.0.5 10.71.0.9", "10.243.0.5 10.243.0.9", true, true},
		{"error of the peer's gateway", "169.254.18.1 10.243.0.5", "169.254.18.1 10.243.0.5", "10.243.0.5 10.71.0.9", "10.243.0.5 10.243.0.9", true, false},
		{"error of the peer's gateway to a host behind the cluster", "169.254.18.1 192.0.2.1", "169.254.18.1 10.70.0.1", "192.0.2.1 10.71.0.9", "10.70.0.1 10.243.0.9", true, false},
		{"error, IPv6", "fd00:71::9 fd00:243::5", "fd00:243::9 fd00:243::5", "fd00:243::5 fd00:71::9", "fd00:243::5 fd00:243::9", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from, to := describe(tt.inside, tt.quoteInside), describe(tt.outside, tt.quoteOutside)
			f := table.Egress
			if tt.ingress {
				from, to, f = to, from, table.Ingress
			}
			if got, want := translate(t, from.Bytes(), f, tt.want), to.Bytes(); !bytes.Equal(got, want) {
				t.Errorf("got  %x\nwant %x", got, want)
			}
		})
	}
}

// describe returns a UDP packet, or a Destination Unreachable with a quotation,
// between the two addresses of a text.
func describe(addresses, quote string) packettest.Spec {
	var src, dst string
	fmt.Sscan(addresses, &src, &dst)
	s := packettest.Spec{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: packet.ProtoUDP}
	s.Transport = packettest.Datagram(40000, 33434, []byte("traceroute"))
	if quote != "" {
		q := describe(quote, "")
		s.Quote, s.QuoteLen = &q, 28
		s.Proto, s.Transport = packet.ProtoICMP, packettest.Message(3, 3, 0, nil)
		if s.Src.Is6() {
			s.Proto, s.Transport, s.QuoteLen = packet.ProtoICMPv6, packettest.Message(1, 4, 0, nil), 1000
		}
	}
	return s
}

func TestNoTableChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	var zero nat.Table
	for range 1000 {
		s := packettest.Random(r, randomAddr(r, true), randomAddr(r, true))
		for _, f := range []func(*packet.Packet) bool{
			(*nat.Table)(nil).Egress, (*nat.Table)(nil).Ingress, zero.Egress, zero.Ingress,
		} {
			if got := translate(t, s.Bytes(), f, false); !bytes.Equal(got, s.Bytes()) {
				t.Fatalf("changed %x to %x", s.Bytes(), got)
			}
		}
	}
}
