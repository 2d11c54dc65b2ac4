package capture

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/nat/packet"
	"github.com/sluice-net/sluice/test/mutate"
	"github.com/sluice-net/sluice/test/packettest"
)

var (
	a4, b4 = netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.2")
	a6, b6 = netip.MustParseAddr("fd00:1::1"), netip.MustParseAddr("fd00:2::2")
)

// tcp4 is a TCP packet from a4 to b4.
func tcp4(src, dst uint16, payload int) []byte {
	return packettest.Spec{Src: a4, Dst: b4, Proto: packettest.TCP,
		Transport: packettest.Segment{SrcPort: src, DstPort: dst, Payload: make([]byte, payload)}.Bytes()}.Bytes()
}

func ethernet(etherType uint16, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint16(make([]byte, 12), etherType), payload...)
}

// wire is a datagram at Wire.
func wire(src, dst string, size int) Packet {
	return Packet{Point: Wire, From: netip.MustParseAddrPort(src), To: netip.MustParseAddrPort(dst), Body: make([]byte, size)}
}

// subjects are one packet of each kind that a filter can tell apart.
var subjects = map[string]Packet{
	"tcp":      {Body: tcp4(1000, 80, 10)},
	"tcp back": {Body: packettest.Spec{Src: b4, Dst: a4, Proto: packettest.TCP, Transport: packettest.Segment{SrcPort: 80, DstPort: 1000}.Bytes()}.Bytes()},
	"udp":      {Body: packettest.Spec{Src: a4, Dst: b4, Proto: packettest.UDP, Transport: packettest.Datagram(1000, 53, nil)}.Bytes()},
	"udp6":     {Body: packettest.Spec{Src: a6, Dst: b6, Proto: packettest.UDP, Transport: packettest.Datagram(1000, 53, nil)}.Bytes()},
	"sctp":     {Body: packettest.Spec{Src: a4, Dst: b4, Proto: packettest.SCTP, Transport: append(packettest.Datagram(80, 80, nil), 0, 0, 0, 0)}.Bytes()},
	"icmp":     {Body: packettest.Spec{Src: a4, Dst: b4, Proto: packettest.ICMP, Transport: packettest.Message(8, 0, 80<<16, nil)}.Bytes()},
	"icmp6":    {Body: packettest.Spec{Src: a6, Dst: b6, Proto: packettest.ICMPv6, Transport: packettest.Message(128, 0, 0, nil)}.Bytes()},
	"fragment": {Body: packettest.Spec{Src: a4, Dst: b4, Proto: packettest.UDP, Transport: packettest.Datagram(80, 80, make([]byte, 64)), Part: packettest.Part{Offset: 32, Length: 32}}.Bytes()},
	"frame":    {Link: Ethernet, Body: ethernet(0x0800, tcp4(1000, 443, 10))},
	"sent":     {Link: Ethernet, Head: ethernet(0x0800, nil), Body: tcp4(1000, 444, 10)},
	"arp":      {Link: Ethernet, Body: ethernet(0x0806, make([]byte, 28))},
	"lldp":     {Link: Ethernet, Body: ethernet(0x88cc, make([]byte, 28))},
	"runt":     {Link: Ethernet, Body: make([]byte, 3)},
	"broken":   {Body: []byte{0x45, 0, 0}},
	"broken6":  {Body: []byte{0x60, 0, 0}},
	"nothing":  {},
	"wire":     wire("192.0.2.1:51840", "192.0.2.2:51840", 100),
	"wire6":    wire("[2001:db8::1]:51840", "[2001:db8::2]:1234", 100),
}

func TestFilter(t *testing.T) {
	for text, want := range map[string]string{
		"tcp":                                    "tcp, tcp back, frame, sent",
		"udp":                                    "udp, udp6, fragment, wire, wire6",
		"sctp":                                   "sctp",
		"icmp or icmp6":                          "icmp, icmp6",
		"arp":                                    "arp",
		"ip":                                     "tcp, tcp back, udp, sctp, icmp, fragment, frame, sent, broken, wire",
		"ip6":                                    "udp6, icmp6, broken6, wire6",
		"not ip and not ip6":                     "arp, lldp, runt, nothing",
		"! ( ip || ip6 )":                        "arp, lldp, runt, nothing",
		"host 10.1.0.1":                          "tcp, tcp back, udp, sctp, icmp, fragment, frame, sent",
		"src host 10.1.0.1 and tcp":              "tcp, frame, sent",
		"tcp and dst 10.1.0.1":                   "tcp back",
		"src or dst host 10.2.0.2 and tcp":       "tcp, tcp back, frame, sent",
		"src and dst net 10.0.0.0/14 and sctp":   "sctp",
		"src and dst net 10.1.0.0/16":            "",
		"net fd00:1::/32":                        "udp6, icmp6",
		"host fd00:1::1 or 192.0.2.2":            "udp6, icmp6, wire",
		"ip6 net ::/0":                           "udp6, icmp6, wire6",
		"net 0.0.0.0/0":                          "tcp, tcp back, udp, sctp, icmp, fragment, frame, sent, wire",
		"port 80":                                "tcp, tcp back, sctp",
		"tcp port 80":                            "tcp, tcp back",
		"tcp dst port 80 or 443":                 "tcp, frame",
		"src port 80":                            "tcp back, sctp",
		"port 53 or 443":                         "udp, udp6, frame",
		"portrange 443-444":                      "frame, sent",
		"udp portrange 51840-51840":              "wire, wire6",
		"tcp and port 80 or udp and port 53":     "udp, udp6",
		"(tcp and port 80) or (udp and port 53)": "tcp, tcp back, udp, udp6",
		"not (tcp or udp)":                       "sctp, icmp, icmp6, arp, lldp, runt, broken, broken6, nothing",
		"tcp and not port 80":                    "frame, sent",
		"ip host 192.0.2.1":                      "wire",
		"not not tcp and port 443":               "frame",
		"host ::ffff:192.0.2.1":                  "wire",
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		chosen := map[string]bool{}
		for name := range strings.SplitSeq(want, ", ") {
			chosen[name] = true
		}
		for name, p := range subjects {
			if got := f.matches(&p); got != chosen[name] {
				t.Errorf("%q chooses %s: %v, want %v", text, name, got, chosen[name])
			}
			if q, ok := packet.Parse(p.Body); p.Link == IP && !p.From.IsValid() && ok && f.Match(&q) != chosen[name] {
				t.Errorf("%q: Match of %s", text, name)
			}
		}
		if f.String() != text {
			t.Errorf("%q is now %q", text, f)
		}
	}
}

func TestNoFilter(t *testing.T) {
	for _, text := range []string{"", "  "} {
		if f, err := ParseFilter(text); f != nil || err != nil {
			t.Errorf("%q: %v, %v", text, f, err)
		}
	}
}

// TestFilterErrors: each says what is wrong, and points at it.
func TestFilterErrors(t *testing.T) {
	for _, tt := range []struct{ text, pointed, reason string }{
		{"tcp port", "tcp port<", "port needs a number behind it; names of services are not looked up"},
		{"tcp port <http", "", `port needs a number`},
		{"<http", "", `"http" is not known: conditions begin with host, net, port,`},
		{"port <65536", "", `"65536" is not a port: 0 to 65535`},
		{"port <80-90", "", `"80-90": write port 80, or portrange 80-90`},
		{"portrange <80", "", `write port 80, or portrange 80-90`},
		{"portrange <90-80", "", "the first port is above the last"},
		{"portrange <80-", "", `"" is not a port`},
		{"host <10.0.0", "", `"10.0.0" is not an IP address`},
		{"host <10.0.0.0/8", "", `"10.0.0.0/8" is not an IP address: write net 10.0.0.0/8`},
		{"host <fe80::1%eth0", "", "is not an IP address"},
		{"host <example.com", "", "host needs an address behind it; names are not looked up"},
		{"(port 80) or <443", "", "write host 443, or port 443"},
		{"<80", "", "write host 80, or port 80"},
		{"port 80 and tcp or <443", "", "write host 443, or port 443"},
		{"src <80", "", `"80" is not an IP address`},
		{"<tcp host 10.0.0.1", "", "put and behind tcp: only ip and ip6 have addresses"},
		{"net <10.0.0.0", "", `"10.0.0.0" is not a network such as 10.0.0.0/8`},
		{"net <10.0.0.1/8", "", `did you mean 10.0.0.0/8, or host 10.0.0.1?`},
		{"src <tcp", "", `an address, or host, net, port or portrange, is expected behind "src"`},
		{"tcp and<", "", "the filter ends where a condition is expected"},
		{"tcp and <or udp", "", `a condition is expected in front of "or"`},
		{"(tcp or udp<", "", "the ( of column 1 is not closed"},
		{"tcp <udp", "", `"udp" stands where and, or, or the end is expected`},
		{"tcp<)", "", "this ) closes nothing"},
		{"(<)", "", "a condition is expected in front of"},
		{"<icmp port 80", "", "icmp has no ports: tcp, udp and sctp have"},
		{"<arp host 10.0.0.1", "", "use arp alone"},
		{"tcp <[13] & 2", "", `'[' means nothing in a filter`},
		{"host é<ß", "", ""},
		{strings.Repeat("(", 64) + "<tcp", "", "more than 64 parentheses"},
		{"<" + strings.Repeat("tcp or ", 300) + "udp", "", "the filter has 2103 characters, at most 2048 are read"},
	} {
		before, after, _ := strings.Cut(tt.text, "<")
		if tt.reason == "" { // the first strange character counts
			before, after = "host ", "éß"
		}
		_, err := ParseFilter(before + after)
		var e *FilterError
		if !errors.As(err, &e) {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if !strings.Contains(e.Reason, tt.reason) {
			t.Errorf("%q: %s, want %s", tt.text, e.Reason, tt.reason)
		}
		if want := len([]rune(before)) + 1; e.Column != want && tt.pointed == "" {
			t.Errorf("%q: points at column %d, want %d\n%v", tt.text, e.Column, want, e)
		}
	}
	_, err := ParseFilter("tcp port http")
	want := "column 10: port needs a number behind it; names of services are not looked up\n  tcp port http\n           ^"
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// evaluate is the slow way to ask an expression.
func (e *expr) evaluate(s *subject) bool {
	switch e.op {
	case not:
		return !e.x.evaluate(s)
	case and:
		x, y := e.x.evaluate(s), e.y.evaluate(s)
		return x && y
	case or:
		x, y := e.x.evaluate(s), e.y.evaluate(s)
		return x || y
	case leaf:
	}
	return e.test.holds(s)
}

// FuzzFilter: no text and no packet does harm, and what is compiled chooses what
// the expression says.
func FuzzFilter(t *testing.F) {
	f := mutate.New(t)
	for _, text := range []string{
		"tcp port 80", "not (host 10.0.0.1 or 10.0.0.2) and udp", "src net fd00::/8 || icmp6 && !arp", "portrange 1-2 or 3-4", "((((ip",
		"src or dst port 53", "tcp src and dst port 1", "port 80 or 443 and host 10.1.0.1", "é", "not not not ip",
	} {
		for _, p := range subjects {
			f.Add(text, p.Body, p.Link == Ethernet)
		}
	}
	f.Fuzz(func(t *testing.T, text string, body []byte, frame bool) {
		filter, err := ParseFilter(text)
		if err != nil {
			var e *FilterError
			if !errors.As(err, &e) || e.Column < 1 || e.Column > len([]rune(e.Text))+1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if filter == nil {
			return
		}
		p := parser{text: text}
		if err := p.scan(); err != nil {
			t.Fatal(err)
		}
		e, err := p.expression(0)
		if err != nil {
			t.Fatal(err)
		}
		q := Packet{Body: body}
		if frame {
			q.Link = Ethernet
		}
		s := q.subject()
		if got, want := filter.matches(&q), e.evaluate(&s); got != want {
			t.Errorf("%q chooses %x: %v, want %v", text, body, got, want)
		}
		for i, test := range filter.tests {
			if test.yes >= i || test.no >= i {
				t.Errorf("%q: test %d leads to %d and %d, which may not end", text, i, test.yes, test.no)
			}
		}
		if again, err := ParseFilter(filter.String()); err != nil || len(again.tests) != len(filter.tests) {
			t.Errorf("%q reads as %v, %v", filter, again, err)
		}
	})
}
